package ref_test

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

func TestGradRelate(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, time, d := p.int("n", 1, 2), p.int("time", 1, 5), p.int("d", 1, 3)
		return []*graph.Value{p.Relate(p.full(n, time, d), p.full(n, time, d), p.ints(-1, 3, n, time), 0, 3)}
	})
}
