package simd

import (
	"math"
	"os"
	"strconv"
	"testing"
)

// ulpStride returns the distance, in bit patterns, between the arguments of the
// ulp tests: odd, so that all low bits occur. SNUG_SIMD_STRIDE=1 tries every
// float32 (an hour).
func ulpStride(t *testing.T) uint64 {
	text := os.Getenv("SNUG_SIMD_STRIDE")
	if text == "" {
		return 8209
	}
	stride, err := strconv.ParseUint(text, 10, 32)
	if err != nil || stride == 0 {
		t.Fatalf("SNUG_SIMD_STRIDE=%q, want a positive number", text)
	}
	return stride
}

// ulp is the distance between float32 numbers of the size of x.
func ulp(x float64) float64 {
	x = math.Abs(x)
	if x < 0x1p-126 {
		return 0x1p-149
	}
	return math.Ldexp(1, max(math.Ilogb(x), -126)-23)
}

// TestUlps holds the transcendental functions against float64 over arguments
// spread evenly over all float32 bit patterns, so over every binary order of
// magnitude, NaN and Inf among them. Sin and Cos are tested within the range
// they are made for and, by TestSinCosLarge, beyond.
func TestUlps(t *testing.T) {
	defer func(l Level) { level = l }(level)
	for _, e := range elementwiseTable {
		if e.exact() {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			const block = 1 << 14
			x, one, dst := make([]float32, 0, block), make([]float32, block), make([]float32, block)
			Fill(one, 1)
			worst := [3]float64{}
			at := [3]float32{}
			flush := func() {
				in := [][]float32{x, one[:len(x)]}[:e.inputs]
				refs := make([]float64, len(x))
				for i, v := range x {
					refs[i] = e.f64([]float64{float64(v), 1})
				}
				for l := Portable; l <= Best(); l++ {
					level = l
					e.run(dst[:len(x)], in)
					for i, v := range x {
						if d := e.distance(v, dst[i], refs[i]); !(d <= worst[l]) {
							worst[l], at[l] = d, v
						}
					}
				}
				x = x[:0]
			}
			stride := ulpStride(t)
			for bits := uint64(0); bits < 1<<32; bits += stride {
				v := math.Float32frombits(uint32(bits))
				if (e.name == "Sin" || e.name == "Cos") && math.Abs(float64(v)) > 1e5 {
					continue
				}
				if x = append(x, v); len(x) == block {
					flush()
				}
			}
			flush()
			for l := Portable; l <= Best(); l++ {
				t.Logf("%v: at most %.3f ulp, at %g", l, worst[l], at[l])
				if !(worst[l] <= e.ulps) {
					t.Errorf("%v: %s(%g) is off by %.3f ulp, want at most %g", l, e.name, at[l], worst[l], e.ulps)
				}
			}
		})
	}
}

// distance returns the error of got for the argument x, in units.
func (e elementwise) distance(x, got float32, want float64) float64 {
	if want != want || got != got {
		if want != want && got != got {
			return 0
		}
		return math.Inf(1)
	}
	unit := ulp(want)
	if e.unit != nil {
		unit = max(unit, e.unit(float64(x)))
	}
	// An overflow counts as the first number that does not exist.
	const beyond = 0x1p128
	return math.Abs(max(min(float64(got), beyond), -beyond)-max(min(want, beyond), -beyond)) / unit
}
