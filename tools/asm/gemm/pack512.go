package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	panelSignature = "func(k, cols int, src *byte, stride int, dst *byte, dstStride int)"
	rowsSignature  = "func(rows, cols int, src *byte, stride int, dst *byte, dstStride int)"
)

func gp(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// bitmask sets the first K registers to the low bits of (1<<cols)-1, 16 bits each.
func bitmask(cols reg.GPVirtual, ks ...reg.Register) {
	mask := GP64()
	MOVQ(I32(-1), mask)
	BZHIQ(cols, mask, mask)
	for i, k := range ks {
		if i > 0 {
			SHRQ(Imm(16), mask)
		}
		KMOVW(mask.As32(), k)
	}
}

// load512 reads 16 masked elements at m as float32.
func load512(from string, m Mem, k reg.Register) reg.VecVirtual {
	z := ZMM()
	switch from {
	case "F32":
		VMOVUPS_Z(m, k, z)
	case "BF16":
		VPMOVZXWD_Z(m, k, z)
		VPSLLD(Imm(16), z, z)
	case "F16":
		VCVTPH2PS_Z(m, k, z)
	}
	return z
}

// rowsAhead returns the distance to the row that packing prefetches, as rows
// far apart are beyond the hardware prefetcher.
func rowsAhead(stride reg.GPVirtual) reg.GPVirtual {
	ahead := GP64()
	MOVQ(stride, ahead)
	SHLQ(Imm(4), ahead)
	return ahead
}

func size(typ string) int {
	if typ == "F32" {
		return 4
	}
	return 2
}

// Streaming stores bypass the caches. A packed B that all workers read is in
// the caches of all when it is next written, and taking a line back from other
// cores costs several times what writing it to memory does.
func streaming(stream bool) string {
	if stream {
		return "Stream"
	}
	return ""
}

func store(stream bool, z, m Op) {
	if stream {
		VMOVNTPS(z, m)
	} else {
		VMOVUPS(z, m)
	}
}

// finish returns, after making streaming stores visible to other cores.
func finish(stream bool) {
	if stream {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}

// panel512 packs k rows of up to 16*halves elements as float32.
func panel512(from string, halves int, stream bool) {
	name := fmt.Sprintf("panel%s%d%sAVX512", from, 16*halves, streaming(stream))
	TEXT(name, NOSPLIT, panelSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s copies k rows of cols %s elements to rows of %d float32, zero beyond cols; see panelFunc.", name, from, 16*halves))
	k, src, stride, dst, dstStride := gp("k"), gp("src"), gp("stride"), gp("dst"), gp("dstStride")
	ahead := rowsAhead(stride)
	masks := []reg.Register{reg.K1, reg.K2}[:halves]
	bitmask(gp("cols"), masks...)
	TESTQ(k, k)
	JZ(LabelRef("done"))
	Label("loop")
	for h, m := range masks {
		z := load512(from, Mem{Base: src, Disp: 16 * h * size(from)}, m)
		store(stream, z, Mem{Base: dst, Disp: 64 * h})
		if h == 0 || from == "F32" {
			PREFETCHT0(Mem{Base: src, Index: ahead, Scale: 1, Disp: 64 * h})
		}
	}
	ADDQ(stride, src)
	ADDQ(dstStride, dst)
	DECQ(k)
	JNZ(LabelRef("loop"))
	Label("done")
	finish(stream)
}

// pairs512 packs ceil(k/2) pairs of rows of up to 16*halves elements as
// bfloat16 neighbors in k.
func pairs512(from string, halves int, stream bool) {
	name := fmt.Sprintf("pairs%s%d%sAVX512", from, 16*halves, streaming(stream))
	TEXT(name, NOSPLIT, panelSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s interleaves pairs of k rows of cols %s elements to rows of %d bfloat16 pairs, zero beyond cols and k; see panelFunc.", name, from, 16*halves))
	k, src, stride, dst, dstStride := gp("k"), gp("src"), gp("stride"), gp("dst"), gp("dstStride")
	ahead := rowsAhead(stride)
	masks := []reg.Register{reg.K1, reg.K2}[:halves]
	bitmask(gp("cols"), masks...)
	index, lo, hi, zero := reg.Z31, reg.Z0, reg.Z1, reg.Z2
	VPXORD(zero, zero, zero)
	if from == "F32" {
		VMOVDQU16(interleaveIndex(), index)
	}
	row := func(odd bool) {
		below := GP64()
		LEAQ(Mem{Base: src, Index: stride, Scale: 1}, below)
		for h, m := range masks {
			at := Mem{Base: src, Disp: 16 * h * size(from)}
			next := Mem{Base: below, Disp: 16 * h * size(from)}
			out := Mem{Base: dst, Disp: 64 * h}
			if h == 0 || from == "F32" {
				PREFETCHT0(Mem{Base: src, Index: ahead, Scale: 1, Disp: 64 * h})
				PREFETCHT0(Mem{Base: below, Index: ahead, Scale: 1, Disp: 64 * h})
			}
			if from == "F32" {
				VMOVUPS_Z(at, m, lo)
				if odd {
					vcvtne2ps2bf16(lo, zero, lo)
				} else {
					VMOVUPS_Z(next, m, hi)
					vcvtne2ps2bf16(lo, hi, lo)
				}
				VPERMW(lo, index, lo)
				store(stream, lo, out)
				continue
			}
			VPMOVZXWD_Z(at, m, lo)
			if !odd {
				VPMOVZXWD_Z(next, m, hi)
				VPSLLD(Imm(16), hi, hi)
				VPORD(hi, lo, lo)
			}
			store(stream, lo, out)
		}
	}
	SUBQ(Imm(2), k)
	JLT(LabelRef("last"))
	Label("loop")
	row(false)
	LEAQ(Mem{Base: src, Index: stride, Scale: 2}, src)
	ADDQ(dstStride, dst)
	SUBQ(Imm(2), k)
	JGE(LabelRef("loop"))
	Label("last")
	ADDQ(Imm(2), k)
	JZ(LabelRef("done"))
	row(true)
	Label("done")
	finish(stream)
}

var interleaveTable *Mem

// interleaveIndex is the VPERMW index that interleaves the two halves of a register.
func interleaveIndex() Mem {
	if interleaveTable == nil {
		m := GLOBL("interleave", RODATA|NOPTR)
		for i := range 32 {
			DATA(2*i, U16(uint16(i/2+16*(i%2))))
		}
		interleaveTable = &m
	}
	return *interleaveTable
}

// rows512 converts rows of cols elements from one type to another.
func rows512(from, to string) {
	name := fmt.Sprintf("rows%sTo%sAVX512", from, to)
	TEXT(name, NOSPLIT, rowsSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s converts rows of cols elements, rounding to nearest even; see rowsFunc.", name))
	rows, cols, src, stride, dst, dstStride := gp("rows"), gp("cols"), gp("src"), gp("stride"), gp("dst"), gp("dstStride")
	tail := GP64()
	MOVQ(cols, tail)
	ANDQ(Imm(15), tail)
	bitmask(tail, reg.K1)
	SHRQ(Imm(4), cols)
	round := roundBF16{}
	if to == "BF16" {
		round = newRoundBF16()
	}
	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	KXNORW(reg.K2, reg.K2, reg.K2)
	convert := func(s, d reg.GPVirtual, k reg.Register) {
		out := Mem{Base: d}
		z := load512(from, Mem{Base: s}, k)
		switch to {
		case "BF16":
			round.apply(z)
			VPMOVDW(z, k, out)
		case "F16":
			VCVTPS2PH(Imm(0), z, k, out)
		default:
			VMOVUPS(z, k, out)
		}
	}
	Label("row")
	s, d, n := GP64(), GP64(), GP64()
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(cols, n)
	TESTQ(n, n)
	JZ(LabelRef("tail"))
	Label("loop")
	convert(s, d, reg.K2)
	ADDQ(Imm(uint64(16*size(from))), s)
	ADDQ(Imm(uint64(16*size(to))), d)
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("tail")
	TESTQ(tail, tail)
	JZ(LabelRef("next"))
	convert(s, d, reg.K1)
	Label("next")
	ADDQ(stride, src)
	ADDQ(dstStride, dst)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("done")
	VZEROUPPER()
	RET()
}

// roundBF16 rounds float32 to the upper half of a word by integer arithmetic,
// which, unlike VCVTNEPS2BF16, keeps denormals and needs only AVX-512F.
type roundBF16 struct{ one, bias, quiet reg.VecVirtual }

func newRoundBF16() roundBF16 {
	r := roundBF16{ZMM(), ZMM(), ZMM()}
	g := GP32()
	MOVL(U32(1), g)
	VPBROADCASTD(g, r.one)
	MOVL(U32(0x7fff), g)
	VPBROADCASTD(g, r.bias)
	MOVL(U32(0x400000), g)
	VPBROADCASTD(g, r.quiet)
	return r
}

// apply leaves the rounded value in the low half of each word of z; NaN stays NaN.
func (r roundBF16) apply(z reg.VecVirtual) {
	t := ZMM()
	VCMPPS(Imm(3), z, z, reg.K3)
	VPSRLD(Imm(16), z, t)
	VPANDD(r.one, t, t)
	VPADDD(r.bias, t, t)
	VPADDD(z, t, t)
	VPORD(r.quiet, z, reg.K3, t)
	VPSRLD(Imm(16), t, z)
}

// transpose512 packs cols <= 16 rows of k words as k rows of 16 words.
func transpose512(stream bool) {
	name := "transpose" + streaming(stream) + "AVX512"
	TEXT(name, NOSPLIT, panelSignature)
	Pragma("noescape")
	Doc(name + " transposes cols <= 16 rows of k words to k rows of 16 words, repeating the last row beyond cols; see panelFunc.")
	table := AllocLocal(16 * 8)
	p, cols, stride := gp("src"), gp("cols"), gp("stride")
	next := GP64()
	for i := range 16 {
		MOVQ(p, table.Offset(8*i))
		if i < 15 {
			LEAQ(Mem{Base: p, Index: stride, Scale: 1}, next)
			CMPQ(cols, Imm(uint64(i+1)))
			CMOVQGT(next, p)
		}
	}
	k, dst, dstStride := gp("k"), gp("dst"), gp("dstStride")
	off := GP64()
	XORQ(off, off)
	SUBQ(Imm(16), k)
	JLT(LabelRef("tail"))
	block := func(masked bool) []reg.VecVirtual {
		r := make([]reg.VecVirtual, 16)
		for i := range r {
			q := GP64()
			r[i] = ZMM()
			MOVQ(table.Offset(8*i), q)
			at := Mem{Base: q, Index: off, Scale: 1}
			if masked {
				VMOVUPS_Z(at, reg.K1, r[i])
			} else {
				VMOVUPS(at, r[i])
			}
		}
		return transpose16(r)
	}
	Label("loop")
	for _, z := range block(false) {
		store(stream, z, Mem{Base: dst})
		ADDQ(dstStride, dst)
	}
	ADDQ(Imm(64), off)
	SUBQ(Imm(16), k)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(Imm(16), k)
	JZ(LabelRef("done"))
	bitmask(k, reg.K1)
	for _, z := range block(true) {
		store(stream, z, Mem{Base: dst})
		ADDQ(dstStride, dst)
		DECQ(k)
		JZ(LabelRef("done"))
	}
	Label("done")
	finish(stream)
}

// transpose16 transposes a 16x16 block of words held in registers: first 4x4
// within the 128-bit lanes, then 4x4 of the lanes.
func transpose16(r []reg.VecVirtual) []reg.VecVirtual {
	var x [4][4]reg.VecVirtual // x[q][c]: lane L holds column 4L+c of rows 4q..4q+3
	for q := range 4 {
		rows := r[4*q:]
		lo01, hi01, lo23, hi23 := ZMM(), ZMM(), ZMM(), ZMM()
		VUNPCKLPS(rows[1], rows[0], lo01)
		VUNPCKHPS(rows[1], rows[0], hi01)
		VUNPCKLPS(rows[3], rows[2], lo23)
		VUNPCKHPS(rows[3], rows[2], hi23)
		for c := range x[q] {
			x[q][c] = ZMM()
		}
		VUNPCKLPD(lo23, lo01, x[q][0])
		VUNPCKHPD(lo23, lo01, x[q][1])
		VUNPCKLPD(hi23, hi01, x[q][2])
		VUNPCKHPD(hi23, hi01, x[q][3])
	}
	out := make([]reg.VecVirtual, 16)
	for c := range 4 {
		var s [4]reg.VecVirtual // halves of the quads 0,1 and 2,3: low, low, high, high
		for i := range s {
			s[i] = ZMM()
		}
		VSHUFF32X4(Imm(0x44), x[1][c], x[0][c], s[0])
		VSHUFF32X4(Imm(0x44), x[3][c], x[2][c], s[1])
		VSHUFF32X4(Imm(0xee), x[1][c], x[0][c], s[2])
		VSHUFF32X4(Imm(0xee), x[3][c], x[2][c], s[3])
		for l := range 4 {
			out[4*l+c] = ZMM()
			h := l / 2 * 2
			VSHUFF32X4(Imm([]uint64{0x88, 0xdd}[l%2]), s[h+1], s[h], out[4*l+c])
		}
	}
	return out
}

const tilesSignature = "func(k, tiles int, src *byte, stride int, dst *byte, tileStride int)"

// tiles512 packs k rows of tiles*12 elements as tiles of 12 words a row.
func tiles512(from string, pairs bool) {
	name, what := "tiles"+from+"AVX512", "float32"
	if pairs {
		name, what = "tilePairs"+from+"AVX512", "bfloat16 pairs"
	}
	TEXT(name, NOSPLIT, tilesSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s packs k rows of %s elements as tiles of 12 %s a row; see tilesFunc.", name, from, what))
	k, tiles, stride, tileStride := gp("k"), gp("tiles"), gp("stride"), gp("tileStride")
	src, dst := gp("src"), gp("dst")
	lo, hi, zero, index := reg.Z0, reg.Z1, reg.Z2, reg.Z31
	ahead := rowsAhead(stride)
	twelve := GP64()
	MOVQ(U32(12), twelve)
	bitmask(twelve, reg.K1)
	if pairs && from == "F32" {
		VPXORD(zero, zero, zero)
		VMOVDQU16(interleaveIndex(), index)
	}
	row := func(label string, odd bool) {
		s, d, n := GP64(), GP64(), GP64()
		MOVQ(src, s)
		MOVQ(dst, d)
		MOVQ(tiles, n)
		Label(label)
		at, next := Mem{Base: s}, Mem{Base: s, Index: stride, Scale: 1}
		PREFETCHT0(Mem{Base: s, Index: ahead, Scale: 1})
		if pairs && !odd {
			p := GP64()
			LEAQ(next, p)
			PREFETCHT0(Mem{Base: p, Index: ahead, Scale: 1})
		}
		switch {
		case !pairs:
			VMOVUPS(load512(from, at, reg.K1), reg.K1, Mem{Base: d})
		case from == "F32":
			VMOVUPS_Z(at, reg.K1, lo)
			if odd {
				vcvtne2ps2bf16(lo, zero, lo)
			} else {
				VMOVUPS_Z(next, reg.K1, hi)
				vcvtne2ps2bf16(lo, hi, lo)
			}
			VPERMW(lo, index, lo)
			VMOVDQU32(lo, reg.K1, Mem{Base: d})
		default:
			VPMOVZXWD_Z(at, reg.K1, lo)
			if !odd {
				VPMOVZXWD_Z(next, reg.K1, hi)
				VPSLLD(Imm(16), hi, hi)
				VPORD(hi, lo, lo)
			}
			VMOVDQU32(lo, reg.K1, Mem{Base: d})
		}
		ADDQ(Imm(uint64(12*size(from))), s)
		ADDQ(tileStride, d)
		DECQ(n)
		JNZ(LabelRef(label))
		ADDQ(Imm(48), dst)
	}
	if !pairs {
		Label("loop")
		row("tile", false)
		ADDQ(stride, src)
		DECQ(k)
		JNZ(LabelRef("loop"))
		VZEROUPPER()
		RET()
		return
	}
	SUBQ(Imm(2), k)
	JLT(LabelRef("last"))
	Label("loop")
	row("tile", false)
	LEAQ(Mem{Base: src, Index: stride, Scale: 2}, src)
	SUBQ(Imm(2), k)
	JGE(LabelRef("loop"))
	Label("last")
	ADDQ(Imm(2), k)
	JZ(LabelRef("done"))
	row("lastTile", true)
	Label("done")
	VZEROUPPER()
	RET()
}

func pack512() {
	for _, from := range []string{"F32", "BF16", "F16"} {
		tiles512(from, false)
	}
	for _, from := range []string{"F32", "BF16"} {
		tiles512(from, true)
	}
	for _, v := range []struct {
		halves int
		stream bool
	}{{2, false}, {2, true}, {1, false}} {
		for _, from := range []string{"F32", "BF16", "F16"} {
			panel512(from, v.halves, v.stream)
		}
		for _, from := range []string{"F32", "BF16"} {
			pairs512(from, v.halves, v.stream)
		}
	}
	rows512("BF16", "F32")
	rows512("F16", "F32")
	rows512("F32", "BF16")
	rows512("F32", "F16")
	transpose512(false)
	transpose512(true)
}
