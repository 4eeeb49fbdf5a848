package simd

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/internal/float16"
)

// PoolChannels must divide the number of channels of MaxPool and MaxPoolGrad.
const PoolChannels = 8

// pooled panics unless n elements, of whole windows of ch channels, have two rows
// of images above them.
func pooled(n, ch, x0, x1 int) {
	if n == 0 || ch <= 0 || ch%PoolChannels != 0 || n%ch != 0 || x0 != 2*n || x1 != 2*n {
		panic(fmt.Sprintf("simd: %d maxima of %d channels from rows of %d and %d elements", n, ch, x0, x1))
	}
}

// MaxPool writes the maximum of each window of 2x2 elements: x0 and x1 are two rows of an
// image, an element is ch channels. NaN propagates.
func MaxPool(dst, x0, x1 []float32, ch int) {
	pooled(len(dst), ch, len(x0), len(x1))
	maxPool(dst, x0, x1, ch)
}

// MaxPoolBF16 is MaxPool of bfloat16.
func MaxPoolBF16(dst, x0, x1 []uint16, ch int) {
	pooled(len(dst), ch, len(x0), len(x1))
	maxPoolBF16(dst, x0, x1, ch)
}

// MaxPoolGrad is the gradient of MaxPool, whose result was y: dy goes to the
// first element of its window, row by row, that is not less than y; the others
// become 0.
func MaxPoolGrad(dx0, dx1, dy, y, x0, x1 []float32, ch int) {
	same(len(dy), len(y), len(y))
	pooled(len(dy), ch, len(x0), len(x1))
	pooled(len(dy), ch, len(dx0), len(dx1))
	maxPoolGrad(dx0, dx1, dy, y, x0, x1, ch)
}

// MaxPoolGradBF16 is MaxPoolGrad of bfloat16.
func MaxPoolGradBF16(dx0, dx1, dy, y, x0, x1 []uint16, ch int) {
	same(len(dy), len(y), len(y))
	pooled(len(dy), ch, len(x0), len(x1))
	pooled(len(dy), ch, len(dx0), len(dx1))
	maxPoolGradBF16(dx0, dx1, dy, y, x0, x1, ch)
}

func maxPoolGo(dst, x0, x1 []float32, ch int) {
	for i := range dst {
		k := i + i/ch*ch
		dst[i] = larger(larger(x0[k], x1[k]), larger(x0[k+ch], x1[k+ch]))
	}
}

func maxPoolBF16Go(dst, x0, x1 []uint16, ch int) {
	for i := range dst {
		k := i + i/ch*ch
		left, right := larger(float16.FromBF16(x0[k]), float16.FromBF16(x1[k])), larger(float16.FromBF16(x0[k+ch]), float16.FromBF16(x1[k+ch]))
		dst[i] = uint16(math.Float32bits(larger(left, right)) >> 16)
	}
}

func maxPoolGradGo(dx0, dx1, dy, y, x0, x1 []float32, ch int) {
	for i, d := range dy {
		k := i + i/ch*ch
		for _, at := range [2]int{k, k + ch} {
			dx0[at], d = route(d, x0[at] < y[i])
		}
		for _, at := range [2]int{k, k + ch} {
			dx1[at], d = route(d, x1[at] < y[i])
		}
	}
}

func maxPoolGradBF16Go(dx0, dx1, dy, y, x0, x1 []uint16, ch int) {
	for i, d := range dy {
		k := i + i/ch*ch
		for _, at := range [2]int{k, k + ch} {
			dx0[at], d = route(d, float16.FromBF16(x0[at]) < float16.FromBF16(y[i]))
		}
		for _, at := range [2]int{k, k + ch} {
			dx1[at], d = route(d, float16.FromBF16(x1[at]) < float16.FromBF16(y[i]))
		}
	}
}

// route says what an element of a window takes of the gradient, and what is left.
func route[T float32 | uint16](d T, less bool) (takes, left T) {
	if less {
		return 0, d
	}
	return d, 0
}
