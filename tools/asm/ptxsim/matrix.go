package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kind is the format of A and B.
type kind int

const (
	half kind = iota
	brain
	tensor
)

// matrix is one shape of mma.
type matrix struct {
	name   string
	kind   kind
	k      int
	halves bool // C and D are f16
}

// write emits func(regs *[32]uint32, f *[14]uint64). A register of A or B with 16-bit elements is, as it lies, a row-major
// matrix of 8 rows of A, or 8 columns of B, by 8 values of k; one of tf32 has 4 values of k. Rows 0-7 and 8-15 of the
// result are computed in turn, each row in a vector.
func (m matrix) write() {
	TEXT(m.name, 0, "func(regs *[32]uint32, f *[14]uint64)")
	Pragma("noescape")
	Doc(m.name + " multiplies the fragments of one warp; D may be C but overlaps nothing else.")
	regs, f := Load(Param("regs"), GP64()), Mem{Base: Load(Param("f"), GP64())}
	operand := func(field, i int) Mem { // of fragment: a, b, c, d as byte offsets of their registers
		p := GP64()
		MOVQ(f.Offset(8*([]int{0, 4, 6, 10}[field]+i)), p)
		ADDQ(regs, p)
		return Mem{Base: p}
	}
	bs, as := AllocLocal(16*32), AllocLocal(8*64)
	for i := 0; i < m.k/8; i++ {
		rows := make([]reg.VecPhysical, 8)
		lo, hi := operand(1, i), Mem{}
		if m.kind == tensor {
			hi = operand(1, 1)
		}
		for n := range rows {
			rows[n] = vector(n)
			m.row(rows[n], lo, hi, n)
		}
		transpose(rows, bs, i*8)
	}
	nan := vector(15)
	for h := 0; h < 2; h++ {
		for i := 0; i < m.k/8; i++ {
			lo, hi := operand(0, h+2*i), Mem{}
			if m.kind == tensor {
				hi = operand(0, h+2)
			}
			for r := 0; r < 8; r++ {
				m.row(vector(r), lo, hi, r)
				VMOVUPS(vector(r), as.Offset(r*64+i*32))
			}
		}
		m.load(operand, h)
		for k := 0; k < m.k; k++ {
			b := vector(8)
			VMOVUPS(bs.Offset(k*32), b)
			for r := 0; r < 8; r++ {
				a := vector(9 + r%4)
				VBROADCASTSS(as.Offset(r*64+k*4), a)
				VFMADD231PS(a, b, vector(r))
			}
		}
		x := GP32()
		MOVL(U32(oneNaN), x)
		VMOVD(x, nan.AsX())
		VPBROADCASTD(nan.AsX(), nan)
		for r := 0; r < 8; r++ {
			replaceNaN(vector(r), nan, vector(14))
		}
		m.store(operand, h)
	}
	VZEROUPPER()
	RET()
}

// vector is vector register i: all sixteen are spoken for, so they are named.
func vector(i int) reg.VecPhysical {
	return []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15}[i]
}

// row loads eight values of k of row n as float32.
func (m matrix) row(p reg.VecPhysical, lo, hi Mem, n int) {
	switch m.kind {
	case half:
		VCVTPH2PS(lo.Offset(16*n), p)
	case brain:
		VPMOVZXWD(lo.Offset(16*n), p)
		VPSLLD(U8(16), p, p)
	case tensor:
		VMOVUPS(lo.Offset(16*n), p.AsX())
		VINSERTF128(U8(1), hi.Offset(16*n), p, p)
		VPSRLD(U8(13), p, p)
		VPSLLD(U8(13), p, p)
	}
}

// transpose stores eight rows Y0-Y7 as columns from row `first` of a table of vectors on.
func transpose(y []reg.VecPhysical, to Mem, first int) {
	t := func(i int) reg.VecPhysical { return vector(8 + i) }
	for i := 0; i < 8; i += 2 {
		VUNPCKLPS(y[i+1], y[i], t(i))
		VUNPCKHPS(y[i+1], y[i], t(i+1))
	}
	for i := 0; i < 8; i += 4 {
		VSHUFPS(U8(0x44), t(i+2), t(i), y[i])
		VSHUFPS(U8(0xee), t(i+2), t(i), y[i+1])
		VSHUFPS(U8(0x44), t(i+3), t(i+1), y[i+2])
		VSHUFPS(U8(0xee), t(i+3), t(i+1), y[i+3])
	}
	for i := 0; i < 4; i++ {
		VPERM2F128(U8(0x20), y[i+4], y[i], t(i))
		VMOVUPS(t(i), to.Offset((first+i)*32))
		VPERM2F128(U8(0x31), y[i+4], y[i], t(i+4))
		VMOVUPS(t(i+4), to.Offset((first+i+4)*32))
	}
}

// load puts rows 8h to 8h+7 of C into Y0-Y7.
func (m matrix) load(operand func(field, i int) Mem, h int) {
	if m.halves {
		c := operand(2, h)
		for r := 0; r < 8; r++ {
			VCVTPH2PS(c.Offset(16*r), vector(r))
		}
		return
	}
	even, odd := operand(2, 2*h), operand(2, 2*h+1)
	for j := 0; j < 4; j++ {
		a, b, lo, hi := vector(8), vector(9), vector(10), vector(11)
		VMOVUPS(even.Offset(32*j), a)
		VMOVUPS(odd.Offset(32*j), b)
		VUNPCKLPS(b, a, lo)
		VUNPCKHPS(b, a, hi)
		VPERM2F128(U8(0x20), hi, lo, vector(2*j))
		VPERM2F128(U8(0x31), hi, lo, vector(2*j+1))
	}
}

// store is the reverse of load, to D.
func (m matrix) store(operand func(field, i int) Mem, h int) {
	if m.halves {
		d := operand(3, h)
		for r := 0; r < 8; r++ {
			VCVTPS2PH(U8(0), vector(r), d.Offset(16*r))
		}
		return
	}
	even, odd := operand(3, 2*h), operand(3, 2*h+1)
	for j := 0; j < 4; j++ {
		lo, hi, a, b := vector(8), vector(9), vector(10), vector(11)
		VPERM2F128(U8(0x20), vector(2*j+1), vector(2*j), lo)
		VPERM2F128(U8(0x31), vector(2*j+1), vector(2*j), hi)
		VSHUFPS(U8(0x88), hi, lo, a)
		VSHUFPS(U8(0xdd), hi, lo, b)
		VMOVUPS(a, even.Offset(32*j))
		VMOVUPS(b, odd.Offset(32*j))
	}
}
