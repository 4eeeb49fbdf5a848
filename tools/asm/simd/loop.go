package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A stream is a slice argument that a loop reads or writes a vector at a time,
// with the format its elements have in memory.
type stream struct {
	name   string
	format string // "f32" (any 32-bit element), "bf16", "f16" or "u8"
	ptr    reg.GPVirtual
}

// size returns the bytes of an element.
func (s stream) size() int {
	return map[string]int{"f32": 4, "bf16": 2, "f16": 2, "u8": 1}[s.format]
}

// streams parses "name name:format ..." and loads the pointers; a name that
// occurs in earlier shares its pointer.
func (a *asm) streams(list string, earlier ...stream) []stream {
	var out []stream
	for _, f := range strings.Fields(list) {
		name, format, found := strings.Cut(f, ":")
		if !found {
			format = "f32"
		}
		s := stream{name: name, format: format}
		for _, e := range earlier {
			if e.name == name {
				s.ptr = e.ptr
			}
		}
		if s.ptr == nil {
			s.ptr = a.base(name)
		}
		out = append(out, s)
	}
	return out
}

// at addresses the element index + offset.
func (s stream) at(index reg.Register, offset int) operand.Mem {
	size := s.size()
	return operand.Mem{Base: s.ptr, Index: index, Scale: uint8(size), Disp: offset * size}
}

// load reads a vector; with a mask, the lanes outside it are 0.
func (a *asm) load(s stream, m operand.Mem, tail mask) vec {
	d := a.vec()
	switch {
	case tail != nil && a.wide:
		switch s.format {
		case "f32":
			a.VMOVUPS_Z(m, tail, d)
		case "bf16":
			a.VPMOVZXWD_Z(m, tail, d)
			a.VPSLLD(operand.U8(16), d, d)
		case "u8":
			a.VPMOVZXBD_Z(m, tail, d)
		case "f16":
			a.VCVTPH2PS_Z(m, tail, d)
		}
	case tail != nil:
		if s.format != "f32" {
			panic("only AVX-512 has masked loads of " + s.format)
		}
		a.VMASKMOVPS(m, tail, d)
	default:
		switch s.format {
		case "f32":
			a.VMOVUPS(m, d)
		case "bf16":
			a.VPMOVZXWD(m, d)
			a.VPSLLD(operand.U8(16), d, d)
		case "u8":
			a.VPMOVZXBD(m, d)
		case "f16":
			a.VCVTPH2PS(m, d)
		}
	}
	return d
}

// nearestEven is the rounding VCVTPS2PH is asked for.
const nearestEven = operand.U8(0)

// store writes a vector, or the lanes of it that are in the mask. bf16 streams
// take vectors already rounded, with the result in the low half of each lane.
func (a *asm) store(s stream, x vec, m operand.Mem, tail mask) {
	switch {
	case tail != nil && a.wide:
		switch s.format {
		case "f32":
			a.VMOVUPS(x, tail, m)
		case "bf16":
			a.VPMOVDW(x, tail, m)
		case "u8":
			a.VPMOVDB(x, tail, m)
		case "f16":
			a.VCVTPS2PH(nearestEven, x, tail, m)
		}
	case tail != nil:
		if s.format != "f32" {
			panic("only AVX-512 has masked stores of " + s.format)
		}
		a.VMASKMOVPS(x, tail, m)
	default:
		switch s.format {
		case "f32":
			a.VMOVUPS(x, m)
		case "f16":
			a.VCVTPS2PH(nearestEven, x, m)
		case "bf16":
			if a.wide {
				a.VPMOVDW(x, m)
				return
			}
			packed := a.vec()
			a.VPACKUSDW(x, x, packed) // each half of the result twice
			if a.neon {
				a.VMOVQ(packed, m)
				return
			}
			a.VPERMQ(operand.U8(0x08), packed, packed)
			a.VMOVDQU(packed.AsX(), m)
		case "u8":
			if a.wide {
				a.VPMOVDB(x, m)
				return
			}
			packed := a.vec()
			a.VPACKUSDW(x, x, packed)
			if a.neon {
				a.VPACKUSWB(packed, packed, packed)
				a.VMOVD(packed, m)
				return
			}
			a.VPERMQ(operand.U8(0x08), packed, packed)
			a.VPACKUSWB(packed, packed, packed)
			a.MOVQ(packed.AsX(), m)
		}
	}
}

// tailMask returns the mask of the first n lanes, 0 < n < a.lanes.
func (a *asm) tailMask(n reg.GPVirtual) mask {
	if a.wide {
		ones, bits, k := a.GP64(), a.GP64(), a.K()
		a.MOVQ(operand.I32(-1), ones)
		a.BZHIQ(n, ones, bits)
		a.KMOVW(bits.As32(), k)
		return k
	}
	// As many words of ones as a vector has, then of zeros: read from n before the zeros.
	table := a.data("tail", append(slices.Repeat([]uint32{0xffffffff}, a.lanes), make([]uint32, a.lanes)...)...)
	p, y := a.GP64(), a.vec()
	a.LEAQ(table.Offset(a.bytes), p)
	back := a.GP64()
	a.MOVQ(n, back)
	a.NEGQ(back)
	a.VMOVUPS(operand.Mem{Base: p, Index: back, Scale: 4}, y)
	return y
}

// each emits the loop of an elementwise kernel: body computes one vector of
// every output from one vector of every input. The main loop takes unroll
// vectors a turn; the last elements run through the same body under a mask.
// The length is that of the first output.
func each(unroll int, outs, ins string, body func(a *asm, in []vec) []vec) func(*asm) {
	return func(a *asm) {
		a.each(unroll, outs, ins, body)
		a.finish()
	}
}

func (a *asm) each(unroll int, outs, ins string, body func(a *asm, in []vec) []vec) {
	out := a.streams(outs)
	in := a.streams(ins, out...)
	n := a.length(out[0].name)
	i := a.GP64()
	a.XORQ(i, i)

	step := func(offset int, tail mask) {
		regs := make([]vec, len(in))
		for j, s := range in {
			regs[j] = a.load(s, s.at(i, offset), tail)
		}
		for j, v := range body(a, regs) {
			a.store(out[j], v, out[j].at(i, offset), tail)
		}
	}
	a.whole(i, n, unroll*a.lanes, func() {
		for u := range unroll {
			step(u*a.lanes, nil)
		}
	})
	if unroll > 1 {
		a.whole(i, n, a.lanes, func() { step(0, nil) })
	}
	if a.masked(out, in) {
		done := a.label("done")
		a.TESTQ(n, n)
		a.JZ(operand.LabelRef(done))
		step(0, a.tailMask(n))
		a.Label(done)
	}
}

// masked reports whether all streams have masked loads and stores; where not,
// the kernel is called with whole vectors only.
func (a *asm) masked(lists ...[]stream) bool {
	for _, l := range lists {
		for _, s := range l {
			if !a.wide && s.format != "f32" {
				return false
			}
		}
	}
	return true
}

// whole emits a loop that runs body while n >= step, moving step elements from
// n to i each turn.
func (a *asm) whole(i, n reg.GPVirtual, step int, body func()) {
	loop, end := a.label("loop"), a.label("end")
	a.SUBQ(operand.Imm(uint64(step)), n)
	a.JB(operand.LabelRef(end))
	a.Label(loop)
	body()
	a.ADDQ(operand.Imm(uint64(step)), i)
	a.SUBQ(operand.Imm(uint64(step)), n)
	a.JAE(operand.LabelRef(loop))
	a.Label(end)
	a.ADDQ(operand.Imm(uint64(step)), n)
}

// one wraps the bodies that have a single output.
func one(f func(a *asm, in []vec) vec) func(*asm, []vec) []vec {
	return func(a *asm, in []vec) []vec { return []vec{f(a, in)} }
}

// unary and binary are each for the commonest shapes.
func unary(unroll int, f func(a *asm, x vec) vec) func(*asm) {
	return each(unroll, "dst", "x", one(func(a *asm, in []vec) vec { return f(a, in[0]) }))
}

func binary(unroll int, names string, f func(a *asm, x, y vec) vec) func(*asm) {
	if len(strings.Fields(names)) != 2 {
		panic(fmt.Sprintf("binary: %q is not two names", names))
	}
	return each(unroll, "dst", names, one(func(a *asm, in []vec) vec { return f(a, in[0], in[1]) }))
}
