package codebook

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Second moments in 8 bits follow those in 32, also after the gradients of half a block have fallen: the root of one, by
// which steps are divided, is within a few percent in the mean. docs/memory.md has the rest of what this logs: stochastic
// rounding against rounding to nearest, which snug does not do.
func TestSecondMomentsFollow(t *testing.T) {
	for _, c := range []struct {
		beta2, spread, falls float64
		within               float64 // of 1, the mean
	}{
		{0.98, 0.5, 1, 0.02},
		{0.98, 1.5, 1, 0.04},
		{0.98, 0.5, 0.1, 0.03},
		{0.98, 1.5, 0.1, 0.12},
		{0.999, 0.5, 1, 0.02},
		{0.999, 1.5, 1, 0.04},
		{0.999, 0.5, 0.1, 0.04},
		{0.999, 1.5, 0.1, 0.06},
	} {
		nearest, stochastic := follow(c.beta2, c.spread, c.falls)
		t.Logf("beta2 %g, spread %g, falls to %g: to nearest %v; stochastic %v", c.beta2, c.spread, c.falls, nearest, stochastic)
		if math.Abs(stochastic.Mean-1) > c.within {
			t.Errorf("beta2 %g, spread %g, falls to %g: the mean is %.3f, want 1 within %g", c.beta2, c.spread, c.falls, stochastic.Mean, c.within)
		}
	}
}

// ratios are of roots of second moments in 8 bits to those in 32.
type ratios struct{ Mean, P1, P99 float64 }

func (r ratios) String() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", r.Mean, r.P1, r.P99) }

// follow updates a block whose elements' gradients have standard deviations with the given spread of
// their logarithms; half way those of every other element fall.
func follow(beta2, spread, falls float64) (nearest, stochastic ratios) {
	const n = 256
	rng := rand.New(rand.NewPCG(1, 2))
	deviation := make([]float64, n)
	for i := range deviation {
		deviation[i] = math.Exp(rng.NormFloat64() * spread)
	}
	var exact, near, rand [n]float32
	var codes [n]uint8
	var random [n]uint16
	var nears, rands []float64
	half := int(6 / (1 - beta2))
	for step := range 2 * half {
		for i := range n {
			g := rng.NormFloat64() * deviation[i]
			if step >= half && i%2 == 0 {
				g *= falls
			}
			for _, v := range []*[n]float32{&exact, &near, &rand} {
				v[i] = float32(beta2)*v[i] + float32((1-beta2)*g*g)
			}
		}
		for i := range random {
			random[i] = uint16(rng.Uint32())
		}
		top := slices.Max(near[:])
		for i, x := range near {
			near[i] = top * toNearest(x/top)
		}
		Unsigned.Decode(rand[:], codes[:], Unsigned.Encode(codes[:], rand[:], random[:]))
		if step > 2*half-half/3 && step%7 == 0 {
			for i, x := range exact {
				nears = append(nears, math.Sqrt(float64(near[i]/x)))
				rands = append(rands, math.Sqrt(float64(rand[i]/x)))
			}
		}
	}
	return summed(nears), summed(rands)
}

// toNearest is the number nearest to x, above 0, of those above 0.
func toNearest(x float32) float32 {
	c, _ := slices.BinarySearch(Unsigned.Values[:], x)
	if c > 1 && x-Unsigned.Values[c-1] < Unsigned.Values[c]-x {
		c--
	}
	return Unsigned.Values[c]
}

func summed(x []float64) (r ratios) {
	slices.Sort(x)
	for _, v := range x {
		r.Mean += v / float64(len(x))
	}
	r.P1, r.P99 = x[len(x)/100], x[len(x)-1-len(x)/100]
	return r
}
