package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

var vec = graph.T(graph.F32, 3)

// small is a correct program with an input x, states s and w, and a write of s.
func small() (f *graph.Func, x, s *graph.Value) {
	b := graph.NewBuilder("small")
	x = b.Input("x", vec)
	s = b.State(&graph.State{Name: "s", Type: vec, Role: graph.Gradient})
	w := b.State(&graph.State{Name: "w", Type: vec})
	y := b.Mul(b.Add(x, s), w)
	b.Output("s", b.Accumulate(s, y))
	b.Output("y", y)
	return b.F, x, s
}

func TestVerifyAccepts(t *testing.T) {
	f, _, _ := small()
	if err := graph.Verify(f); err != nil {
		t.Error(err)
	}
}

// Each row breaks one invariant; the verifier must name it.
func TestVerifyCatches(t *testing.T) {
	// node appends an unchecked node.
	node := func(f *graph.Func, op graph.Op, types []graph.Type, in ...*graph.Value) *graph.Node {
		n := &graph.Node{Op: op, In: in}
		for i, typ := range types {
			v := f.NewValue(typ)
			v.Node, v.Index = n, i
			n.Out = append(n.Out, v)
		}
		f.Nodes = append(f.Nodes, n)
		return n
	}
	neg := graph.Elementwise{Fn: graph.FnNeg}
	one := []graph.Type{vec}
	for name, c := range map[string]struct {
		spoil func(f *graph.Func, x, s *graph.Value)
		want  string
	}{
		"unnamed input": {
			func(_ *graph.Func, x, _ *graph.Value) { x.Name = "" },
			`input or state "" is unnamed, computed or declared twice`,
		},
		"computed input": {
			func(f *graph.Func, _, _ *graph.Value) {
				f.Nodes[0].Out[0].Name = "y"
				f.Inputs = append(f.Inputs, f.Nodes[0].Out[0])
			},
			`input or state "y" is unnamed, computed or declared twice`,
		},
		"two inputs of one name": {
			func(f *graph.Func, _, _ *graph.Value) {
				v := f.NewValue(vec)
				v.Name = "x"
				f.Inputs = append(f.Inputs, v)
			},
			`input or state "x" is unnamed, computed or declared twice`,
		},
		"input and state of one name": {
			func(_ *graph.Func, x, _ *graph.Value) { x.Name = "w" },
			`input or state "w" is unnamed, computed or declared twice`,
		},
		"input declared twice": {
			func(f *graph.Func, _, s *graph.Value) {
				again := *s
				again.Name = "again"
				f.Inputs = append(f.Inputs, &again)
			},
			"is defined twice",
		},
		"foreign ID": {
			func(_ *graph.Func, x, _ *graph.Value) { x.ID = 99 },
			"value x has ID 99 of",
		},
		"negative ID": {
			func(_ *graph.Func, x, _ *graph.Value) { x.ID = -1 },
			"value x has ID -1 of",
		},
		"value of another function": {
			func(f *graph.Func, _, _ *graph.Value) { g, x, _ := small(); _ = g; node(f, neg, one, x) },
			"node 3 (neg ) reads v0 (x), which is not defined before it",
		},
		"missing operand": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes[0].In[1] = nil },
			"node 0 (add ) lacks an operand",
		},
		"use before definition": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes[0], f.Nodes[1] = f.Nodes[1], f.Nodes[0] },
			"node 0 (mul ) reads v3 (add), which is not defined before it",
		},
		"node twice": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes = append(f.Nodes, f.Nodes[1]) },
			"value v4 (mul) is defined twice",
		},
		"shape rule": {
			func(f *graph.Func, x, _ *graph.Value) { node(f, graph.Softmax{}, one, x, x) },
			"node 3 (softmax ): takes 1 operands, got 2",
		},
		"result type": {
			func(f *graph.Func, x, _ *graph.Value) { node(f, neg, []graph.Type{graph.T(graph.F32, 4)}, x) },
			"result 0 is f32[4], the shape rule gives f32[3]",
		},
		"result count": {
			func(f *graph.Func, x, _ *graph.Value) { node(f, neg, []graph.Type{vec, vec}, x) },
			"has 2 results, the shape rule gives 1",
		},
		"result of another node": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes[0].Out[0].Node = f.Nodes[1] },
			"node 0 (add ): result 0 is",
		},
		"write of an input": {
			func(f *graph.Func, x, _ *graph.Value) { node(f, graph.Assign{}, one, x, x) },
			"writes operand 0 (x) in place, which is not a state",
		},
		"version unmarked": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes[2].Out[0].State = nil },
			"result 0 is not marked as the next version of state s",
		},
		"version marked as another state": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes[2].Out[0].State = f.StateValue("w").State },
			"result 0 is not marked as the next version of state s",
		},
		"version of another type": {
			func(f *graph.Func, _, _ *graph.Value) {
				w := f.StateValue("w")
				n := node(f, retype{}, []graph.Type{graph.T(graph.F16, 3)}, w)
				n.Out[0].State = w.State
			},
			"version f32[3] of state w becomes f16[3]",
		},
		"one state written twice by a node": {
			func(f *graph.Func, _, _ *graph.Value) {
				w := f.StateValue("w")
				n := node(f, twice{}, []graph.Type{vec, vec}, w, w)
				n.Out[0].State, n.Out[1].State = w.State, w.State
			},
			"writes v2 (w) twice",
		},
		"read after write": {
			func(f *graph.Func, _, s *graph.Value) { node(f, neg, one, s) },
			"node 3 (neg ) reads v1 (s) after it was overwritten in place",
		},
		"second write of one version": {
			func(f *graph.Func, x, s *graph.Value) {
				n := node(f, graph.Assign{}, one, s, x)
				n.Out[0].State = s.State
			},
			"node 3 (assign ) reads v1 (s) after it was overwritten in place",
		},
		"read of a view after write": {
			func(f *graph.Func, _, s *graph.Value) {
				row := node(f, graph.Reshape{Shape: graph.Shape{1, 3}}, []graph.Type{graph.T(graph.F32, 1, 3)}, s)
				column := node(f, graph.Reshape{Shape: graph.Shape{3, 1}}, []graph.Type{graph.T(graph.F32, 3, 1)}, row.Out[0])
				node(f, neg, []graph.Type{graph.T(graph.F32, 3, 1)}, column.Out[0])
				// x, row, column, then the write, then the read of column.
				f.Nodes = []*graph.Node{f.Nodes[0], f.Nodes[1], f.Nodes[3], f.Nodes[4], f.Nodes[2], f.Nodes[5]}
			},
			"node 5 (neg ) reads v7 (reshape) after it was overwritten in place",
		},
		"recomputed write": {
			func(f *graph.Func, _, _ *graph.Value) { f.Nodes[2].Clone = true },
			"node 2 (accumulate ) is recomputed, but running it twice changes the program",
		},
		"output of an overwritten version": {
			func(f *graph.Func, _, s *graph.Value) { f.Outputs[1].Value = s },
			"output y reads v1 (s) after it was overwritten in place",
		},
		"output from nowhere": {
			func(f *graph.Func, _, _ *graph.Value) { f.Outputs[1].Value = f.NewValue(vec) },
			"output y reads v6 (v6), which is not defined before it",
		},
		"output without value": {
			func(f *graph.Func, _, _ *graph.Value) { f.Outputs[1].Value = nil },
			"output y lacks an operand",
		},
		"unnamed output": {
			func(f *graph.Func, _, _ *graph.Value) { f.Outputs[1].Name = "" },
			`output "" is unnamed or declared twice`,
		},
		"two outputs of one name": {
			func(f *graph.Func, _, _ *graph.Value) { f.Outputs[1].Name = "s" },
			`output "s" is unnamed or declared twice`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, x, s := small()
			c.spoil(f, x, s)
			err := graph.Verify(f)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want ...%s...", err, c.want)
			}
		})
	}
}

// retype and twice are operations that no program should have.
type retype struct{ graph.Constant }

func (retype) Infer([]graph.Type) ([]graph.Type, error) {
	return []graph.Type{graph.T(graph.F16, 3)}, nil
}
func (retype) Aliases(int) []graph.Alias { return []graph.Alias{{Out: 0, In: 0}} }

type twice struct{ graph.Constant }

func (twice) Infer(in []graph.Type) ([]graph.Type, error) { return in, nil }
func (twice) Aliases(int) []graph.Alias {
	return []graph.Alias{{Out: 0, In: 0}, {Out: 1, In: 1}}
}

// States of a function share no memory, and a window lies within its state.
func TestVerifyWindows(t *testing.T) {
	whole := &graph.State{Name: "w", Type: graph.T(graph.F32, 2, 50)}
	part := func(from, n int, d graph.DType) *graph.State {
		return &graph.State{Name: fmt.Sprint("w from ", from), Type: graph.T(d, n), Of: whole, From: int64(from)}
	}
	for name, c := range map[string]struct {
		states []*graph.State
		want   string // empty: nothing is wrong
	}{
		"neighbors":    {[]*graph.State{part(0, 64, graph.F32), part(64, 36, graph.F32)}, ""},
		"overlap":      {[]*graph.State{part(16, 64, graph.F32), part(64, 36, graph.F32)}, "states w from 16 and w from 64 overlap"},
		"with whole":   {[]*graph.State{part(0, 64, graph.F32), whole}, "state w from 0 is a part of w, which is used too"},
		"behind end":   {[]*graph.State{part(64, 37, graph.F32)}, "elements 64 to 101 as f32[37], is no part of w, which is f32[2,50]"},
		"before start": {[]*graph.State{part(-1, 2, graph.F32)}, "is no part of w"},
		"other format": {[]*graph.State{part(0, 2, graph.BF16)}, "as bf16[2], is no part of w"},
	} {
		t.Run(name, func(t *testing.T) {
			b := graph.NewBuilder("f")
			for _, s := range c.states {
				b.State(s)
			}
			err := graph.Verify(b.F)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
