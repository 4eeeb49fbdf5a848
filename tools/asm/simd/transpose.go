package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A tile is a square transposed in registers: side rows of side elements.
type tile struct {
	side, size int                     // in elements; bytes of an element
	load       func(m operand.Mem) vec // one row
	transpose  func(rows []vec) []vec
	store      func(column vec, m operand.Mem)
}

// codeTranspose emits loops over tiles: along the rows of the source within
// strips of side rows, so that every line of memory is read once and its
// counterpart written once. rows and cols are multiples of the side.
func codeTranspose(newTile func(a *asm) tile) func(*asm) {
	return func(a *asm) {
		t := newTile(a)
		dst, src := a.base("dst"), a.base("src")
		dstStride, srcStride := a.load64("dstStride"), a.load64("srcStride")
		rows, cols := a.load64("rows"), a.load64("cols")
		shift := operand.Imm(uint64(t.size / 2)) // 4 bytes: 2, 2 bytes: 1
		a.SHLQ(shift, dstStride)
		a.SHLQ(shift, srcStride)

		strip, across := a.label("strip"), a.label("across")
		from, to, left := a.GP64(), a.GP64(), a.GP64()
		a.Label(strip)
		a.MOVQ(src, from)
		a.MOVQ(dst, to)
		a.MOVQ(cols, left)
		a.Label(across)
		in := a.lines(from, srcStride)
		regs := []vec{}
		for range t.side {
			regs = append(regs, t.load(in()))
		}
		out := a.lines(to, dstStride)
		for _, column := range t.transpose(regs) {
			t.store(column, out())
		}
		a.ADDQ(operand.Imm(uint64(t.side*t.size)), from)
		next := a.GP64()
		a.MOVQ(dstStride, next)
		a.IMUL3Q(operand.Imm(uint64(t.side)), next, next)
		a.ADDQ(next, to)
		a.SUBQ(operand.Imm(uint64(t.side)), left)
		a.JNZ(operand.LabelRef(across))
		down := a.GP64()
		a.MOVQ(srcStride, down)
		a.IMUL3Q(operand.Imm(uint64(t.side)), down, down)
		a.ADDQ(down, src)
		a.ADDQ(operand.Imm(uint64(t.side*t.size)), dst)
		a.SUBQ(operand.Imm(uint64(t.side)), rows)
		a.JNZ(operand.LabelRef(strip))
		a.finish()
	}
}

// lines returns a function that gives the addresses start, start+stride, ...
// one a call, with an addition every fourth.
func (a *asm) lines(start, stride reg.GPVirtual) func() operand.Mem {
	p, triple := a.GP64(), a.GP64()
	a.MOVQ(start, p)
	a.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, triple)
	i := 0
	return func() operand.Mem {
		if i > 0 && i%4 == 0 {
			a.LEAQ(operand.Mem{Base: p, Index: stride, Scale: 4}, p)
		}
		k := i % 4
		i++
		switch k {
		case 0:
			return operand.Mem{Base: p}
		case 3:
			return operand.Mem{Base: p, Index: triple, Scale: 1}
		}
		return operand.Mem{Base: p, Index: stride, Scale: uint8(k)}
	}
}

// unpack interleaves neighboring rows of a group: the result for rows 2k and
// 2k+1 is their lower halves interleaved, then their upper halves.
func unpack(rows []vec, low, high func(x, y vec) vec) []vec {
	out := make([]vec, len(rows))
	for k := 0; k < len(rows); k += 2 {
		out[k] = low(rows[k], rows[k+1])
		out[k+1] = high(rows[k], rows[k+1])
	}
	return out
}

// stride2 reorders rows so that those that unpack takes together next are
// neighbors: within groups of size n, the first of each pair, with their
// counterparts, then the second.
func stride2(rows []vec, n int) []vec {
	var out []vec
	for g := 0; g < len(rows); g += n {
		for j := range n / 2 {
			out = append(out, rows[g+j], rows[g+n/2+j])
		}
	}
	return out
}

func (a *asm) two(f func(...op), size reg.Spec) func(x, y vec) vec {
	return func(x, y vec) vec {
		d := a.Vec(size)
		f(y, x, d)
		return d
	}
}

// tile32 is 16x16 in AVX-512, 8x8 in AVX2, 4x4 in NEON: within 128-bit lanes, 4x4 squares
// are transposed by two rounds of interleaving; then the lanes are.
func tile32(a *asm) tile {
	size := map[int]reg.Spec{16: reg.S128, 32: reg.S256, 64: reg.S512}[a.bytes]
	t := tile{side: a.lanes, size: 4}
	t.load = func(m operand.Mem) vec { v := a.vec(); a.VMOVUPS(m, v); return v }
	t.store = func(v vec, m operand.Mem) { a.VMOVUPS(v, m) }
	lane := func(imm uint8, x, y vec) vec {
		d := a.vec()
		if a.wide {
			a.VSHUFF32X4(operand.U8(imm), y, x, d)
		} else {
			a.VPERM2F128(operand.U8(imm), y, x, d)
		}
		return d
	}
	t.transpose = func(rows []vec) []vec {
		rows = unpack(rows, a.two(a.VUNPCKLPS, size), a.two(a.VUNPCKHPS, size))
		rows = unpack(stride2(rows, 4), a.two(a.VUNPCKLPD, size), a.two(a.VUNPCKHPD, size))
		if a.neon {
			return rows
		}
		// rows[4g+c] now holds, in lane l, column 4l+c of rows 4g to 4g+3.
		out := make([]vec, t.side)
		for c := range 4 {
			if !a.wide {
				out[c], out[4+c] = lane(0x20, rows[c], rows[4+c]), lane(0x31, rows[c], rows[4+c])
				continue
			}
			even0, odd0 := lane(0x88, rows[c], rows[4+c]), lane(0xdd, rows[c], rows[4+c])
			even1, odd1 := lane(0x88, rows[8+c], rows[12+c]), lane(0xdd, rows[8+c], rows[12+c])
			out[c], out[8+c] = lane(0x88, even0, even1), lane(0xdd, even0, even1)
			out[4+c], out[12+c] = lane(0x88, odd0, odd1), lane(0xdd, odd0, odd1)
		}
		return out
	}
	return t
}

// tile16 is 16x16 in 256-bit registers in AVX-512 code, which has 32 of them,
// and 8x8 in 128-bit registers in AVX2 and NEON code.
func tile16(a *asm) tile {
	t, size := tile{side: 8, size: 2}, reg.S128
	if a.wide {
		t.side, size = 16, reg.S256
	}
	t.load = func(m operand.Mem) vec {
		v := a.Vec(size)
		if a.wide {
			a.VMOVDQU16(m, v)
		} else {
			a.VMOVDQU(m, v)
		}
		return v
	}
	t.store = func(v vec, m operand.Mem) {
		if a.wide {
			a.VMOVDQU16(v, m)
		} else {
			a.VMOVDQU(v, m)
		}
	}
	t.transpose = func(rows []vec) []vec {
		rows = unpack(rows, a.two(a.VPUNPCKLWD, size), a.two(a.VPUNPCKHWD, size))
		rows = unpack(stride2(rows, 4), a.two(a.VPUNPCKLDQ, size), a.two(a.VPUNPCKHDQ, size))
		rows = unpack(stride2(rows, 8), a.two(a.VPUNPCKLQDQ, size), a.two(a.VPUNPCKHQDQ, size))
		if !a.wide {
			return rows
		}
		// rows[c] holds columns c and c+8 of rows 0 to 7, rows[8+c] of rows 8 to 15.
		out := make([]vec, t.side)
		for c := range 8 {
			for lane := range 2 {
				d := a.Vec(size)
				a.VSHUFI64X2(operand.U8(3*lane), rows[8+c], rows[c], d)
				out[8*lane+c] = d
			}
		}
		return out
	}
	return t
}
