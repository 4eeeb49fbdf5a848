package simd

import "fmt"

// Transpose writes dst[j*dstStride+i] = src[i*srcStride+j] for i < rows and
// j < cols. Strides are in elements.
func Transpose(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	checkTranspose(len(dst), dstStride, len(src), srcStride, rows, cols)
	transpose(transpose32, dst, dstStride, src, srcStride, rows, cols)
}

// Transpose16 is Transpose for 16-bit elements.
func Transpose16(dst []uint16, dstStride int, src []uint16, srcStride, rows, cols int) {
	checkTranspose(len(dst), dstStride, len(src), srcStride, rows, cols)
	transpose(transpose16, dst, dstStride, src, srcStride, rows, cols)
}

// transposeSide divides the rows and columns that are passed to the kernels: no level has
// larger tiles.
const transposeSide = 16

// A kernel is called with blocks of this many rows and columns of the source, so
// that the pages of both matrices stay in the address cache while they are used.
const (
	transposeRows = 256
	transposeCols = 32
)

// transpose copies whole tiles by the kernel, block by block, and the rest by
// portable Go.
func transpose[T float32 | uint16](kernel func(dst []T, dstStride int, src []T, srcStride, rows, cols int),
	dst []T, dstStride int, src []T, srcStride, rows, cols int) {
	switch {
	case cols == 3 && rows > 0:
		fromTriples(dst, dstStride, src, srcStride, rows)
		return
	case rows == 3 && cols > 0:
		toTriples(dst, dstStride, src, srcStride, cols)
		return
	}
	r, c := rows&^(transposeSide-1), cols&^(transposeSide-1)
	for i := 0; i < r; i += transposeRows {
		for j := 0; j < c; j += transposeCols {
			kernel(dst[j*dstStride+i:], dstStride, src[i*srcStride+j:], srcStride, min(transposeRows, r-i), min(transposeCols, c-j))
		}
	}
	if c < cols && rows > 0 {
		transposeTiles(dst[c*dstStride:], dstStride, src[c:], srcStride, rows, cols-c)
	}
	if r < rows && c > 0 {
		transposeTiles(dst[r:], dstStride, src[r*srcStride:], srcStride, rows-r, c)
	}
}

// fromTriples transposes rows of three elements, such as the channels of an image, in one
// pass.
func fromTriples[T any](dst []T, dstStride int, src []T, srcStride, rows int) {
	a, b, c := dst[:rows], dst[dstStride:][:rows], dst[2*dstStride:][:rows]
	for i := range a {
		s := src[i*srcStride:][:3]
		a[i], b[i], c[i] = s[0], s[1], s[2]
	}
}

// toTriples does the reverse, for three rows of cols elements.
func toTriples[T any](dst []T, dstStride int, src []T, srcStride, cols int) {
	a, b, c := src[:cols], src[srcStride:][:cols], src[2*srcStride:][:cols]
	for j, v := range a {
		d := dst[j*dstStride:][:3]
		d[0], d[1], d[2] = v, b[j], c[j]
	}
}

// checkTranspose panics unless both matrices are within their slices.
func checkTranspose(dst, dstStride, src, srcStride, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	if rows < 0 || cols < 0 || srcStride < cols || dstStride < rows ||
		(rows-1)*srcStride+cols > src || (cols-1)*dstStride+rows > dst {
		panic(fmt.Sprintf("simd: transpose of %dx%d: source of %d elements with stride %d, destination of %d with stride %d",
			rows, cols, src, srcStride, dst, dstStride))
	}
}

// transposeTile is the side of the squares that a transpose works in, so that the lines
// of both matrices stay in the first-level cache while they are used.
const transposeTile = 64

func transpose32Go(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	transposeTiles(dst, dstStride, src, srcStride, rows, cols)
}

func transpose16Go(dst []uint16, dstStride int, src []uint16, srcStride, rows, cols int) {
	transposeTiles(dst, dstStride, src, srcStride, rows, cols)
}

func transposeTiles[T float32 | uint16](dst []T, dstStride int, src []T, srcStride, rows, cols int) {
	for i0 := 0; i0 < rows; i0 += transposeTile {
		i1 := min(i0+transposeTile, rows)
		for j0 := 0; j0 < cols; j0 += transposeTile {
			j1 := min(j0+transposeTile, cols)
			for j := j0; j < j1; j++ {
				column := dst[j*dstStride:]
				for i := i0; i < i1; i++ {
					column[i] = src[i*srcStride+j]
				}
			}
		}
	}
}
