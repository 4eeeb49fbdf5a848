package ref_test

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// decode is the number that 16 bits stand for, by the definition of each format.
func decode(b uint16, d graph.DType) float64 {
	if d == graph.BF16 {
		return float64(math.Float32frombits(uint32(b) << 16))
	}
	sign := 1 - 2*float64(b>>15)
	exp, frac := int(b>>10&31), float64(b&1023)
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// Every number of each 16-bit format is unchanged, every number between two rounds
// to the nearer one, and every midpoint to the one with an even last bit.
func TestRound16Exhaustive(t *testing.T) {
	for _, d := range []graph.DType{graph.BF16, graph.F16} {
		for b := range uint16(0x7fff) {
			x, next := decode(b, d), decode(b+1, d)
			if math.IsNaN(x) || math.IsNaN(next) {
				continue
			}
			mid := (x + next) / 2
			if math.IsInf(next, 0) { // as if the exponent range continued
				if math.IsInf(x, 0) {
					continue
				}
				mid = x + (x-decode(b-1, d))/2
			}
			even := x
			if b%2 == 1 {
				even = next
			}
			for _, c := range [][2]float64{
				{x, x}, {math.Nextafter(mid, 0), x}, {mid, even}, {math.Nextafter(mid, math.Inf(1)), next},
			} {
				for _, sign := range []float64{1, -1} {
					if got := ref.Round(sign*c[0], d); got != sign*c[1] {
						t.Fatalf("%v rounds to %v in %v, want %v", sign*c[0], got, d, sign*c[1])
					}
				}
			}
		}
	}
}

func TestRoundOthers(t *testing.T) {
	for _, c := range []struct {
		d       graph.DType
		x, want float64
	}{
		{graph.F32, 0.1, float64(float32(0.1))},
		{graph.F32, 1e39, math.Inf(1)},
		{graph.I32, 2.5, 2},
		{graph.I32, -3.5, -4},
		{graph.BF16, math.Inf(-1), math.Inf(-1)},
		{graph.F16, math.Inf(1), math.Inf(1)},
	} {
		if got := ref.Round(c.x, c.d); got != c.want {
			t.Errorf("%v rounds to %v in %v, want %v", c.x, got, c.d, c.want)
		}
	}
	for _, d := range []graph.DType{graph.F32, graph.BF16, graph.F16} {
		if !math.IsNaN(ref.Round(math.NaN(), d)) {
			t.Errorf("%v loses NaN", d)
		}
		if !math.Signbit(ref.Round(math.Copysign(0, -1), d)) {
			t.Errorf("%v loses the sign of zero", d)
		}
	}
}

// What the PTX manual says about cvt.rna.tf32.f32, at the boundaries of each rule.
func TestTF32(t *testing.T) {
	up := math.Nextafter32
	for _, c := range []struct{ x, want float64 }{
		{0, 0}, {1, 1}, {-1, -1}, {1 + 0x1p-10, 1 + 0x1p-10},
		{1 + 0x1p-11, 1 + 0x1p-10}, {-1 - 0x1p-11, -1 - 0x1p-10}, // ties away from zero
		{1 + 0x3p-11, 1 + 0x2p-10},
		{float64(up(1+0x1p-11, 0)), 1}, {float64(up(1+0x1p-11, 2)), 1 + 0x1p-10},
		{2 - 0x1p-11, 2},
		{0x1p-149, 0}, {0x1p-137, 0x1p-136}, {0x1p-136, 0x1p-136}, // subnormal numbers
		{0x1.ffdp127, 0x1.ffcp127}, {math.MaxFloat32, math.Inf(1)}, {math.Inf(-1), math.Inf(-1)},
	} {
		if got := ref.TF32(c.x); got != c.want {
			t.Errorf("%x becomes %x, want %x", c.x, got, c.want)
		}
	}
	if !math.IsNaN(ref.TF32(math.NaN())) {
		t.Error("not a number becomes one")
	}
}
