package pass_test

import (
	"fmt"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// In a training step in which each part of the rows has weights of its own, as with adapters of several tasks, nothing
// is taken apart or joined by copying, neither forward nor backward.
func TestPartsAreNotCopied(t *testing.T) {
	const parts, rows, d = 3, 8, 16
	b := graph.NewBuilder("step")
	x := b.Linear(b.Input("x", graph.T(graph.F32, parts*rows, d)), b.Param("in", graph.Normal(.1), d, d), nil)
	var own []*graph.Value
	for i := range parts {
		own = append(own, b.Linear(b.Slice(x, 0, i*rows, rows), b.Param(fmt.Sprint("own", i), graph.Normal(.1), d, d), nil))
	}
	y := b.Add(b.Linear(x, b.Param("shared", graph.Normal(.1), d, d), nil), b.Concat(0, own...))
	b.Output("loss", b.Mean(b.Square(y)))
	u := &pass.Unit{F: b.F, Loss: "loss", Align: 64, Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
		for i, p := range params {
			b.Output("gradient."+p.Name, grads[i])
		}
	}}
	if err := pass.Run(u, pass.Options{Verify: true}); err != nil {
		t.Fatal(err)
	}
	if err := pass.CheckPlacement(u); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"slice", "slice_grad", "concat"} {
		if n := count(u.F, op); n > 0 {
			t.Errorf("%d nodes %s", n, op)
		}
	}
	if n := count(u.F, "slice_view"); n != 2*parts {
		t.Errorf("%d slices are views, want %d of x and of its gradient", n, parts)
	}
	if n := count(u.F, "concat_view"); n != 2 {
		t.Errorf("%d joins are views, want that of the results and that of the gradients", n)
	}
}

// A part that would keep a larger buffer alive where memory is short is copied.
func TestPartsTakeNoMoreMemory(t *testing.T) {
	const rows, d = 64, 16
	for _, wide := range []bool{false, true} {
		b := graph.NewBuilder("f")
		x := b.Tanh(b.Input("x", graph.T(graph.F32, rows, d)))
		part := b.Slice(x, 0, 0, 4)
		y := b.Softmax(b.Sum(x, 0))
		if wide {
			z := b.Softmax(b.Mul(b.Reshape(y, d, 1), b.BroadcastTo(y, d*rows, d, d)))
			y = b.Sum(b.Sum(z, 0), 0)
		}
		b.Output("y", b.Add(part, y))
		u := &pass.Unit{F: b.F, Align: 64}
		if err := pass.Run(u, pass.Options{Verify: true}); err != nil {
			t.Fatal(err)
		}
		if err := pass.CheckPlacement(u); err != nil {
			t.Fatal(err)
		}
		if copied := count(u.F, "slice") == 1; copied != wide {
			t.Errorf("with a wide value after it: %v; copied: %v\n%v", wide, copied, u.F)
		}
	}
}
