package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
)

// Every element of every state belongs to one rank, parts begin only where they may, and
// the loads differ by no more than what cannot be divided.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 9).Draw(t, "ranks")
		var states []*graph.State
		grains := map[*graph.State]Grain{}
		total, largest := 0.0, 0.0
		for i := range rapid.IntRange(1, 12).Draw(t, "states") {
			s := &graph.State{Name: fmt.Sprint("s", i), Type: graph.T(graph.F32, rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 40).Draw(t, "columns"))}
			n := s.Type.Shape.Elems()
			g := Grain{rapid.SampledFrom([]int64{1, 16, 64, n}).Draw(t, "grain"), rapid.SampledFrom([]float64{4, 6.03, 12}).Draw(t, "bytes")}
			states, grains[s] = append(states, s), g
			total += float64(n) * g.Bytes
			largest = max(largest, float64(min(g.Elems, n))*g.Bytes)
		}
		var lists [][]*graph.State
		for rest := states; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "in a list")
			lists, rest = append(lists, rest[:n]), rest[n:]
		}
		parts := Divide(lists, world, func(s *graph.State) Grain { return grains[s] })
		if len(parts) != world {
			t.Fatalf("%d ranks have parts, want %d", len(parts), world)
		}
		owned := map[*graph.State][]int{}
		for _, s := range states {
			owned[s] = make([]int, s.Type.Shape.Elems())
		}
		loads := make([]float64, world)
		for r, list := range parts {
			seen, last := map[*graph.State]bool{}, -1
			for _, p := range list {
				at := 0
				for states[at] != p.State {
					at++
				}
				if seen[p.State] || at < last {
					t.Fatalf("rank %d has %s twice or out of order", r, p.State.Name)
				}
				seen[p.State], last = true, at
				if g := grains[p.State]; p.Elems <= 0 || p.From%g.Elems != 0 || p.From+p.Elems != int64(len(owned[p.State])) && (p.From+p.Elems)%g.Elems != 0 {
					t.Fatalf("rank %d has elements %d to %d of %s, which is divided at multiples of %d", r, p.From, p.From+p.Elems, p.State.Name, g.Elems)
				}
				for i := p.From; i < p.From+p.Elems; i++ {
					owned[p.State][i]++
				}
				loads[r] += float64(p.Elems) * grains[p.State].Bytes
			}
			if r > 0 && loads[r] > loads[r-1] {
				t.Fatalf("rank %d has more than the one before it: %v", r, loads)
			}
		}
		for s, list := range owned {
			for i, n := range list {
				if n != 1 {
					t.Fatalf("%d ranks have element %d of %s", n, i, s.Name)
				}
			}
		}
		if most := total/float64(world) + largest; loads[0] > most+1e-6 {
			t.Fatalf("rank 0 has %v bytes of %v, more than %v", loads[0], total, most)
		}
	})
}
