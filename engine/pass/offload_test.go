package pass

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

// stepOf is a function with a step of one weight, whose state is offloaded.
func stepOf(elems int) *graph.Builder {
	b := graph.NewBuilder("update")
	w := b.Param("w", graph.Const(1), elems)
	t := graph.T(graph.F32, elems)
	g := b.State(&graph.State{Name: "g", Type: t, Role: graph.Gradient})
	m := b.State(&graph.State{Name: "m", Type: t, Role: graph.Moment, Offloaded: true})
	one := b.Scalar(1)
	b.Emit(graph.Lion{ZeroGrad: true}, w, g, m, one, one, one)
	return b
}

// A step is cut into windows, of which three are on the device at once: the next is fetched when
// the second to last is written back.
func TestOffloadStreamsWindows(t *testing.T) {
	const windows = 6
	u := &Unit{F: stepOf(stagingGrain*windows - 5).F, Staging: 4 * stagingGrain}
	if err := Run(u, Options{Verify: true}); err != nil {
		t.Fatal(err)
	}
	var order strings.Builder
	for _, n := range u.F.Nodes {
		switch n.Op.(type) {
		case graph.Fetch:
			order.WriteByte('f')
		case graph.StepPart:
			order.WriteByte('s')
		case graph.WriteBack:
			order.WriteByte('w')
		}
	}
	if got, want := order.String(), "fffsswfswfswfswsww"; got != want {
		t.Errorf("fetches, steps and copies back come in the order %s, want %s", got, want)
	}
	window := int64(4 * stagingGrain)
	if p := u.Placement; p.Bytes < inFlight*window || p.Bytes > inFlight*window+1024 {
		t.Errorf("%d bytes are on the device at once, want those of %d windows of %d", p.Bytes, inFlight, window)
	}
}

// A state that something else reads in the same function cannot be offloaded.
func TestOffloadRefusesOtherReaders(t *testing.T) {
	b := stepOf(stagingGrain)
	m := b.F.Nodes[len(b.F.Nodes)-1].Out[1]
	b.Output("size", b.Sum(m, 0))
	if err := Run(&Unit{F: b.F}, Options{}); err == nil || !strings.Contains(err.Error(), "it cannot be offloaded") {
		t.Errorf("a sum of an offloaded state: %v", err)
	}
}
