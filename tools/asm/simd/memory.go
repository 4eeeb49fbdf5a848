package main

import (
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// load reads a vector; with a mask, the lanes outside it are 0.
func (a *asm) load(s stream, m operand.Mem, tail mask) vec {
	d := a.vec()
	switch {
	case tail != nil && a.Opmask:
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
			panic("only opmask registers mask loads of " + s.format)
		}
		a.VMASKMOVPS(m, tail, d)
	default:
		switch s.format {
		case "f32":
			a.VMOVUPS(m, d)
		case "bf16":
			if a.Halves {
				zero, x := a.kregbits(0), a.vec()
				a.VMOVQ(m, x)
				return a.native("ZIP1H", d, false, zero, x)
			}
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
// take vectors already rounded, as upper gives them.
func (a *asm) store(s stream, x vec, m operand.Mem, tail mask) {
	switch {
	case tail != nil && a.Opmask:
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
			panic("only opmask registers mask stores of " + s.format)
		}
		a.VMASKMOVPS(x, tail, m)
	default:
		switch s.format {
		case "f32":
			a.VMOVUPS(x, m)
		case "f16":
			a.VCVTPS2PH(nearestEven, x, m)
		case "bf16":
			switch {
			case a.Halves: // they are packed
				a.VMOVQ(x, m)
			case a.Opmask:
				a.VPMOVDW(x, m)
			default:
				a.VMOVDQU(a.packed(x).AsX(), m)
			}
		case "u8":
			if a.Opmask {
				a.VPMOVDB(x, m)
				return
			}
			packed := a.packed(x)
			a.VPACKUSWB(packed, packed, packed)
			if a.lanes == 4 {
				a.VMOVD(packed, m)
			} else {
				a.MOVQ(packed.AsX(), m)
			}
		}
	}
}

// packed returns the lower halves of lanes, in which the numbers fit.
func (a *asm) packed(x vec) vec {
	packed := a.vec()
	a.VPACKUSDW(x, x, packed) // within 128 bits, twice
	if a.Bytes > 16 {
		a.VPERMQ(operand.U8(0x08), packed, packed)
	}
	return packed
}

// widen loads float32 elements as float64.
func (a *asm) widen(m operand.Mem, tail mask) vec {
	d := a.vec()
	switch {
	case tail == nil:
		a.VCVTPS2PD(m, d)
	case a.Opmask:
		a.VCVTPS2PD_Z(m, tail, d)
	default:
		part := a.XMM()
		a.VMASKMOVPS(m, tail.(vec).AsX(), part)
		a.VCVTPS2PD(part, d)
	}
	return d
}

// tailMask returns the mask of the first n lanes, 0 < n < a.lanes.
func (a *asm) tailMask(n reg.GPVirtual) mask {
	if a.Opmask {
		ones, bits, k := a.GP64(), a.GP64(), a.K()
		a.MOVQ(operand.I32(-1), ones)
		a.BZHIQ(n, ones, bits)
		a.KMOVW(bits.As32(), k)
		return k
	}
	// As many words of ones as a vector has, then of zeros: read from n before the zeros.
	table := a.data("tail", append(slices.Repeat([]uint32{0xffffffff}, a.lanes), make([]uint32, a.lanes)...)...)
	p, y := a.GP64(), a.vec()
	a.LEAQ(table.Offset(a.Bytes), p)
	back := a.GP64()
	a.MOVQ(n, back)
	a.NEGQ(back)
	a.VMOVUPS(operand.Mem{Base: p, Index: back, Scale: 4}, y)
	return y
}

// masked reports whether all streams have masked loads and stores; where not,
// the kernel is called with whole vectors only.
func (a *asm) masked(lists ...[]stream) bool {
	for _, l := range lists {
		for _, s := range l {
			if !a.Opmask && s.format != "f32" {
				return false
			}
		}
	}
	return true
}

// moveWords loads or stores words of 16 bits.
func (a *asm) moveWords(from, to op) {
	if a.Opmask {
		a.VMOVDQU16(from, to)
	} else {
		a.VMOVDQU(from, to)
	}
}
