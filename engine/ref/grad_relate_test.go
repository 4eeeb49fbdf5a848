package ref_test

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

func TestGradRelate(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, time, d := p.int("n", 1, 2), p.int("time", 1, 5), p.int("d", 1, 3)
		// Sums that differences cannot carry over the kink at 0.
		side := func(off float64) *graph.Value {
			v := p.declare(graph.T(graph.F32, n, time, d), func() float64 { return float64(p.rng.IntN(9)-4)/4 + off })
			p.wrt = append(p.wrt, v)
			return v
		}
		return []*graph.Value{p.Relate(side(0), side(0.1), p.ints(-1, 3, n, time), 0, 3)}
	})
}
