package main

import (
	"fmt"

	"github.com/snug-ml/snug/tools/asm/arm64"
)

// The NEON kernels keep a tile of 6 rows by 16 columns in 24 of the 32 vector
// registers. A factor of A is loaded as one element, which takes a load unit and
// nothing else (a load that spreads it over the lanes also takes a vector unit
// on most cores), and multiplied by element.
const (
	neonRows, neonCols = 6, 16
	neonB              = 24 // registers of a row of B: 24 to 27
	neonA              = 28 // registers of the factors: 28 to 31
)

// The general registers of a NEON kernel. R18 belongs to the platform, R27 and
// R28 to Go.
const (
	regTiles, regK, regA, regTA, regRSA, regCSA = "R0", "R1", "R2", "R3", "R4", "R5"
	regB, regBS, regC, regLDC                   = "R6", "R7", "R8", "R9"
	regAhead, regStep, regOffset, regLeft       = "R10", "R11", "R12", "R13"
	regRow, regTmp, regN, regCount              = "R14", "R15", "R25", "R26"
)

const kernelArguments = "tiles, k int, a *byte, ta, rsa, csa int, b *byte, bs int, c *byte, ldc, n, acc int, bias, ahead *byte, step int"

// neonRow is the register that points to row i of A.
func neonRow(i int) string { return fmt.Sprintf("R%d", 19+i) }

// kernel128 writes the kernel for tiles of mr <= 6 rows by 16 columns, of float32
// words or, with the instructions of FEAT_BF16, of pairs of bfloat16.
func kernel128(w *arm64.Writer, mr int, pairs bool) {
	name, what, multiply := fmt.Sprintf("kernF32x%dNEON", mr), "float32 words", "FMLAE"
	if pairs {
		name, what, multiply = fmt.Sprintf("kernBF16x%dNEON", mr), "bfloat16 pairs", "BFDOTE"
	}
	w.Function(name, kernelArguments,
		fmt.Sprintf("multiplies %s in tiles of %d rows by 16 columns; see kernelFunc.", what, mr), 0)
	acc := accumulator128
	for _, arg := range [][2]string{{"tiles", regTiles}, {"a", regA}, {"ta", regTA}, {"rsa", regRSA}, {"csa", regCSA},
		{"bs", regBS}, {"c", regC}, {"ldc", regLDC}, {"n", regN}, {"ahead", regAhead}, {"step", regStep}} {
		load(w, arg[0], arg[1])
	}
	beginTile(w, mr, func(i int) {
		for j := range 4 {
			w.V("MOVI0", acc(i, j))
		}
	})
	w.Go("MOVD %s, %s", regA, neonRow(0))
	for i := 1; i < mr; i++ {
		w.Go("ADD %s, %s, %s", regRSA, neonRow(i-1), neonRow(i))
	}
	w.Go("MOVD ZR, %s", regOffset)
	load(w, "b", regB)
	load(w, "k", regLeft)
	step := func() {
		w.Go("FLDPQ (%s), (F%d, F%d)", regB, neonB, neonB+1)
		w.Go("FLDPQ 32(%s), (F%d, F%d)", regB, neonB+2, neonB+3)
		for i := range mr {
			x := neonA + i%4
			w.Go("FMOVS (%s)(%s), F%d", neonRow(i), regOffset, x)
			for j := range 4 {
				w.V(multiply, acc(i, j), neonB+j, x)
			}
		}
		w.Go("ADD %s, %s", regBS, regB)
		w.Go("ADD %s, %s", regCSA, regOffset)
	}
	w.Go("SUBS $4, %s", regLeft)
	w.Go("BLT rest")
	w.Label("loop")
	for range 4 {
		step()
	}
	w.Go("PRFM (%s), PLDL2KEEP", regAhead)
	w.Go("ADD %s, %s", regStep, regAhead)
	w.Go("SUBS $4, %s", regLeft)
	w.Go("BGE loop")
	w.Label("rest")
	w.Go("ADDS $4, %s", regLeft)
	w.Go("BEQ write")
	w.Label("one")
	step()
	w.Go("SUBS $1, %s", regLeft)
	w.Go("BNE one")

	w.Label("write")
	write128(w, mr)
}

// accumulator128 is the register of columns 4j to 4j+3 of row i.
func accumulator128(i, j int) int { return 4*i + j }

// write128 adds C and the bias to the tile and stores it: whole rows, or the first n
// columns in pieces of 8, 4, 2 and 1. It ends the kernel.
func write128(w *arm64.Writer, mr int) {
	acc := accumulator128
	w.Go("CMP $%d, %s", neonCols, regN)
	w.Go("BLT edge")
	load(w, "acc", regTmp)
	w.Go("CBZ %s, noC", regTmp)
	w.Go("MOVD %s, %s", regC, regRow)
	for i := range mr {
		addRow(w, regRow, acc(i, 0))
		w.Go("ADD %s, %s", regLDC, regRow)
	}
	w.Label("noC")
	load(w, "bias", regTmp)
	w.Go("CBZ %s, noBias", regTmp)
	w.Go("FLDPQ (%s), (F%d, F%d)", regTmp, neonB, neonB+1)
	w.Go("FLDPQ 32(%s), (F%d, F%d)", regTmp, neonB+2, neonB+3)
	for i := range mr {
		for j := range 4 {
			w.V("FADDS", acc(i, j), acc(i, j), neonB+j)
		}
	}
	w.Label("noBias")
	w.Go("MOVD %s, %s", regC, regRow)
	for i := range mr {
		w.Go("FSTPQ (F%d, F%d), (%s)", acc(i, 0), acc(i, 1), regRow)
		w.Go("FSTPQ (F%d, F%d), 32(%s)", acc(i, 2), acc(i, 3), regRow)
		w.Go("ADD %s, %s", regLDC, regRow)
	}
	w.Label("next")
	w.Go("ADD %s, %s", regTA, regA)
	w.Go("MOVD %s, %s", regRow, regC)
	w.Go("SUBS $1, %s", regTiles)
	w.Go("BNE tile")
	w.Label("done")
	w.Go("RET")

	w.Label("edge")
	w.Go("MOVD %s, %s", regC, regRow)
	for i := range mr {
		w.Go("MOVD %s, %s", regRow, regTmp)
		load(w, "bias", regOffset)
		for bit := 3; bit >= 0; bit-- {
			edge(w, bit, acc(i, 0))
		}
		w.Go("ADD %s, %s", regLDC, regRow)
	}
	w.Go("B next")
}

// quads128 writes the kernel for tiles of mr <= 6 rows by 16 columns of quads of
// bfloat16. An accumulator of BFMMLA holds two rows of two columns. B is packed, a word
// has 16 columns. So is A, of a word 6 rows of a quad each, zero or of no meaning beyond
// mr: the strides within a tile are not read. Or it is in rows, of contiguous words, and
// two of them are joined in a register; the last of an odd number with itself.
func quads128(w *arm64.Writer, mr int, inRows bool) {
	name, what := "kernQuads", "packed bfloat16 quads"
	if inRows {
		name, what = "kernQuadRows", "rows of bfloat16 quads by packed ones"
	}
	w.Function(fmt.Sprintf("%sx%dNEON", name, mr), kernelArguments,
		fmt.Sprintf("multiplies %s in tiles of %d rows by 16 columns; see kernelFunc.", what, mr), 0)
	const a, b, rowA, rowB = 24, 28, neonRows * 8, neonCols * 8
	const second = a + 3 // a row to join
	pairs := (mr + 1) / 2
	// acc is the register of columns 2j and 2j+1 of rows 2i and 2i+1: where write128 has
	// four columns of one of the rows.
	acc := func(i, j int) int { return accumulator128(2*i+j%2, j/2) }
	for _, arg := range [][2]string{{"tiles", regTiles}, {"a", regA}, {"ta", regTA},
		{"c", regC}, {"ldc", regLDC}, {"n", regN}, {"ahead", regAhead}, {"step", regStep}} {
		load(w, arg[0], arg[1])
	}
	beginTile(w, mr, func(int) {})
	for i := range pairs {
		for j := range 8 {
			w.V("MOVI0", acc(i, j))
		}
	}
	row := neonRow(0)
	w.Go("MOVD %s, %s", regA, row)
	if inRows {
		load(w, "rsa", regRSA)
		for i := 1; i < mr; i++ {
			w.Go("ADD %s, %s, %s", regRSA, neonRow(i-1), neonRow(i))
		}
	}
	load(w, "b", regB)
	load(w, "k", regLeft)
	step := func(word int) {
		for i := range pairs {
			if !inRows {
				w.Go("FMOVQ %d(%s), F%d", word*rowA+16*i, row, a+i)
				continue
			}
			w.Go("FMOVD.P 8(%s), F%d", neonRow(2*i), a+i)
			if 2*i+1 == mr {
				w.V("ZIP1D", a+i, a+i, a+i)
				continue
			}
			w.Go("FMOVD.P 8(%s), F%d", neonRow(2*i+1), second)
			w.V("ZIP1D", a+i, a+i, second)
		}
		for j := 0; j < 8; j += 2 {
			v := b + j%4
			w.Go("FLDPQ %d(%s), (F%d, F%d)", word*rowB+16*j, regB, v, v+1)
			for i := range pairs {
				w.V("BFMMLA", acc(i, j), a+i, v)
				w.V("BFMMLA", acc(i, j+1), a+i, v+1)
			}
		}
	}
	w.Go("SUBS $4, %s", regLeft)
	w.Go("BLT rest")
	w.Label("loop")
	for word := range 4 {
		step(word)
	}
	if !inRows {
		w.Go("ADD $%d, %s", 4*rowA, row)
	}
	w.Go("ADD $%d, %s", 4*rowB, regB)
	w.Go("PRFM (%s), PLDL2KEEP", regAhead)
	w.Go("ADD %s, %s", regStep, regAhead)
	w.Go("SUBS $4, %s", regLeft)
	w.Go("BGE loop")
	w.Label("rest")
	w.Go("ADDS $4, %s", regLeft)
	w.Go("BEQ rows")
	w.Label("one")
	step(0)
	if !inRows {
		w.Go("ADD $%d, %s", rowA, row)
	}
	w.Go("ADD $%d, %s", rowB, regB)
	w.Go("SUBS $1, %s", regLeft)
	w.Go("BNE one")

	w.Label("rows")
	for i := range pairs {
		for j := range 4 {
			w.V("ZIP1D", a+j, acc(i, 2*j), acc(i, 2*j+1))
			w.V("ZIP2D", acc(i, 2*j+1), acc(i, 2*j), acc(i, 2*j+1))
		}
		for j := range 4 {
			w.V("ORRB", acc(i, 2*j), a+j, a+j)
		}
	}
	write128(w, mr)
}

// load reads an argument.
func load(w *arm64.Writer, name, r string) { w.Go("MOVD %s+%d(FP), %s", name, offsets[name], r) }

// offsets are those of the arguments of a kernel.
var offsets = func() map[string]int {
	m := map[string]int{}
	for i, name := range []string{"tiles", "k", "a", "ta", "rsa", "csa", "b", "bs", "c", "ldc", "n", "acc", "bias", "ahead", "step"} {
		m[name] = 8 * i
	}
	return m
}()

// addRow adds 16 words at p to four registers.
func addRow(w *arm64.Writer, p string, first int) {
	w.Go("FLDPQ (%s), (F%d, F%d)", p, neonB, neonB+1)
	w.Go("FLDPQ 32(%s), (F%d, F%d)", p, neonB+2, neonB+3)
	for j := range 4 {
		w.V("FADDS", first+j, first+j, neonB+j)
	}
}

// beginTile leaves where no tile is left, else fetches the rows of C and calls with after each.
func beginTile(w *arm64.Writer, mr int, with func(row int)) {
	w.Go("CBZ %s, done", regTiles)
	w.Label("tile")
	w.Go("MOVD %s, %s", regC, regTmp)
	for i := range mr {
		w.Go("PRFM (%s), PLDL1KEEP", regTmp)
		if i < mr-1 {
			w.Go("ADD %s, %s", regLDC, regTmp)
		}
		with(i)
	}
}

// edge stores 1<<bit columns of a row at regTmp if n has the bit, and moves on
// what is left of the row to its first registers. The bias, if any, is at regOffset.
func edge(w *arm64.Writer, bit, first int) {
	skip, noC, noBias := w.NewLabel("skip"), w.NewLabel("noC"), w.NewLabel("noBias")
	size := 4 << bit
	move := []string{"FMOVS", "FMOVD", "FMOVQ"}[min(bit, 2)]
	vectors := max(1, size/16)
	w.Go("TBZ $%d, %s, %s", bit, regN, skip)
	sum := func(p, flag, none string) {
		w.Go("CBZ %s, %s", flag, none)
		for v := range vectors {
			w.Go("%s %d(%s), F%d", move, 16*v, p, neonB+v)
		}
		for v := range vectors {
			w.V("FADDS", first+v, first+v, neonB+v)
		}
	}
	load(w, "acc", regCount)
	sum(regTmp, regCount, noC)
	w.Label(noC)
	sum(regOffset, regOffset, noBias)
	w.Go("ADD $%d, %s", size, regOffset)
	w.Label(noBias)
	for v := range vectors {
		w.Go("%s F%d, %d(%s)", move, first+v, 16*v, regTmp)
	}
	w.Go("ADD $%d, %s", size, regTmp)
	switch bit {
	case 3:
		w.V("ORRB", first, first+2, first+2)
		w.V("ORRB", first+1, first+3, first+3)
	case 2:
		w.V("ORRB", first, first+1, first+1)
	case 1:
		w.V("DUPD", first, first, 1)
	}
	w.Label(skip)
}
