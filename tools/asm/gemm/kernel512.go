package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var zmm = [32]reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

const kernelSignature = "func(tiles, k int, a *byte, ta, rsa, csa int, b *byte, bs int, c *byte, ldc, n, acc int, bias, ahead *byte, step int)"

// rows addresses up to 12 rows by three base registers and the multiples 1, 2
// and 3 of a stride.
type rows struct {
	base          []reg.GPVirtual
	stride, times reg.GPVirtual // 1x and 3x
}

func newRows(n int, first, stride reg.GPVirtual) rows {
	r := rows{stride: stride, times: GP64(), base: make([]reg.GPVirtual, (n+3)/4)}
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r.times)
	for g := range r.base {
		r.base[g] = GP64()
	}
	r.reset(first)
	return r
}

// reset points the bases at first, first+4*stride and first+8*stride.
func (r rows) reset(first reg.GPVirtual) {
	MOVQ(first, r.base[0])
	for g := 1; g < len(r.base); g++ {
		LEAQ(Mem{Base: r.base[g-1], Index: r.stride, Scale: 4}, r.base[g])
	}
}

func (r rows) at(i int) Mem {
	switch i % 4 {
	case 0:
		return Mem{Base: r.base[i/4]}
	case 3:
		return Mem{Base: r.base[i/4], Index: r.times, Scale: 1}
	default:
		return Mem{Base: r.base[i/4], Index: r.stride, Scale: uint8(i % 4)}
	}
}

// kernel512 writes the kernel for tiles of mr rows by 32 columns. One step of
// the k loop multiplies mr words of A with 32 words of B; a word is a float32,
// or a pair of bfloat16 neighbors in k when pairs is set. Words of float32 have
// loops of their own for up to 8 and up to 16 columns.
func kernel512(mr int, pairs bool) {
	name, what := fmt.Sprintf("kernF32x%dAVX512", mr), "float32 words"
	if pairs {
		name, what = fmt.Sprintf("kernBF16x%dAVX512", mr), "bfloat16 pairs"
	}
	TEXT(name, NOSPLIT, kernelSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies %s in tiles of %d rows by 32 columns; see kernelFunc.", name, what, mr))

	n := Load(Param("n"), GP64())
	mask := GP64()
	MOVQ(I32(-1), mask)
	BZHIQ(n, mask, mask)
	KMOVW(mask.As32(), reg.K1)
	SHRQ(Imm(16), mask)
	KMOVW(mask.As32(), reg.K2)

	tiles := Load(Param("tiles"), GP64()).(reg.GPVirtual)
	a := Load(Param("a"), GP64()).(reg.GPVirtual)
	csa := Load(Param("csa"), GP64()).(reg.GPVirtual)
	bs := Load(Param("bs"), GP64()).(reg.GPVirtual)
	c := Load(Param("c"), GP64()).(reg.GPVirtual)
	ldc := Load(Param("ldc"), GP64()).(reg.GPVirtual)
	ahead := Load(Param("ahead"), GP64())
	ar := newRows(mr, a, Load(Param("rsa"), GP64()).(reg.GPVirtual))

	acc := func(i, j int) reg.VecPhysical { return zmm[2*i+j] }
	b0, b1 := zmm[24], zmm[25]

	Label("tile")
	TESTQ(tiles, tiles)
	JZ(LabelRef("done"))
	for i := range mr {
		for j := range 2 {
			VPXORD(acc(i, j), acc(i, j), acc(i, j))
		}
	}
	pc := GP64()
	MOVQ(c, pc)
	for i := range mr {
		PREFETCHT0(Mem{Base: pc})
		PREFETCHT0(Mem{Base: pc, Disp: 64})
		if i < mr-1 {
			ADDQ(ldc, pc)
		}
	}
	b := Load(Param("b"), GP64()).(reg.GPVirtual)
	k := Load(Param("k"), GP64()).(reg.GPVirtual)

	step := func(columns int) {
		size := func(r reg.VecPhysical) reg.VecPhysical {
			if columns == 8 {
				return r.AsY().(reg.VecPhysical)
			}
			return r
		}
		vectors := max(1, columns/16)
		VMOVUPS_Z(Mem{Base: b}, reg.K1, size(b0))
		if vectors == 2 {
			VMOVUPS_Z(Mem{Base: b, Disp: 64}, reg.K2, b1)
		}
		for i := range mr {
			x := size(zmm[26+i%6])
			VBROADCASTSS(ar.at(i), x)
			for j := range vectors {
				if pairs {
					vdpbf16ps(zmm[24+j], x, acc(i, j))
				} else {
					VFMADD231PS(size(zmm[24+j]), x, size(acc(i, j)))
				}
			}
		}
		ADDQ(bs, b)
		for _, r := range ar.base {
			ADDQ(csa, r)
		}
	}
	narrow := []int{8, 16}
	if pairs {
		narrow = nil
	}
	for _, columns := range narrow {
		loop, wider := fmt.Sprintf("loop%d", columns), fmt.Sprintf("wider%d", columns)
		CMPQ(paramMem("n"), Imm(uint64(columns)))
		JG(LabelRef(wider))
		TESTQ(k, k)
		JZ(LabelRef("write"))
		Label(loop)
		step(columns)
		DECQ(k)
		JNZ(LabelRef(loop))
		JMP(LabelRef("write"))
		Label(wider)
	}
	SUBQ(Imm(4), k)
	JLT(LabelRef("rest"))
	Label("loop")
	for range 4 {
		step(32)
	}
	PREFETCHT1(Mem{Base: ahead})
	ADDQ(paramMem("step"), ahead)
	SUBQ(Imm(4), k)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(Imm(4), k)
	JZ(LabelRef("write"))
	Label("one")
	step(32)
	DECQ(k)
	JNZ(LabelRef("one"))

	Label("write")
	accumulate := Load(Param("acc"), GP64())
	width := Load(Param("n"), GP64())
	CMPQ(width, Imm(32))
	JLT(LabelRef("edge"))
	writeTile(mr, 2, 64, c, ldc, accumulate, "", func(i, j int, m Mem, add bool) {
		if add {
			VADDPS(m, acc(i, j), acc(i, j))
		} else {
			VMOVUPS(acc(i, j), m)
		}
	}, func(j int, m Mem) {
		VMOVUPS(m, zmm[24+j])
		for i := range mr {
			VADDPS(zmm[24+j], acc(i, j), acc(i, j))
		}
	})
	JMP(LabelRef("next"))
	Label("edge")
	masks := []reg.Register{reg.K1, reg.K2}
	edge := func(vectors int, label string) {
		writeTile(mr, vectors, 64, c, ldc, accumulate, label, func(i, j int, m Mem, add bool) {
			if add {
				VADDPS_Z(m, acc(i, j), masks[j], acc(i, j))
			} else {
				VMOVUPS(acc(i, j), masks[j], m)
			}
		}, func(j int, m Mem) {
			VMOVUPS_Z(m, masks[j], zmm[24+j])
			for i := range mr {
				VADDPS(zmm[24+j], acc(i, j), acc(i, j))
			}
		})
	}
	if !pairs {
		CMPQ(width, Imm(16))
		JLE(LabelRef("narrow"))
	}
	edge(2, "edge")
	if !pairs {
		JMP(LabelRef("next"))
		Label("narrow")
		edge(1, "narrow")
	}
	Label("next")
	ADDQ(paramMem("ta"), a)
	for range mr {
		ADDQ(ldc, c)
	}
	ar.reset(a)
	DECQ(tiles)
	JMP(LabelRef("tile"))
	Label("done")
	VZEROUPPER()
	RET()
}

// paramMem is where a parameter lies, for those that no register is free for.
func paramMem(name string) Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// writeTile adds C to the accumulators, vectors in a row, when accumulate is not 0, and
// the bias if there is one (plus adds vector j of it, at m, to all rows), then stores them.
func writeTile(mr, vectors, vector int, c, ldc reg.GPVirtual, accumulate reg.Register, label string, op func(i, j int, m Mem, add bool), plus func(j int, m Mem)) {
	pc := GP64()
	set, store := "set"+label, "store"+label
	TESTQ(accumulate, accumulate)
	JZ(LabelRef(set))
	for _, add := range []bool{true, false} {
		if !add {
			Label(set)
			bias := Load(Param("bias"), GP64())
			TESTQ(bias, bias)
			JZ(LabelRef(store))
			for j := range vectors {
				plus(j, Mem{Base: bias, Disp: vector * j})
			}
			Label(store)
		}
		MOVQ(c, pc)
		for i := range mr {
			for j := range vectors {
				op(i, j, Mem{Base: pc, Disp: vector * j}, add)
			}
			if i < mr-1 {
				ADDQ(ldc, pc)
			}
		}
	}
}
