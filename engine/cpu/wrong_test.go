package cpu_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// Invalid input from the host fails the run with its position and the limits.
func TestWrongIntegersAreReported(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(b *graph.Builder, ids *graph.Value) *graph.Value
		want  string
	}{
		{"gather", func(b *graph.Builder, ids *graph.Value) *graph.Value {
			return b.Gather(b.Input("x", graph.T(graph.F32, 3, 5)), ids)
		}, "index 5 at position 4 is outside the 5 positions"},
		{"scatter", func(b *graph.Builder, ids *graph.Value) *graph.Value {
			return b.Scatter(b.Input("x", graph.T(graph.F32, 3, 2)), ids, 5)
		}, "index 5 at position 4 is outside the 5 positions"},
		{"route", func(b *graph.Builder, ids *graph.Value) *graph.Value {
			return b.Route(graph.Route{Experts: 5}, ids).Slot
		}, "choice 5 at position 4 is outside the 5 experts"},
		{"embedding", func(b *graph.Builder, ids *graph.Value) *graph.Value {
			return b.Embedding(b.Input("x", graph.T(graph.F32, 5, 2)), ids)
		}, "id 5 at position 4 is outside the table's 5 rows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := graph.NewBuilder("f")
			b.Scope("layer", func() { b.Output("y", c.build(b, b.Input("ids", graph.T(graph.I32, 3, 2)))) })
			p, err := engine.CompileForward(engine.CompileOptions{}, b.F)
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Load(backend.CPU(2))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			ids, _ := r.Input(0, "ids")
			ids.I32()[4] = 5
			if err := r.Run("f", 0); err == nil || !strings.Contains(err.Error(), "layer: "+c.want) {
				t.Errorf("error %v, want one with %q", err, "layer: "+c.want)
			}
			ids.I32()[4] = 4
			if err := r.Run("f", 0); err != nil {
				t.Errorf("after it was put right: %v", err)
			}
		})
	}
}
