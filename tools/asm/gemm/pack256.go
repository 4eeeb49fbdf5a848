package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// load256 reads 8 elements at m as float32.
func load256(from string, m Mem) reg.VecVirtual {
	y := YMM()
	switch from {
	case "F32":
		VMOVUPS(m, y)
	case "BF16":
		VPMOVZXWD(m, y)
		VPSLLD(Imm(16), y, y)
	case "F16":
		VCVTPH2PS(m, y)
	}
	return y
}

// panel256 packs k rows of 16 elements as float32.
func panel256(from string, stream bool) {
	name := fmt.Sprintf("panel%s16%sAVX2", from, streaming(stream))
	TEXT(name, NOSPLIT, panelSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s copies k rows of 16 %s elements to rows of 16 float32, whatever cols is; see panelFunc.", name, from))
	k, src, stride, dst, dstStride := gp("k"), gp("src"), gp("stride"), gp("dst"), gp("dstStride")
	Label("loop")
	for h := range 2 {
		store(stream, load256(from, Mem{Base: src, Disp: 8 * h * size(from)}), Mem{Base: dst, Disp: 32 * h})
	}
	ADDQ(stride, src)
	ADDQ(dstStride, dst)
	DECQ(k)
	JNZ(LabelRef("loop"))
	finish(stream)
}

// tiles256 packs k rows of tiles*6 elements as tiles of 6 float32 a row.
func tiles256(from string) {
	name := "tiles" + from + "AVX2"
	TEXT(name, NOSPLIT, tilesSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s packs k rows of %s elements as tiles of 6 float32 a row; see tilesFunc.", name, from))
	k, tiles, stride, tileStride := gp("k"), gp("tiles"), gp("stride"), gp("tileStride")
	src, dst := gp("src"), gp("dst")
	Label("loop")
	s, d, n := GP64(), GP64(), GP64()
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(tiles, n)
	Label("tile")
	if from == "F32" {
		four, two := XMM(), XMM()
		VMOVUPS(Mem{Base: s}, four)
		VMOVQ(Mem{Base: s, Disp: 16}, two)
		VMOVUPS(four, Mem{Base: d})
		VMOVQ(two, Mem{Base: d, Disp: 16})
	} else {
		x, y, high := XMM(), YMM(), XMM()
		VMOVQ(Mem{Base: s}, x)
		VPINSRD(Imm(2), Mem{Base: s, Disp: 8}, x, x)
		if from == "BF16" {
			VPMOVZXWD(x, y)
			VPSLLD(Imm(16), y, y)
		} else {
			VCVTPH2PS(x, y)
		}
		VMOVUPS(y.AsX(), Mem{Base: d})
		VEXTRACTF128(Imm(1), y, high)
		VMOVQ(high, Mem{Base: d, Disp: 16})
	}
	ADDQ(Imm(uint64(6*size(from))), s)
	ADDQ(tileStride, d)
	DECQ(n)
	JNZ(LabelRef("tile"))
	ADDQ(Imm(24), dst)
	ADDQ(stride, src)
	DECQ(k)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// rows256 converts rows of a multiple of 8 elements from one type to another.
func rows256(from, to string) {
	name := fmt.Sprintf("rows%sTo%sAVX2", from, to)
	TEXT(name, NOSPLIT, rowsSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s converts rows of cols elements, a positive multiple of 8, rounding to nearest even; see rowsFunc.", name))
	rows, cols, src, stride, dst, dstStride := gp("rows"), gp("cols"), gp("src"), gp("stride"), gp("dst"), gp("dstStride")
	one, bias, quiet := YMM(), YMM(), YMM()
	if to == "BF16" {
		for _, c := range []struct {
			bits uint32
			y    reg.VecVirtual
		}{{1, one}, {0x7fff, bias}, {0x400000, quiet}} {
			g, x := GP32(), XMM()
			MOVL(U32(c.bits), g)
			VMOVD(g, x)
			VPBROADCASTD(x, c.y)
		}
	}
	Label("row")
	s, d, n := GP64(), GP64(), GP64()
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(cols, n)
	Label("loop")
	y := load256(from, Mem{Base: s})
	switch to {
	case "F32":
		VMOVUPS(y, Mem{Base: d})
	case "F16":
		VCVTPS2PH(Imm(0), y, Mem{Base: d})
	case "BF16":
		t, nan, high := YMM(), YMM(), XMM()
		VPSRLD(Imm(16), y, t)
		VPAND(one, t, t)
		VPADDD(bias, t, t)
		VPADDD(y, t, t)
		VCMPPS(Imm(3), y, y, nan)
		VPOR(quiet, y, y)
		VBLENDVPS(nan, y, t, t)
		VPSRLD(Imm(16), t, t)
		VEXTRACTI128(Imm(1), t, high)
		VPACKUSDW(high, t.AsX(), high)
		VMOVDQU(high, Mem{Base: d})
	}
	ADDQ(Imm(uint64(8*size(from))), s)
	ADDQ(Imm(uint64(8*size(to))), d)
	SUBQ(Imm(8), n)
	JNZ(LabelRef("loop"))
	ADDQ(stride, src)
	ADDQ(dstStride, dst)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// transpose256 packs 8 rows of a multiple of 8 words as rows of 8 words.
func transpose256() {
	name := "transposeAVX2"
	TEXT(name, NOSPLIT, panelSignature)
	Pragma("noescape")
	Doc(name + " transposes 8 rows of k words, a positive multiple of 8, to k rows of 8 words, whatever cols is; see panelFunc.")
	k, src, dst, dstStride := gp("k"), gp("src"), gp("dst"), gp("dstStride")
	ar := newRows(8, src, gp("stride"))
	Label("loop")
	r := make([]reg.VecVirtual, 8)
	for i := range r {
		r[i] = YMM()
		VMOVUPS(ar.at(i), r[i])
	}
	for _, y := range transpose8(r) {
		VMOVUPS(y, Mem{Base: dst})
		ADDQ(dstStride, dst)
	}
	for _, b := range ar.base {
		ADDQ(Imm(32), b)
	}
	SUBQ(Imm(8), k)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// transpose8 transposes an 8x8 block of words: 4x4 within the lanes, then 2x2 of the lanes.
func transpose8(r []reg.VecVirtual) []reg.VecVirtual {
	var x [2][4]reg.VecVirtual
	for q := range 2 {
		rows := r[4*q:]
		lo01, hi01, lo23, hi23 := YMM(), YMM(), YMM(), YMM()
		VUNPCKLPS(rows[1], rows[0], lo01)
		VUNPCKHPS(rows[1], rows[0], hi01)
		VUNPCKLPS(rows[3], rows[2], lo23)
		VUNPCKHPS(rows[3], rows[2], hi23)
		for c := range x[q] {
			x[q][c] = YMM()
		}
		VUNPCKLPD(lo23, lo01, x[q][0])
		VUNPCKHPD(lo23, lo01, x[q][1])
		VUNPCKLPD(hi23, hi01, x[q][2])
		VUNPCKHPD(hi23, hi01, x[q][3])
	}
	out := make([]reg.VecVirtual, 8)
	for c := range 4 {
		out[c], out[4+c] = YMM(), YMM()
		VPERM2F128(Imm(0x20), x[1][c], x[0][c], out[c])
		VPERM2F128(Imm(0x31), x[1][c], x[0][c], out[4+c])
	}
	return out
}

func pack256() {
	for _, from := range []string{"F32", "BF16", "F16"} {
		panel256(from, false)
		panel256(from, true)
		tiles256(from)
	}
	rows256("BF16", "F32")
	rows256("F16", "F32")
	rows256("F32", "BF16")
	rows256("F32", "F16")
	transpose256()
}
