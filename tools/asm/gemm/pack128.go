package main

import (
	"fmt"

	"github.com/snug-ml/snug/tools/asm/arm64"
)

const (
	panelArguments = "k, cols int, src *byte, stride int, dst *byte, dstStride int"
	rowsArguments  = "rows, cols int, src *byte, stride int, dst *byte, dstStride int"
	tilesArguments = "k, tiles int, src *byte, stride int, dst *byte, tileStride int"
)

// arguments loads six arguments into R0 to R5.
func arguments(w *arm64.Writer, names ...string) {
	for i, name := range names {
		w.Go("MOVD %s+%d(FP), R%d", name, 8*i, i)
	}
}

// load128 reads 4 elements at off(p) as float32.
func load128(w *arm64.Writer, from string, off int, p string, v int) {
	switch from {
	case "F32":
		w.Go("FMOVQ %d(%s), F%d", off, p, v)
	case "BF16":
		w.Go("FMOVD %d(%s), F%d", off, p, v)
		w.V("SHLL16", v, v)
	case "F16":
		w.Go("FMOVD %d(%s), F%d", off, p, v)
		w.V("FCVTL", v, v)
	}
}

// panel128 packs k rows of 16 elements as float32.
func panel128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("panel%s16NEON", from), panelArguments,
		fmt.Sprintf("copies k rows of 16 %s elements to rows of 16 float32, whatever cols is; see panelFunc.", from), 0)
	arguments(w, "k", "cols", "src", "stride", "dst", "dstStride")
	w.Label("loop")
	for j := range 4 {
		load128(w, from, 4*j*size(from), "R2", j)
	}
	w.Go("FSTPQ (F0, F1), (R4)")
	w.Go("FSTPQ (F2, F3), 32(R4)")
	w.Go("ADD R3, R2")
	w.Go("ADD R5, R4")
	w.Go("SUBS $1, R0")
	w.Go("BNE loop")
	w.Go("RET")
}

// tiles128 packs k rows of tiles*6 elements as tiles of 6 float32 a row.
func tiles128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("tiles%sNEON", from), tilesArguments,
		fmt.Sprintf("packs k rows of %s elements as tiles of 6 float32 a row; see tilesFunc.", from), 0)
	arguments(w, "k", "tiles", "src", "stride", "dst", "tileStride")
	w.Label("loop")
	w.Go("MOVD R1, R6")
	w.Go("MOVD R2, R7")
	w.Go("MOVD R4, R8")
	w.Label("tile")
	load128(w, from, 0, "R7", 0)
	switch from {
	case "F32":
		w.Go("FMOVD 16(R7), F1")
	case "BF16":
		w.Go("FMOVS 8(R7), F1")
		w.V("SHLL16", 1, 1)
	case "F16":
		w.Go("FMOVS 8(R7), F1")
		w.V("FCVTL", 1, 1)
	}
	w.Go("FMOVQ F0, (R8)")
	w.Go("FMOVD F1, 16(R8)")
	w.Go("ADD $%d, R7", 6*size(from))
	w.Go("ADD R5, R8")
	w.Go("SUBS $1, R6")
	w.Go("BNE tile")
	w.Go("ADD $24, R4")
	w.Go("ADD R3, R2")
	w.Go("SUBS $1, R0")
	w.Go("BNE loop")
	w.Go("RET")
}

// bf16 reads 8 elements at off(p) as bfloat16; of them, only count if that is less.
func bf16(w *arm64.Writer, from string, off int, p string, v, count int) {
	switch {
	case from == "BF16" && count == 8:
		w.Go("FMOVQ %d(%s), F%d", off, p, v)
	case from == "BF16":
		w.Go("FMOVD %d(%s), F%d", off, p, v)
		w.Go("FMOVS %d(%s), F%d", off+8, p, v+1)
		w.V("ZIP1D", v, v, v+1)
	default:
		w.Go("FMOVQ %d(%s), F%d", off, p, v+1)
		w.Go("%s %d(%s), F%d", map[int]string{8: "FMOVQ", 6: "FMOVD"}[count], off+16, p, v+2)
		w.V("BFCVTN", v, v+1)
		w.V("BFCVTN2", v, v+2)
	}
}

// eachPair emits body for every pair of k rows in R0 and, with no second row, for
// what is left if k is odd; next moves on to the next pair.
func eachPair(w *arm64.Writer, body func(odd bool), next func()) {
	w.Go("SUBS $2, R0")
	w.Go("BLT last")
	w.Label("loop")
	w.Go("ADD R3, R2, R9")
	body(false)
	w.Go("ADD R3<<1, R2, R2")
	next()
	w.Go("SUBS $2, R0")
	w.Go("BGE loop")
	w.Label("last")
	w.Go("ADDS $2, R0")
	w.Go("BEQ done")
	body(true)
	w.Label("done")
	w.Go("RET")
}

// pairs128 packs ceil(k/2) pairs of rows of 16 elements as bfloat16 neighbors in k.
func pairs128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("pairs%s16NEON", from), panelArguments,
		fmt.Sprintf("interleaves pairs of k rows of 16 %s elements to rows of 16 bfloat16 pairs, zero beyond k, whatever cols is; see panelFunc.", from), 0)
	arguments(w, "k", "cols", "src", "stride", "dst", "dstStride")
	eachPair(w, func(odd bool) {
		for half := range 2 {
			const upper, lower = 0, 3
			bf16(w, from, 8*half*size(from), "R2", upper, 8)
			if odd {
				w.V("MOVI0", lower)
			} else {
				bf16(w, from, 8*half*size(from), "R9", lower, 8)
			}
			w.V("ZIP1H", 6, upper, lower)
			w.V("ZIP2H", 7, upper, lower)
			w.Go("FSTPQ (F6, F7), %d(R4)", 32*half)
		}
	}, func() { w.Go("ADD R5, R4") })
}

// tilePairs128 packs k rows of tiles*6 elements as tiles of 6 pairs a row.
func tilePairs128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("tilePairs%sNEON", from), tilesArguments,
		fmt.Sprintf("packs k rows of %s elements as tiles of 6 bfloat16 pairs a row, zero beyond k; see tilesFunc.", from), 0)
	arguments(w, "k", "tiles", "src", "stride", "dst", "tileStride")
	eachPair(w, func(odd bool) {
		tile := w.NewLabel("tile")
		w.Go("MOVD R1, R6")
		w.Go("MOVD R2, R7")
		w.Go("MOVD R4, R8")
		w.Label(tile)
		const upper, lower = 0, 3
		bf16(w, from, 0, "R7", upper, 6)
		if odd {
			w.V("MOVI0", lower)
		} else {
			bf16(w, from, 0, "R9", lower, 6)
			w.Go("ADD $%d, R9", 6*size(from))
		}
		w.V("ZIP1H", 6, upper, lower)
		w.V("ZIP2H", 7, upper, lower)
		w.Go("FMOVQ F6, (R8)")
		w.Go("FMOVD F7, 16(R8)")
		w.Go("ADD $%d, R7", 6*size(from))
		w.Go("ADD R5, R8")
		w.Go("SUBS $1, R6")
		w.Go("BNE %s", tile)
	}, func() { w.Go("ADD $24, R4") })
}

// eachQuad emits body for every quad of k rows in R0, a multiple of 4, which begin at
// R2 and R9 to R11; next moves on to the next quad.
func eachQuad(w *arm64.Writer, body, next func()) {
	w.Label("loop")
	w.Go("ADD R3, R2, R9")
	w.Go("ADD R3, R9, R10")
	w.Go("ADD R3, R10, R11")
	body()
	w.Go("ADD R3<<2, R2, R2")
	next()
	w.Go("SUBS $4, R0")
	w.Go("BNE loop")
	w.Go("RET")
}

// quadColumns reads count elements of each of the four rows at off and leaves their
// columns as quads in the registers from 16 on, two in each.
func quadColumns(w *arm64.Writer, from string, off, count int, rows ...string) {
	for i, p := range rows {
		bf16(w, from, off, p, 3*i, count)
	}
	w.V("ZIP1H", 20, 0, 3)
	w.V("ZIP1H", 21, 6, 9)
	w.V("ZIP2H", 22, 0, 3)
	w.V("ZIP2H", 23, 6, 9)
	w.V("ZIP1S", 16, 20, 21)
	w.V("ZIP2S", 17, 20, 21)
	w.V("ZIP1S", 18, 22, 23)
	if count > 6 {
		w.V("ZIP2S", 19, 22, 23)
	}
}

// quadPanel128 packs quads of rows of 16 elements as bfloat16 neighbors in k.
func quadPanel128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("quads%s16NEON", from), panelArguments,
		fmt.Sprintf("interleaves quads of k rows, a positive multiple of 4, of 16 %s elements to rows of 16 bfloat16 quads, whatever cols is; see panelFunc.", from), 0)
	arguments(w, "k", "cols", "src", "stride", "dst", "dstStride")
	eachQuad(w, func() {
		for half := range 2 {
			quadColumns(w, from, 8*half*size(from), 8, "R2", "R9", "R10", "R11")
			w.Go("FSTPQ (F16, F17), %d(R4)", 64*half)
			w.Go("FSTPQ (F18, F19), %d(R4)", 64*half+32)
		}
	}, func() { w.Go("ADD R5, R4") })
}

// tileQuads128 packs k rows of tiles*6 elements as tiles of 6 quads a row.
func tileQuads128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("tileQuads%sNEON", from), tilesArguments,
		fmt.Sprintf("packs k rows, a positive multiple of 4, of %s elements as tiles of 6 bfloat16 quads a row; see tilesFunc.", from), 0)
	arguments(w, "k", "tiles", "src", "stride", "dst", "tileStride")
	eachQuad(w, func() {
		w.Go("MOVD R1, R6")
		w.Go("MOVD R2, R7")
		w.Go("MOVD R4, R8")
		w.Label("tile")
		quadColumns(w, from, 0, 6, "R7", "R9", "R10", "R11")
		w.Go("FSTPQ (F16, F17), (R8)")
		w.Go("FMOVQ F18, 32(R8)")
		for _, p := range []string{"R7", "R9", "R10", "R11"} {
			w.Go("ADD $%d, %s", 6*size(from), p)
		}
		w.Go("ADD R5, R8")
		w.Go("SUBS $1, R6")
		w.Go("BNE tile")
	}, func() { w.Go("ADD $48, R4") })
}

// rowQuads128 packs up to 6 rows along k as a tile of 6 quads a row.
func rowQuads128(w *arm64.Writer, from string) {
	w.Function(fmt.Sprintf("rowQuads%sNEON", from), "k, rows int, src *byte, stride int, dst *byte",
		fmt.Sprintf("packs k %s elements, a positive multiple of 4, of up to 6 rows as a tile of 6 bfloat16 quads a row, the last row again in place of those beyond rows; see rowTileFunc.", from), 0)
	arguments(w, "k", "rows", "src", "stride", "dst")
	row := func(i int) string { return fmt.Sprintf("R%d", 6+i) }
	w.Go("MOVD R2, %s", row(0))
	for i := 1; i < neonRows; i++ {
		w.Go("CMP $%d, R1", i)
		w.Go("CSEL GT, R3, ZR, R5")
		w.Go("ADD R5, %s, %s", row(i-1), row(i))
	}
	w.Label("loop")
	for i := 0; i < neonRows; i += 2 {
		v := 8 * i / 2
		if from == "BF16" {
			w.Go("FMOVD.P 8(%s), F%d", row(i), v)
			w.Go("FMOVD.P 8(%s), F%d", row(i+1), v+1)
			w.V("ZIP1D", v, v, v+1)
		} else {
			w.Go("FMOVQ.P 16(%s), F%d", row(i), v+1)
			w.Go("FMOVQ.P 16(%s), F%d", row(i+1), v+2)
			w.V("BFCVTN", v, v+1)
			w.V("BFCVTN2", v, v+2)
		}
		w.Go("FMOVQ.P F%d, 16(R4)", v)
	}
	w.Go("SUBS $4, R0")
	w.Go("BNE loop")
	w.Go("RET")
}

// rows128 converts rows of a multiple of 8 elements from one type to another; to
// bfloat16 by BFCVTN, of FEAT_BF16, if so told.
func rows128(w *arm64.Writer, from, to string, bfcvtn bool) {
	name := fmt.Sprintf("rows%sTo%sNEON", from, to)
	if bfcvtn {
		name = fmt.Sprintf("rows%sTo%sBFCVTN", from, to)
	}
	w.Function(name, rowsArguments,
		"converts rows of cols elements, a positive multiple of 8, rounding to nearest even; see rowsFunc.", 0)
	arguments(w, "rows", "cols", "src", "stride", "dst", "dstStride")
	const one, bias, quiet = 29, 30, 31
	if to == "BF16" && !bfcvtn {
		for _, c := range []struct{ v, bits int }{{one, 1}, {bias, 0x7fff}, {quiet, 0x400000}} {
			w.Go("MOVD $%d, R6", c.bits)
			w.V("DUPW", c.v, 6)
		}
	}
	w.Label("row")
	w.Go("MOVD R2, R6")
	w.Go("MOVD R4, R7")
	w.Go("MOVD R1, R8")
	w.Label("loop")
	load128(w, from, 0, "R6", 0)
	load128(w, from, 4*size(from), "R6", 1)
	switch {
	case to == "F32":
		w.Go("FSTPQ (F0, F1), (R7)")
	case bfcvtn:
		w.V("BFCVTN", 2, 0)
		w.V("BFCVTN2", 2, 1)
		w.Go("FMOVQ F2, (R7)")
	case to == "F16":
		w.V("FCVTN", 2, 0)
		w.V("FCVTN2", 2, 1)
		w.Go("FMOVQ F2, (R7)")
	case to == "BF16":
		for v := range 2 {
			sum, number := 2+v, 4+v
			w.V("USHRS", sum, v, 16)
			w.V("ANDB", sum, sum, one)
			w.V("ADDS", sum, sum, bias)
			w.V("ADDS", sum, sum, v)
			w.V("FCMEQS", number, v, v)
			w.V("ORRB", v, v, quiet)
			w.V("BSLB", number, sum, v)
		}
		w.V("UZP2H", 4, 4, 5)
		w.Go("FMOVQ F4, (R7)")
	}
	w.Go("ADD $%d, R6", 8*size(from))
	w.Go("ADD $%d, R7", 8*size(to))
	w.Go("SUBS $8, R8")
	w.Go("BNE loop")
	w.Go("ADD R3, R2")
	w.Go("ADD R5, R4")
	w.Go("SUBS $1, R0")
	w.Go("BNE row")
	w.Go("RET")
}

// eightRows points a register to each of eight rows, R3 bytes apart from R2 on, and names it.
func eightRows(w *arm64.Writer) (row func(i int) string) {
	row = func(i int) string { return fmt.Sprintf("R%d", 6+i) }
	w.Go("MOVD R2, %s", row(0))
	for i := 1; i < 8; i++ {
		w.Go("ADD R3, %s, %s", row(i-1), row(i))
	}
	return row
}

// transpose128 packs 8 rows of a multiple of 4 words as rows of 8 words.
func transpose128(w *arm64.Writer) {
	w.Function("transposeNEON", panelArguments,
		"transposes 8 rows of k words, a positive multiple of 4, to k rows of 8 words, whatever cols is; see panelFunc.", 0)
	arguments(w, "k", "cols", "src", "stride", "dst", "dstStride")
	row := eightRows(w)
	w.Label("loop")
	for i := range 8 {
		w.Go("FMOVQ (%s), F%d", row(i), i)
		w.Go("ADD $16, %s", row(i))
	}
	for half := range 2 {
		in, mid, out := 4*half, 8+4*half, 16+4*half
		w.V("TRN1S", mid, in, in+1)
		w.V("TRN2S", mid+1, in, in+1)
		w.V("TRN1S", mid+2, in+2, in+3)
		w.V("TRN2S", mid+3, in+2, in+3)
		w.V("TRN1D", out, mid, mid+2)
		w.V("TRN1D", out+1, mid+1, mid+3)
		w.V("TRN2D", out+2, mid, mid+2)
		w.V("TRN2D", out+3, mid+1, mid+3)
	}
	for c := range 4 {
		w.Go("FSTPQ (F%d, F%d), (R4)", 16+c, 20+c)
		w.Go("ADD R5, R4")
	}
	w.Go("SUBS $4, R0")
	w.Go("BNE loop")
	w.Go("RET")
}

// transposeQuads128 packs 8 rows of a multiple of 2 words of quads as rows of 8 words.
func transposeQuads128(w *arm64.Writer) {
	w.Function("transposeQuadsNEON", panelArguments,
		"transposes 8 rows of k words of 8 bytes, k a positive multiple of 2, to k rows of 8 words, whatever cols is; see panelFunc.", 0)
	arguments(w, "k", "cols", "src", "stride", "dst", "dstStride")
	row := eightRows(w)
	w.Label("loop")
	for i := range 8 {
		w.Go("FMOVQ.P 16(%s), F%d", row(i), i)
	}
	for i := 0; i < 8; i += 2 {
		w.V("ZIP1D", 16+i/2, i, i+1)
		w.V("ZIP2D", 20+i/2, i, i+1)
	}
	for word := range 2 {
		w.Go("FSTPQ (F%d, F%d), (R4)", 16+4*word, 17+4*word)
		w.Go("FSTPQ (F%d, F%d), 32(R4)", 18+4*word, 19+4*word)
		w.Go("ADD R5, R4")
	}
	w.Go("SUBS $2, R0")
	w.Go("BNE loop")
	w.Go("RET")
}

func pack128(w *arm64.Writer) {
	for _, from := range []string{"F32", "BF16", "F16"} {
		panel128(w, from)
		tiles128(w, from)
	}
	for _, from := range []string{"F32", "BF16"} {
		pairs128(w, from)
		tilePairs128(w, from)
		quadPanel128(w, from)
		tileQuads128(w, from)
		rowQuads128(w, from)
	}
	rows128(w, "BF16", "F32", false)
	rows128(w, "F16", "F32", false)
	rows128(w, "F32", "BF16", false)
	rows128(w, "F32", "BF16", true)
	rows128(w, "F32", "F16", false)
	transpose128(w)
	transposeQuads128(w)
}
