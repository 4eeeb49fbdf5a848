package graph_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

func TestBuilderErrors(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b *graph.Builder)
		want  string
	}{
		"shape": {
			func(b *graph.Builder) { b.Add(b.Input("x", f32(2)), b.Input("y", f32(3))) },
			"layers.3.mlp: add: shapes [2] and [3] do not broadcast",
		},
		"missing operand": {
			func(b *graph.Builder) { b.Add(b.Input("x", f32(2)), nil) },
			"layers.3.mlp: add: operand 1 is missing",
		},
		"input declared otherwise": {
			func(b *graph.Builder) { b.Input("x", f32(2)); b.Input("x", f32(3)) },
			"layers.3.mlp: input x is declared as f32[2] and as f32[3]",
		},
		"state declared otherwise": {
			func(b *graph.Builder) { b.Param("w", graph.Zeros(), 2); b.Param("w", graph.Zeros(), 3) },
			"state layers.3.mlp.w is declared as f32[2] and as f32[3]",
		},
		"linear": {
			func(b *graph.Builder) { b.Linear(b.Input("x", f32(2, 3)), b.Input("w", f32(5, 4)), nil) },
			"layers.3.mlp: linear: x [2,3] does not fit weight [5,4]",
		},
		"reshape": {
			func(b *graph.Builder) { b.Reshape(b.Input("x", f32(7)), 2, -1) },
			"reshape: [7] has 7 elements, [2,3] has 6",
		},
	} {
		b := graph.NewBuilder("f")
		err := graph.Catch(func() { b.Scope("layers.3", func() { b.Scope("mlp", func() { c.build(b) }) }) })
		var typed *graph.Error
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &typed) || typed.Layer != "layers.3.mlp" {
			t.Errorf("%s: error is %v, want ...%s...", name, err, c.want)
		}
	}
}

// Catch catches only the builder's own errors.
func TestCatchLetsOtherPanicsThrough(t *testing.T) {
	defer func() {
		if r := recover(); r != "bug" {
			t.Errorf("recovered %v, want the panic itself", r)
		}
	}()
	err := graph.Catch(func() { panic("bug") })
	t.Errorf("Catch returned %v", err)
}

func TestScopesAndBlocks(t *testing.T) {
	b := graph.NewBuilder("f")
	x := b.Input("x", f32(2))
	b.Neg(x)
	b.Block("a", func() {
		b.Neg(x)
		b.Block("b", func() { b.Neg(x) })
		b.Scope("c", func() { b.Neg(x) })
	})
	b.Block("d", func() {
		b.InBackward(func() { b.Neg(x) })
		w := b.Param("w", graph.Zeros(), 2, 2)
		v := b.Param("v", graph.Zeros(), 2)
		if w.Name != "d.w" || !w.State.Decay || v.State.Decay || b.Param("w", graph.Zeros(), 2, 2) != w {
			t.Errorf("parameters are %+v and %+v", *w.State, *v.State)
		}
	})
	type mark struct {
		layer    string
		block    int
		backward bool
	}
	want := []mark{{"", 0, false}, {"a", 1, false}, {"a.b", 2, false}, {"a.c", 1, false}, {"d", 3, true}}
	for i, n := range b.F.Nodes {
		if got := (mark{n.Layer, n.Block, n.Backward}); got != want[i] {
			t.Errorf("node %d is marked %+v, want %+v", i, got, want[i])
		}
	}
	more := graph.Extend(b.F)
	more.Block("e", func() { more.Neg(x) })
	if n := b.F.Nodes[len(b.F.Nodes)-1]; n.Block != 4 {
		t.Errorf("the next block of an extended function is %d, want 4", n.Block)
	}
	more.At(b.F.Nodes[2], func() { more.AsClone(func() { more.Neg(x) }) })
	if n := b.F.Nodes[len(b.F.Nodes)-1]; n.Block != 2 || n.Layer != "a.b" || !n.Clone {
		t.Errorf("a node where node 2 belongs is marked %+v", n)
	}
}

// Two operations must never draw the same random numbers.
func TestStreamsAreDistinct(t *testing.T) {
	b := graph.NewBuilder("f")
	x := b.Input("x", f32(2, 2, 6))
	b.Dropout(x, 0.5, 1)
	b.Attention(graph.Attention{Heads: 1, Layout: graph.PackedQKV, Drop: 0.5, Seed: 1, Stream: b.Stream()}, x, b.F.Input(graph.RunCounter))
	graph.Extend(b.F).Dropout(x, 0.5, 1)
	seen := map[uint32]bool{}
	for _, n := range b.F.Nodes {
		var s uint32
		switch op := n.Op.(type) {
		case graph.Dropout:
			s = op.Stream
		case graph.Attention:
			s = op.Stream
		}
		if s == 0 || seen[s] {
			t.Errorf("stream %d of %s is not its own", s, n.Op.Name())
		}
		seen[s] = true
	}
	if y := b.Dropout(x, 0, 1); y != x {
		t.Error("dropping nothing emits an operation")
	}
}

func TestLookups(t *testing.T) {
	f, x, s := small()
	if f.Input("x") != x || f.Input("s") != nil || f.StateValue("s") != s || f.StateValue("x") != nil {
		t.Error("inputs and states are not found by name")
	}
	if f.Output("y") != f.Nodes[1].Out[0] || f.Output("x") != nil {
		t.Error("outputs are not found by name")
	}
	uses := f.Uses()
	for v, want := range map[*graph.Value]int{x: 1, s: 2, f.Nodes[1].Out[0]: 2, f.Nodes[2].Out[0]: 1} {
		if uses[v.ID] != want {
			t.Errorf("%s has %d uses, want %d", v.Label(), uses[v.ID], want)
		}
	}
}

func TestLabels(t *testing.T) {
	b := graph.NewBuilder("f")
	x := b.Input("x", f32(2, 3))
	var y []*graph.Value
	b.Scope("norm", func() { y = b.Emit(graph.LayerNorm{}, x, b.Input("g", f32(3)), b.Input("b", f32(3))) })
	for v, want := range map[*graph.Value]string{
		x: "x", y[0]: "norm/layer_norm", y[2]: "norm/layer_norm#2", b.F.NewValue(f32()): "v6",
	} {
		if v.Label() != want {
			t.Errorf("label is %q, want %q", v.Label(), want)
		}
	}
}
