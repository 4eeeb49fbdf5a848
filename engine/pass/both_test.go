package pass

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

// A panic of either function reaches the caller, once the other one has ended.
func TestBoth(t *testing.T) {
	for _, inFirst := range []bool{true, false} {
		ended := false
		caught := func() (r any) {
			defer func() { r = recover() }()
			fails, ends := func() { panic("broken") }, func() { ended = true }
			if inFirst {
				both(fails, ends)
			} else {
				both(ends, fails)
			}
			return nil
		}()
		if caught != "broken" || !ended {
			t.Errorf("in the first: %v: caught %v, the other one ended: %v", inFirst, caught, ended)
		}
	}
}

// What is added to a copy of a function, at any place, is not in the function.
func TestShallow(t *testing.T) {
	b := graph.NewBuilder("f")
	x := b.Input("x", graph.T(graph.F32, 4))
	b.Output("y", b.MulC(x, 2))
	f := b.F
	before := f.String()
	for range 2 {
		g := graph.Extend(f.Shallow())
		g.Output("z", g.Add(g.MulC(x, 3), g.State(&graph.State{Name: "s", Type: x.Type})))
	}
	if f.String() != before {
		t.Errorf("the function became\n%v", f)
	}
}
