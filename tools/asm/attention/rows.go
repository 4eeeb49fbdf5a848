package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const infinity = 0x7f800000

// each emits a loop over the n first elements of a row: whole vectors, then a
// masked one. at is the byte offset, advanced past what was visited in whole
// vectors and, when the row has a tail, one vector more.
func (v *simd) each(label string, n, at reg.GPVirtual, body func(tail bool, k mask)) {
	left := GP64()
	MOVQ(n, left)
	SUBQ(Imm(uint64(v.lanes)), left)
	JLT(LabelRef(label + "tail"))
	Label(label)
	body(false, mask{})
	ADDQ(Imm(uint64(v.bytes())), at)
	SUBQ(Imm(uint64(v.lanes)), left)
	JGE(LabelRef(label))
	Label(label + "tail")
	ADDQ(Imm(uint64(v.lanes)), left)
	JZ(LabelRef(label + "end"))
	body(true, v.mask(left))
	ADDQ(Imm(uint64(v.bytes())), at)
	Label(label + "end")
}

// eachRow emits a loop over rows; next advances the pointers.
func eachRow(rows reg.GPVirtual, body, next func()) { eachRowAs("row", rows, body, next) }

// eachRowAs is eachRow for a function with several such loops.
func eachRowAs(label string, rows reg.GPVirtual, body, next func()) {
	TESTQ(rows, rows)
	JZ(LabelRef(label + "end"))
	Label(label)
	body()
	next()
	DECQ(rows)
	JNZ(LabelRef(label))
	Label(label + "end")
}

func (v *simd) at(base, off reg.GPVirtual) Mem { return Mem{Base: base, Index: off, Scale: 1} }

// get reads a vector of a row, masked in the tail.
func (v *simd) get(m Mem, tail bool, k mask) reg.VecVirtual {
	if tail {
		return v.load(m, k)
	}
	z := v.vec()
	VMOVUPS(m, z)
	return z
}

// clear zeroes a row from byte at to byte end, both multiples of a vector.
func (v *simd) clear(label string, at, end reg.GPVirtual, rows ...reg.GPVirtual) {
	z := v.vec()
	v.zero(z)
	Label(label)
	CMPQ(at, end)
	JGE(LabelRef(label + "end"))
	for _, r := range rows {
		VMOVUPS(z, v.at(r, at))
	}
	ADDQ(Imm(uint64(v.bytes())), at)
	JMP(LabelRef(label))
	Label(label + "end")
}

// softmaxRows finds what to subtract from each row before it exponentiates
// any: a row's maximum takes long to come, and several can be on their way.
func (v *simd) softmaxRows() {
	v.text("softmaxRows", "func(rows int, s *float32, pitch int, valid *int32, width int, scale float32, m, l, alpha *float32)",
		"is one step of an online softmax over rows of scores; see rowKernels.")
	s, pitch, valid, m := gp("s"), gp("pitch"), gp("valid"), gp("m")
	scale := v.param("scale")
	v.preload()
	at, n := GP64(), GP64()
	{
		rows, s, valid, m, alpha := gp("rows"), gp("s"), gp("valid"), gp("m"), gp("alpha")
		eachRowAs("top", rows, func() {
			MOVLQSX(Mem{Base: valid}, n)
			top := v.reg(v.bits(infinity | 1<<31))
			XORQ(at, at)
			v.each("max", n, at, func(tail bool, k mask) {
				x := v.get(v.at(s, at), tail, k)
				if tail {
					v.blend(x, v.reg(v.bits(infinity|1<<31)), k)
				}
				VMAXPS(x, top, top)
			})
			v.reduce(top, VMAXPS)
			old, base := XMM(), XMM()
			VMULSS(scale.AsX(), top.AsX(), top.AsX())
			VMOVSS(Mem{Base: m}, old)
			VMAXSS(old, top.AsX(), base)
			VMOVSS(base, Mem{Base: m})
			seenOr0(base)
			VSUBSS(base, old, old)
			VMOVSS(old, Mem{Base: alpha})
		}, func() {
			ADDQ(pitch, s)
			for _, p := range []reg.GPVirtual{valid, m, alpha} {
				ADDQ(Imm(4), p)
			}
		})
	}
	rows, l, alpha := gp("rows"), gp("l"), gp("alpha")
	XORQ(at, at)
	v.each("alpha", rows, at, func(tail bool, k mask) {
		x, sum := v.get(v.at(alpha, at), tail, k), v.get(v.at(l, at), tail, k)
		v.exp(x)
		VMULPS(x, sum, sum)
		if tail {
			v.store(x, v.at(alpha, at), k)
			v.store(sum, v.at(l, at), k)
		} else {
			VMOVUPS(x, v.at(alpha, at))
			VMOVUPS(sum, v.at(l, at))
		}
	})
	width := gp("width")
	SHLQ(Imm(2), width)
	eachRow(rows, func() {
		MOVLQSX(Mem{Base: valid}, n)
		base, shift, sum := XMM(), v.vec(), v.vec()
		VMOVSS(Mem{Base: m}, base)
		seenOr0(base)
		VBROADCASTSS(base, shift)
		v.zero(sum)
		XORQ(at, at)
		v.each("exp", n, at, func(tail bool, k mask) {
			x := v.get(v.at(s, at), tail, k)
			VFMSUB213PS(shift, scale, x)
			v.exp(x)
			if tail {
				v.keep(x, k)
			}
			VADDPS(x, sum, sum)
			VMOVUPS(x, v.at(s, at))
		})
		v.clear("clear", at, width, s)
		v.reduce(sum, VADDPS)
		VADDSS(Mem{Base: l}, sum.AsX(), sum.AsX())
		VMOVSS(sum.AsX(), Mem{Base: l})
	}, func() {
		ADDQ(pitch, s)
		for _, p := range []reg.GPVirtual{valid, m, l} {
			ADDQ(Imm(4), p)
		}
	})
	v.end()
}

// seenOr0 replaces a maximum of -Inf, of a row that has seen nothing so far, by 0.
func seenOr0(base reg.VecVirtual) {
	low, seen := XMM(), XMM()
	VMOVSS(constWord(infinity|1<<31), low)
	VCMPSS(Imm(4), low, base, seen)
	VANDPS(seen, base, base)
}

var words = map[uint32]Mem{}

// constWord is one 32-bit constant in memory.
func constWord(x uint32) Mem {
	m, ok := words[x]
	if !ok {
		m = GLOBL("scalar"+constName(x), RODATA|NOPTR)
		DATA(0, U32(x))
		words[x] = m
	}
	return m
}

func (v *simd) gradRows() {
	v.text("gradRows", "func(rows int, s, d *float32, pitch int, valid *int32, width int, scale float32, lse, delta *float32)",
		"turns rows of scores into probabilities and rows of their gradients into those of the scores; see rowKernels.")
	rows, s, d, pitch, valid, width := gp("rows"), gp("s"), gp("d"), gp("pitch"), gp("valid"), gp("width")
	SHLQ(Imm(2), width)
	lse, delta := gp("lse"), gp("delta")
	scale := v.param("scale")
	v.preload()
	at, n := GP64(), GP64()
	eachRow(rows, func() {
		MOVLQSX(Mem{Base: valid}, n)
		shift, mean := v.broadcast(Mem{Base: lse}), v.broadcast(Mem{Base: delta})
		XORQ(at, at)
		v.each("grad", n, at, func(tail bool, k mask) {
			x, g := v.get(v.at(s, at), tail, k), v.get(v.at(d, at), tail, k)
			VFMSUB213PS(shift, scale, x)
			v.exp(x)
			if tail {
				v.keep(x, k)
			}
			VSUBPS(mean, g, g)
			VMULPS(scale, g, g)
			VMULPS(x, g, g)
			VMOVUPS(x, v.at(s, at))
			VMOVUPS(g, v.at(d, at))
		})
		v.clear("clear", at, width, s, d)
	}, func() {
		ADDQ(pitch, s)
		ADDQ(pitch, d)
		for _, p := range []reg.GPVirtual{valid, lse, delta} {
			ADDQ(Imm(4), p)
		}
	})
	v.end()
}

func (v *simd) dotRows() {
	v.text("dotRows", "func(rows, n int, a *float32, aPitch int, b *float32, bPitch int, out *float32)",
		"writes the dot products of rows of n elements; see rowKernels.")
	rows, n, a, aPitch, b, bPitch, out := gp("rows"), gp("n"), gp("a"), gp("aPitch"), gp("b"), gp("bPitch"), gp("out")
	at := GP64()
	eachRow(rows, func() {
		sum := v.vec()
		v.zero(sum)
		XORQ(at, at)
		v.each("dot", n, at, func(tail bool, k mask) {
			x := v.get(v.at(a, at), tail, k)
			VFMADD231PS(v.get(v.at(b, at), tail, k), x, sum)
		})
		v.reduce(sum, VADDPS)
		VMOVSS(sum.AsX(), Mem{Base: out})
	}, func() {
		ADDQ(aPitch, a)
		ADDQ(bPitch, b)
		ADDQ(Imm(4), out)
	})
	v.end()
}

func (v *simd) scaleRows() {
	v.text("scaleRows", "func(rows, n int, x *float32, pitch int, factor *float32)",
		"multiplies each row of n elements by its factor; see rowKernels.")
	rows, n, x, pitch, factor := gp("rows"), gp("n"), gp("x"), gp("pitch"), gp("factor")
	at := GP64()
	eachRow(rows, func() {
		f := v.broadcast(Mem{Base: factor})
		XORQ(at, at)
		v.each("scale", n, at, func(tail bool, k mask) {
			z := v.get(v.at(x, at), tail, k)
			VMULPS(f, z, z)
			if tail {
				v.store(z, v.at(x, at), k)
			} else {
				VMOVUPS(z, v.at(x, at))
			}
		})
	}, func() {
		ADDQ(pitch, x)
		ADDQ(Imm(4), factor)
	})
	v.end()
}

func (v *simd) mulRow() {
	v.text("mulRow", "func(n int, x, y *float32)", "multiplies x by y, element by element; see rowKernels.")
	n, x, y := gp("n"), gp("x"), gp("y")
	at := GP64()
	XORQ(at, at)
	v.each("mul", n, at, func(tail bool, k mask) {
		z := v.get(v.at(x, at), tail, k)
		VMULPS(v.get(v.at(y, at), tail, k), z, z)
		if tail {
			v.store(z, v.at(x, at), k)
		} else {
			VMOVUPS(z, v.at(x, at))
		}
	})
	v.end()
}

func (v *simd) maskRow() {
	v.text("maskRow", "func(n int, s *float32, segment *int32, want int32)",
		"sets the elements whose segment is not want to -Inf; see rowKernels.")
	n, s, segment := gp("n"), gp("s"), gp("segment")
	same := v.param("want")
	low := v.reg(v.bits(infinity | 1<<31))
	at := GP64()
	XORQ(at, at)
	v.each("mask", n, at, func(tail bool, k mask) {
		x, id := v.get(v.at(s, at), tail, k), v.get(v.at(segment, at), tail, k)
		eq := mask{}
		if v.wide() {
			eq.k = K()
			VPCMPEQD(same, id, eq.k)
		} else {
			eq.y = YMM()
			VPCMPEQD(same, id, eq.y)
		}
		v.blend(x, low, eq)
		if tail {
			v.store(x, v.at(s, at), k)
		} else {
			VMOVUPS(x, v.at(s, at))
		}
	})
	v.end()
}
