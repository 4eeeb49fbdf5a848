package simd

import "github.com/snug-ml/snug/internal/float16"

// BF16ToF32 widens bfloat16 to float32, exactly.
func BF16ToF32(dst []float32, src []uint16) {
	same(len(dst), len(src), len(src))
	bf16ToF32(dst, src)
}

// F32ToBF16 rounds to bfloat16, to nearest with ties to even. NaN stays NaN,
// made quiet.
func F32ToBF16(dst []uint16, src []float32) {
	same(len(dst), len(src), len(src))
	f32ToBF16(dst, src)
}

// F16ToF32 widens IEEE float16 to float32, exactly.
func F16ToF32(dst []float32, src []uint16) {
	same(len(dst), len(src), len(src))
	f16ToF32(dst, src)
}

// F32ToF16 rounds to IEEE float16, to nearest with ties to even: 65520 and
// above become Inf, small values subnormal. NaN stays NaN, made quiet.
func F32ToF16(dst []uint16, src []float32) {
	same(len(dst), len(src), len(src))
	f32ToF16(dst, src)
}

// RoundBF16 rounds to the nearest bfloat16 value, kept as float32.
func RoundBF16(dst, src []float32) {
	same(len(dst), len(src), len(src))
	roundBF16(dst, src)
}

// RoundF16 rounds to the nearest float16 value, kept as float32.
func RoundF16(dst, src []float32) {
	same(len(dst), len(src), len(src))
	roundF16(dst, src)
}

// I32ToF32 converts integers, to nearest with ties to even.
func I32ToF32(dst []float32, src []int32) {
	same(len(dst), len(src), len(src))
	i32ToF32(dst, src)
}

func bf16ToF32Go(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = float16.FromBF16(h)
	}
}

func f32ToBF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = float16.ToBF16(v)
	}
}

func f16ToF32Go(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = float16.FromF16(h)
	}
}

func f32ToF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = float16.ToF16(v)
	}
}

func roundBF16Go(dst, src []float32) {
	for i, v := range src {
		dst[i] = float16.FromBF16(float16.ToBF16(v))
	}
}

func roundF16Go(dst, src []float32) {
	for i, v := range src {
		dst[i] = float16.FromF16(float16.ToF16(v))
	}
}

func i32ToF32Go(dst []float32, src []int32) {
	for i, v := range src {
		dst[i] = float32(v)
	}
}
