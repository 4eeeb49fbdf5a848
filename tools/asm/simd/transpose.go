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

func (a *asm) two(f func(...op), bytes int) func(x, y vec) vec {
	return func(x, y vec) vec {
		d := a.vector(bytes)
		f(y, x, d)
		return d
	}
}

// transposeLanes transposes 128-bit lanes: row per*g+c has in lane l what row per*l+c gets
// in lane g.
func (a *asm) transposeLanes(rows []vec, per int) []vec {
	var split func(in []vec) []vec
	split = func(in []vec) []vec {
		n := len(in) / 2
		if n == 0 {
			return in
		}
		even, odd, out := make([]vec, n), make([]vec, n), make([]vec, 2*n)
		for k := range n {
			even[k], odd[k] = a.evenLanes(in[2*k], in[2*k+1]), a.oddLanes(in[2*k], in[2*k+1])
		}
		even, odd = split(even), split(odd)
		for k := range n {
			out[2*k], out[2*k+1] = even[k], odd[k]
		}
		return out
	}
	out := make([]vec, len(rows))
	for c := range per {
		var column []vec
		for g := c; g < len(rows); g += per {
			column = append(column, rows[g])
		}
		for l, v := range split(column) {
			out[per*l+c] = v
		}
	}
	return out
}

// tile32 is of as many rows as a vector has lanes: within 128-bit lanes, 4x4 squares are
// transposed by two rounds of interleaving; then the lanes are.
func tile32(a *asm) tile {
	t := tile{side: a.lanes, size: 4}
	t.load = func(m operand.Mem) vec { v := a.vec(); a.VMOVUPS(m, v); return v }
	t.store = func(v vec, m operand.Mem) { a.VMOVUPS(v, m) }
	t.transpose = func(rows []vec) []vec {
		rows = unpack(rows, a.two(a.VUNPCKLPS, a.Bytes), a.two(a.VUNPCKHPS, a.Bytes))
		rows = unpack(stride2(rows, 4), a.two(a.VUNPCKLPD, a.Bytes), a.two(a.VUNPCKHPD, a.Bytes))
		return a.transposeLanes(rows, 4)
	}
	return t
}

// tile16 is 16x16 in 256-bit registers where there are 32 of them, else 8x8 in 128-bit
// registers.
func tile16(a *asm) tile {
	bytes := 16
	if a.Bytes >= 32 && a.Registers >= 32 {
		bytes = 32
	}
	t := tile{side: bytes / 2, size: 2}
	t.load = func(m operand.Mem) vec { v := a.vector(bytes); a.moveWords(m, v); return v }
	t.store = func(v vec, m operand.Mem) { a.moveWords(v, m) }
	t.transpose = func(rows []vec) []vec {
		rows = unpack(rows, a.two(a.VPUNPCKLWD, bytes), a.two(a.VPUNPCKHWD, bytes))
		rows = unpack(stride2(rows, 4), a.two(a.VPUNPCKLDQ, bytes), a.two(a.VPUNPCKHDQ, bytes))
		rows = unpack(stride2(rows, 8), a.two(a.VPUNPCKLQDQ, bytes), a.two(a.VPUNPCKHQDQ, bytes))
		return a.transposeLanes(rows, 8)
	}
	return t
}
