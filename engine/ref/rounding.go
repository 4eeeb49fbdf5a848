package ref

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// rounded performs a step on a weight whose rounding is r: step sees the weight with all
// its bits. t is the index of the operand that numbers the update.
func rounded(op graph.Optimizer, r graph.Rounding, in []tensor, t int, step func(in []tensor) [][]float64) [][]float64 {
	if r.Mode == graph.Exact {
		return step(in)
	}
	full, last := slices.Clone(in), 1+op.States() // the last state
	if r.Mode == graph.Compensated {
		full[0].data = clone(in[0])
		for i, x := range in[last].data {
			full[0].data[i] += x
		}
		full = slices.Delete(full, last, last+1)
	}
	y := step(full)
	w, rest := y[0], make([]float64, len(y[0]))
	ok := in[len(in)-1].data[0] != 0
	for i, x := range w {
		switch {
		case !ok && r.Mode == graph.Compensated:
			w[i], rest[i] = in[0].data[i], in[last].data[i]
		case !ok:
		case r.Mode == graph.Stochastic:
			w[i] = stochastic(float32(x), r, i, uint32(in[t].data[0]))
		default:
			w[i] = Round(float64(float32(x)), graph.BF16)
			rest[i] = Round(x-w[i], graph.BF16)
		}
	}
	if r.Mode == graph.Compensated {
		y = slices.Insert(y, last-1, rest)
	}
	return y
}

// stochastic returns one of the two BF16 numbers next to x; see [graph.Stochastic].
func stochastic(x float32, r graph.Rounding, i int, t uint32) float64 {
	if x != x {
		return math.NaN()
	}
	return float64(math.Float32frombits((math.Float32bits(x) + uint32(randomBits(r, i, t))) &^ 0xffff))
}

// randomBits are those of an element; see [graph.Rounding].
func randomBits(r graph.Rounding, i int, t uint32) uint16 {
	at := uint64(r.First) + uint64(i)
	return uint16(word(r.Seed, at/2, r.Stream, t) >> (16 * (at % 2)))
}
