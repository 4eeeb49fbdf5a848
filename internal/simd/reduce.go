package simd

import (
	"math"
	"slices"
)

// reduceBlock is the length up to which a reduction is one call of a kernel;
// longer slices are added pairwise so that the rounding error grows with the
// logarithm of the length.
const reduceBlock = 4096

// half returns the point to split n > reduceBlock elements at: the whole
// blocks nearest the middle.
func half(n int) int {
	blocks := (n + reduceBlock - 1) / reduceBlock
	return blocks / 2 * reduceBlock
}

// Sum returns the sum of x.
func Sum(x []float32) float32 {
	if len(x) > reduceBlock {
		h := half(len(x))
		return Sum(x[:h]) + Sum(x[h:])
	}
	return sum(x)
}

// Dot returns the sum of a[i] * b[i]; each product is rounded.
func Dot(a, b []float32) float32 {
	same(len(a), len(b), len(b))
	if len(a) > reduceBlock {
		h := half(len(a))
		return Dot(a[:h], b[:h]) + Dot(a[h:], b[h:])
	}
	return dot(a, b)
}

// SumSq returns the sum of squares of x; each square is rounded.
func SumSq(x []float32) float32 { return Dot(x, x) }

// SumF64 returns the sum of x, added in float64.
func SumF64(x []float32) float64 { return sumF64(x) }

// SumRowsF64 sets each element of dst to the sum of a row of len(x)/len(dst) neighbors in x, that of [SumF64] rounded to
// float32.
func SumRowsF64(dst, x []float32) {
	if len(dst) == 0 {
		return
	}
	size := len(x) / len(dst)
	same(len(x), size*len(dst), len(x))
	// Short rows in the order of SumF64, whose sums begin at +0.
	switch size {
	case 2:
		for i := range dst {
			dst[i] = float32(0 + float64(x[2*i]) + float64(x[2*i+1]))
		}
	case 3:
		for i := range dst {
			dst[i] = float32(0 + float64(x[3*i]) + float64(x[3*i+2]) + float64(x[3*i+1]))
		}
	case 4:
		for i := range dst {
			dst[i] = float32(0 + float64(x[4*i]) + float64(x[4*i+2]) + (float64(x[4*i+1]) + float64(x[4*i+3])))
		}
	default:
		for i := range dst {
			dst[i] = float32(sumF64(x[i*size : (i+1)*size]))
		}
	}
}

// SumSqF64 returns the sum of squares of x, squared and added in float64.
func SumSqF64(x []float32) float64 { return sumSqF64(x) }

// MaxValue returns the largest element: NaN if one is NaN, -Inf if x is empty.
func MaxValue(x []float32) float32 { return maxValue(x) }

// MaxMagnitude returns the largest magnitude: NaN if an element is NaN, 0 if x is empty.
func MaxMagnitude(x []float32) float32 { return maxMagnitude(x) }

// ArgMax returns the index of the first NaN if there is one, otherwise of the first of
// the largest elements; -1 if x is empty.
func ArgMax(x []float32) int {
	m := maxValue(x)
	if m != m {
		return slices.IndexFunc(x, func(v float32) bool { return v != v })
	}
	return indexOf(x, m)
}

// lanes is the number of partial sums of a float32 reduction, lanes64 of a
// float64 one.
const (
	lanes   = 64
	lanes64 = 32
)

// tree adds the lanes in the order that every level uses.
func tree(acc *[lanes]float32) float32 {
	for w := lanes / 2; w > 0; w /= 2 {
		for j := range w {
			acc[j] += acc[j+w]
		}
	}
	return acc[0]
}

// tree64 is tree in float64.
func tree64(acc *[lanes64]float64) float64 {
	for w := lanes64 / 2; w > 0; w /= 2 {
		for j := range w {
			acc[j] += acc[j+w]
		}
	}
	return acc[0]
}

func sumGo(x []float32) float32 {
	var acc [lanes]float32
	for i, v := range x {
		acc[i%lanes] += v
	}
	return tree(&acc)
}

func dotGo(a, b []float32) float32 {
	var acc [lanes]float32
	for i, v := range a {
		acc[i%lanes] += float32(v * b[i])
	}
	return tree(&acc)
}

func sumF64Go(x []float32) float64 {
	var acc [lanes64]float64
	for i, v := range x {
		acc[i%lanes64] += float64(v)
	}
	return tree64(&acc)
}

// sumSqF64Go may be fused by the compiler: the square of a float32 is exact in
// float64.
func sumSqF64Go(x []float32) float64 {
	var acc [lanes64]float64
	for i, v := range x {
		acc[i%lanes64] += float64(v) * float64(v)
	}
	return tree64(&acc)
}

func maxValueGo(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func maxMagnitudeGo(x []float32) float32 {
	m := float32(0)
	for _, v := range x {
		m = max(m, float32(math.Abs(float64(v))))
	}
	return m
}

// indexOfGo returns the index of the first element equal to v, or -1.
func indexOfGo(x []float32, v float32) int { return slices.Index(x, v) }
