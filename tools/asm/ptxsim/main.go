// Command ptxsim writes the amd64 assembly of package engine/cuda/ptxsim: matrix products of one warp, and what is
// done most often with the 32 lanes of a register.
//
// Run it through go generate in engine/cuda/ptxsim.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

func main() {
	ConstraintExpr("amd64")
	lanes("add32AVX2", "adds registers", VADDPS)
	lanes("sub32AVX2", "subtracts b from a", VSUBPS)
	lanes("mul32AVX2", "multiplies registers", VMULPS)
	fused()
	sums("addWordsAVX2", 32, VPADDD)
	sums("addWideAVX2", 64, VPADDQ)
	less()
	equal()
	span()
	fromHalf()
	toHalf()
	for _, m := range []matrix{
		{"mmaHalf8AVX2", half, 8, false}, {"mmaHalf16AVX2", half, 16, false},
		{"mmaHalf8HalfAVX2", half, 8, true}, {"mmaHalf16HalfAVX2", half, 16, true},
		{"mmaBrain8AVX2", brain, 8, false}, {"mmaBrain16AVX2", brain, 16, false},
		{"mmaTensor8AVX2", tensor, 8, false},
	} {
		m.write()
	}
	Generate()
}
