package gemm

import "github.com/snug-ml/snug/internal/isa"

// kernelFunc multiplies tiles of rows, all as high as the kernel:
//
//	C[t*mr+i][j] = (acc != 0 ? C[t*mr+i][j] : 0) + sum over k of A[t][i][k]*B[k][j] + bias[j]
//
// for t < tiles, i < mr, j < n, over k words: float32 values, or pairs or quads of bfloat16,
// depending on the kernel. All strides are in bytes: A advances ta from tile to tile, rsa from
// row to row and csa from word to word, B advances bs from word to word and has its columns
// contiguous, C advances ldc from row to row; bias may be nil. ahead is memory to bring into
// cache meanwhile, step bytes for every four words; it is only a hint.
type kernelFunc func(tiles, k int, a *byte, ta, rsa, csa int, b *byte, bs int, c *byte, ldc, n, acc int, bias, ahead *byte, step int)

// panelFunc packs cols columns of k elements each as rows of words, dstStride bytes
// apart: from a source whose rows run along the columns (panel functions), or along k
// (transpose functions, where k counts words). It writes whole rows of its own width;
// elements beyond cols only affect columns that are never stored.
type panelFunc func(k, cols int, src *byte, stride int, dst *byte, dstStride int)

// tilesFunc packs k rows of tiles*mr elements as tiles of mr words per row, tileStride
// bytes from tile to tile.
type tilesFunc func(k, tiles int, src *byte, stride int, dst *byte, tileStride int)

// rowTileFunc packs k elements of up to mr rows as a tile of mr words per row: the tile's
// rows beyond rows only affect rows that are never stored.
type rowTileFunc func(k, rows int, src *byte, stride int, dst *byte)

// rowsFunc converts rows of cols elements; strides are in bytes.
type rowsFunc func(rows, cols int, src *byte, stride int, dst *byte, dstStride int)

// machine describes one set of kernels to the driver.
type machine struct {
	word    DType        // F32: words are float32; BF16: words are pairs of bfloat16
	quads   bool         // words are four bfloat16
	mr, nr  int          // rows and columns of the full tile
	kern    []kernelFunc // by rows, 1..mr
	inRows  []kernelFunc // by rows, for A in rows, if kern reads only packed tiles; or nil
	byQuads *machine     // for matmuls of whole quads, with the same bits; or nil
	unit    int          // elements of K at whose multiples callers of a Micro may cut; 0: a word's
	exact   int          // where n is at most this, kernels read no column of B beyond n

	tilesA  [3]tilesFunc   // by source type, full tiles of a transposed A
	panelA  [3]panelFunc   // by source type, one tile of fewer rows
	rowTile [3]rowTileFunc // by source type, a tile of rows along k, where words are quads
	shared  packer         // for a buffer that several workers read
	own     packer         // for a buffer that the packing worker reads itself
	lanes   int            // rows per call of transpose
	toWord  [3]rowsFunc    // source type to elements of words
	fromF32 [3]rowsFunc    // float32 to the type of C
	toF32   [3]rowsFunc    // type of C to float32
}

// packer packs a panel of B.
type packer struct {
	panel     [3]panelFunc // by source type, nr columns in one call
	transpose panelFunc    // up to machine.lanes rows of words
}

// elems returns how many elements along k one word holds.
func (m *machine) elems() int {
	switch {
	case m.quads:
		return 4
	case m.word == BF16:
		return 2
	}
	return 1
}

// bytes returns the size of a word.
func (m *machine) bytes() int { return m.elems() * m.word.Size() }

// words returns the words that hold k elements.
func (m *machine) words(k int) int { return (k + m.elems() - 1) / m.elems() }

// machineFor returns the kernels of a level that this machine runs for words of the given
// type: its own, or those of a level that it extends. If there are none for bfloat16, it
// multiplies in float32.
func machineFor(level isa.Level, word DType) *machine {
	for l := level; l != isa.Auto; l = l.Extends() {
		if m := machines[l]; m != nil && m.word == word {
			return m
		}
	}
	if word != F32 {
		return machineFor(level, F32)
	}
	return &machinePortable
}
