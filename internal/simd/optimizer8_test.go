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

// Any numbers work as tables: every level gives the same bits as portable Go.
func TestCodes8(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(21, 22))
	table := &Codes8{}
	for i := range 256 {
		table.Values[i], table.Above[i] = r.Float32()*2-1, float32(i-127)/128
	}
	for i := range table.First {
		table.First[i] = uint32(r.IntN(255))
	}
	for _, n := range lengths() {
		x := ordinary(r, n)
		if n > 3 {
			x[0], x[1], x[2], x[3] = 0, float32(math.Inf(-1)), float32(math.NaN()), 1e-30
		}
		random := make([]uint16, n)
		for i := range random {
			random[i] = uint16(r.Uint32())
		}
		var codes, stochastic []uint8
		var numbers []float32
		for _, level = range Levels() {
			got := make([]uint8, n)
			Encode8(got, x, table, 0.5)
			back, check := guarded(t, n)
			Decode8(back, got, table, 3)
			check()
			drawn := make([]uint8, n)
			EncodeStochastic8(drawn, x, random, table, 0.5)
			if level == isa.Portable {
				codes, stochastic, numbers = got, drawn, slices.Clone(back)
			}
			if !slices.Equal(drawn, stochastic) {
				t.Errorf("%v, %d elements: stochastic codes %v, portable %v", level, n, drawn, stochastic)
			}
			if !slices.Equal(got, codes) {
				t.Errorf("%v, %d elements: codes %v, portable %v", level, n, got, codes)
			}
			if i := differ(back, numbers); i >= 0 {
				t.Errorf("%v, %d elements: number %d is %g, portable %g", level, n, i, back[i], numbers[i])
			}
			all := make([]uint8, n)
			for i := range all {
				all[i] = uint8(37 * i)
			}
			whole, check := guarded(t, n)
			Integers8(whole, all, 0.3, 1.0/127)
			check()
			for i, c := range all {
				if want := float32(float32(int8(c))*0.3) * (1.0 / 127); whole[i] != want {
					t.Errorf("%v, %d elements: code %d is %g, want %g", level, n, c, whole[i], want)
				}
			}
			if got, want := MaxMagnitude(x), maxMagnitudeGo(x); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Errorf("%v, %d elements: the largest magnitude is %g, want %g", level, n, got, want)
			}
		}
	}
}
