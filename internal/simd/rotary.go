package simd

import "fmt"

// RotaryRow rotates the first 2*half elements of x in pairs (i, i+half), the
// "rotate half" convention of GPT-NeoX and Llama (RoFormer, Su et al., 2021):
//
//	dst[i]      = x[i]*cos[i] - x[i+half]*sin[i]
//	dst[i+half] = x[i+half]*cos[i] + x[i]*sin[i]
//
// and copies the rest. inverse rotates back, which is also the gradient. cos
// and sin hold at least half elements; dst may be x.
func RotaryRow(dst, x, cos, sin []float32, half int, inverse bool) {
	checkRotary(len(dst), len(x), len(cos), len(sin), half)
	rotateHalf(dst[:half], dst[half:2*half], x[:half], x[half:2*half], cos[:half], sin[:half], direction(inverse))
	copy(dst[2*half:], x[2*half:])
}

// checkRotary panics unless the slices hold half pairs.
func checkRotary(dst, x, cos, sin, half int) {
	if dst != x || half < 0 || 2*half > x || half > cos || half > sin {
		panic(fmt.Sprintf("simd: rotary of %d pairs: dst %d, x %d, cos %d, sin %d elements", half, dst, x, cos, sin))
	}
}

// direction returns the factor that the sines are multiplied by.
func direction(inverse bool) float32 {
	if inverse {
		return -1
	}
	return 1
}

func rotateHalfGo(d0, d1, x0, x1, cos, sin []float32, dir float32) {
	for i, a := range x0 {
		b, c, s := x1[i], cos[i], sin[i]*dir
		d0[i] = float32(a*c) - float32(b*s)
		d1[i] = float32(b*c) + float32(a*s)
	}
}
