package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vdpbf16ps emits VDPBF16PS rm, vvvv, dst on ZMM registers as raw EVEX bytes,
// because the Go assembler does not know AVX512_BF16:
// dst[i] += vvvv[2i+1]*rm[2i+1], then += vvvv[2i]*rm[2i], in float32.
//
// Encoding (Intel SDM vol. 2): EVEX.512.F3.0F38.W0 52 /r.
func vdpbf16ps(rm, vvvv, dst reg.VecPhysical) {
	build.Comment("VDPBF16PS " + rm.Asm() + ", " + vvvv.Asm() + ", " + dst.Asm())
	evex0F38(0b10, 0x52, rm, vvvv, dst)
}

// vcvtne2ps2bf16 emits VCVTNE2PS2BF16 low, high, dst: the 16 float32 of low,
// then those of high, rounded to bfloat16. EVEX.512.F2.0F38.W0 72 /r.
func vcvtne2ps2bf16(low, high, dst reg.VecPhysical) {
	build.Comment("VCVTNE2PS2BF16 " + low.Asm() + ", " + high.Asm() + ", " + dst.Asm())
	evex0F38(0b11, 0x72, low, high, dst)
}

// evex0F38 emits a 512-bit register form of the 0F38 map with W0 and the
// given mandatory prefix code (pp).
func evex0F38(pp, opcode byte, rm, vvvv, dst reg.VecPhysical) {
	d, v, m := dst.PhysicalIndex(), vvvv.PhysicalIndex(), rm.PhysicalIndex()
	bit := func(r reg.Index, n uint) byte { return byte(r>>n) & 1 }
	not := func(b byte) byte { return b ^ 1 }
	p0 := not(bit(d, 3))<<7 | not(bit(m, 4))<<6 | not(bit(m, 3))<<5 | not(bit(d, 4))<<4 | 0b010
	p1 := (^byte(v)&15)<<3 | 1<<2 | pp
	p2 := byte(0b10)<<5 | not(bit(v, 4))<<3
	modrm := byte(0b11)<<6 | byte(d&7)<<3 | byte(m&7)
	raw("LONG", operand.U32(uint32(0x62)|uint32(p0)<<8|uint32(p1)<<16|uint32(p2)<<24))
	raw("WORD", operand.U16(uint16(opcode)|uint16(modrm)<<8))
}

// raw emits a data directive in the instruction stream.
func raw(directive string, op operand.Op) {
	build.Instruction(&ir.Instruction{Opcode: directive, Operands: []operand.Op{op}})
}
