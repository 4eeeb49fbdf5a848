package simd

import (
	"fmt"

	"github.com/snug-ml/snug/internal/float16"
)

// The passes of a norm over the columns of a matrix with few columns. Several rows are
// processed at a time: a slice holds some of them, and the values of columns are repeated
// accordingly.

// AddRows adds rows rows of x, stride elements apart, to acc one by one.
func AddRows(acc, x []float32, rows, stride int) {
	if checkRows(len(acc), len(x), rows, stride) {
		addRows(acc, x, rows, stride)
	}
}

// AddRowsBF16 is AddRows of bfloat16.
func AddRowsBF16(acc []float32, x []uint16, rows, stride int) {
	if checkRows(len(acc), len(x), rows, stride) {
		addRowsBF16(acc, x, rows, stride)
	}
}

// checkRows reports whether rows rows of cols elements contain anything, and panics if
// they do not all fit in n.
func checkRows(cols, n, rows, stride int) bool {
	if cols == 0 || rows <= 0 {
		return false
	}
	if stride < cols || (rows-1)*stride+cols > n {
		panic(fmt.Sprintf("simd: %d rows of %d elements, %d apart, are not in %d", rows, cols, stride, n))
	}
	return true
}

// ColumnSqDev adds (x - mean)^2 to acc.
func ColumnSqDev(acc, x, mean []float32) {
	same(len(acc), len(x), len(mean))
	columnSqDev(acc, x, mean)
}

// ColumnSqDevBF16 is ColumnSqDev of bfloat16.
func ColumnSqDevBF16(acc []float32, x []uint16, mean []float32) {
	same(len(acc), len(x), len(mean))
	columnSqDevBF16(acc, x, mean)
}

// ColumnNorm writes (x - mean)*scale + shift; y may be x.
func ColumnNorm(y, x, mean, scale, shift []float32) {
	same(len(y), len(x), len(mean))
	same(len(y), len(scale), len(shift))
	columnNorm(y, x, mean, scale, shift)
}

// ColumnNormBF16 is ColumnNorm of bfloat16, rounded once.
func ColumnNormBF16(y, x []uint16, mean, scale, shift []float32) {
	same(len(y), len(x), len(mean))
	same(len(y), len(scale), len(shift))
	columnNormBF16(y, x, mean, scale, shift)
}

// ColumnGradSums adds dy to sum and (x - mean)*dy to dot.
func ColumnGradSums(sum, dot, dy, x, mean []float32) {
	same(len(sum), len(dot), len(dy))
	same(len(sum), len(x), len(mean))
	columnGradSums(sum, dot, dy, x, mean)
}

// ColumnGradSumsBF16 is ColumnGradSums of bfloat16.
func ColumnGradSumsBF16(sum, dot []float32, dy, x []uint16, mean []float32) {
	same(len(sum), len(dot), len(dy))
	same(len(sum), len(x), len(mean))
	columnGradSumsBF16(sum, dot, dy, x, mean)
}

// ColumnNormGrad writes dy*a + (x - mean)*b + c; dx may be dy or x.
func ColumnNormGrad(dx, dy, x, mean, a, b, c []float32) {
	same(len(dx), len(dy), len(x))
	same(len(dx), len(mean), len(a))
	same(len(dx), len(b), len(c))
	columnNormGrad(dx, dy, x, mean, a, b, c)
}

// ColumnNormGradBF16 is ColumnNormGrad of bfloat16, rounded once.
func ColumnNormGradBF16(dx, dy, x []uint16, mean, a, b, c []float32) {
	same(len(dx), len(dy), len(x))
	same(len(dx), len(mean), len(a))
	same(len(dx), len(b), len(c))
	columnNormGradBF16(dx, dy, x, mean, a, b, c)
}

func addRowsGo(acc, x []float32, rows, stride int) {
	for r := range rows {
		for j, v := range x[r*stride : r*stride+len(acc)] {
			acc[j] += v
		}
	}
}

func addRowsBF16Go(acc []float32, x []uint16, rows, stride int) {
	for r := range rows {
		for j, h := range x[r*stride : r*stride+len(acc)] {
			acc[j] += float16.FromBF16(h)
		}
	}
}

func sqDev(acc, x, mean float32) float32 {
	d := x - mean
	return acc + float32(d*d)
}

func columnSqDevGo(acc, x, mean []float32) {
	for i, v := range x {
		acc[i] = sqDev(acc[i], v, mean[i])
	}
}

func columnSqDevBF16Go(acc []float32, x []uint16, mean []float32) {
	for i, h := range x {
		acc[i] = sqDev(acc[i], float16.FromBF16(h), mean[i])
	}
}

func columnNormGo(y, x, mean, scale, shift []float32) {
	for i, v := range x {
		y[i] = float32((v-mean[i])*scale[i]) + shift[i]
	}
}

func columnNormBF16Go(y, x []uint16, mean, scale, shift []float32) {
	for i, h := range x {
		y[i] = float16.ToBF16(float32((float16.FromBF16(h)-mean[i])*scale[i]) + shift[i])
	}
}

func columnGradSumsGo(sum, dot, dy, x, mean []float32) {
	for i, d := range dy {
		sum[i] += d
		dot[i] += float32((x[i] - mean[i]) * d)
	}
}

func columnGradSumsBF16Go(sum, dot []float32, dy, x []uint16, mean []float32) {
	for i, h := range dy {
		d := float16.FromBF16(h)
		sum[i] += d
		dot[i] += float32((float16.FromBF16(x[i]) - mean[i]) * d)
	}
}

func columnGrad(dy, x, mean, a, b, c float32) float32 {
	return float32(dy*a) + float32((x-mean)*b) + c
}

func columnNormGradGo(dx, dy, x, mean, a, b, c []float32) {
	for i, d := range dy {
		dx[i] = columnGrad(d, x[i], mean[i], a[i], b[i], c[i])
	}
}

func columnNormGradBF16Go(dx, dy, x []uint16, mean, a, b, c []float32) {
	for i, h := range dy {
		dx[i] = float16.ToBF16(columnGrad(float16.FromBF16(h), float16.FromBF16(x[i]), mean[i], a[i], b[i], c[i]))
	}
}
