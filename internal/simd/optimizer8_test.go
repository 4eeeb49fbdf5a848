package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// Every level gives the same bits as portable Go.
func TestLion(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(19, 20))
	c := LionCoef{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1, GradScale: 0.5}
	for _, n := range lengths() {
		start, moment, grad := ordinary(r, n), ordinary(r, n), ordinary(r, n)
		if n > 3 {
			moment[1], grad[1] = 0, 0 // no step
			grad[3] = float32(math.NaN())
		}
		var want [2][]float32
		for _, level = range Levels() {
			w, checkW := guarded(t, n)
			m, checkM := guarded(t, n)
			copy(w, start)
			copy(m, moment)
			Lion(w, grad, m, c)
			checkW()
			checkM()
			if level == isa.Portable {
				want = [2][]float32{slices.Clone(w), slices.Clone(m)}
				if n > 3 && w[1] != start[1]*float32(1-c.LR*c.WeightDecay) {
					t.Errorf("a step of %g without a gradient", w[1]-start[1])
				}
			}
			for k, got := range [][]float32{w, m} {
				if i := differ(got, want[k]); i >= 0 {
					t.Errorf("%v, %d elements, result %d: element %d is %g, portable %g", level, n, k, i, got[i], want[k][i])
				}
			}
		}
	}
}

// Every level gives the same bits as portable Go.
func TestCodes8(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(21, 22))
	for _, n := range lengths() {
		x, random, codes := ordinary(r, n), make([]uint16, n), make([]uint8, n)
		for i := range n {
			if random[i], codes[i] = uint16(r.Uint32()), uint8(r.Uint32()); i%3 == 0 {
				x[i] = float32(math.Pow(10, -9*r.Float64())) * (1 - 2*float32(i%2))
			}
		}
		if n > 6 {
			x[0], x[1], x[2], x[3], x[4], x[5], x[6] = 0, float32(math.Inf(-1)), float32(math.NaN()), 1e-30, 2, -2, float32(math.Copysign(0, -1))
		}
		var want [2][]uint8
		var numbers [3][]float32
		for _, level = range Levels() {
			got := [2][]uint8{make([]uint8, n), make([]uint8, n)}
			EncodeSigned8(got[0], x, 0.5)
			EncodeUnsigned8(got[1], x, random, 0.5)
			var back [3][]float32
			for k, decode := range []func(dst []float32){
				func(dst []float32) { DecodeSigned8(dst, codes, 3) },
				func(dst []float32) { DecodeUnsigned8(dst, codes, 3) },
				func(dst []float32) { Integers8(dst, codes, 0.3, 1.0/127) },
			} {
				x, check := guarded(t, n)
				decode(x)
				check()
				back[k] = slices.Clone(x)
			}
			if level == isa.Portable {
				want, numbers = got, back
			}
			for k := range got {
				if !slices.Equal(got[k], want[k]) {
					t.Errorf("%v, %d elements: codes %v, portable %v", level, n, got[k], want[k])
				}
			}
			for k := range back {
				if i := differ(back[k], numbers[k]); i >= 0 {
					t.Errorf("%v, %d elements: number %d of %d is %g, portable %g", level, n, i, k, back[k][i], numbers[k][i])
				}
			}
			for i, c := range codes {
				if want := float32(float32(int8(c))*0.3) * (1.0 / 127); back[2][i] != want {
					t.Errorf("%v, %d elements: code %d is %g, want %g", level, n, c, back[2][i], want)
				}
			}
			if got, want := MaxMagnitude(x), maxMagnitudeGo(x); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Errorf("%v, %d elements: the largest magnitude is %g, want %g", level, n, got, want)
			}
		}
	}
}
