package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// program draws a random program over vectors with a state that is written
// now and then, and an environment for it.
func program(t *rapid.T) (*graph.Func, ref.Env) {
	b := graph.NewBuilder("random")
	env := ref.Env{}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "data"), 0))
	fill := func(name string) {
		for range 3 {
			env[name] = append(env[name], rng.NormFloat64())
		}
	}
	state := b.State(&graph.State{Name: "s", Type: vec})
	fill("s")
	var vals []*graph.Value
	for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
		v := b.Input(fmt.Sprint("x", i), vec)
		fill(v.Name)
		vals = append(vals, v)
	}
	pick := func() *graph.Value { return rapid.SampledFrom(append(slices.Clone(vals), state)).Draw(t, "operand") }
	for range rapid.IntRange(1, 20).Draw(t, "nodes") {
		b.Block("part", func() {
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				state = b.Accumulate(state, pick())
			case 1:
				vals = append(vals, b.Add(pick(), pick()))
			case 2:
				vals = append(vals, b.Sub(pick(), pick()))
			case 3:
				vals = append(vals, b.Tanh(b.Mul(pick(), pick())))
			case 4:
				vals = append(vals, b.Sub(pick(), b.MaxAlong(pick())))
			case 5:
				vals = append(vals, b.Reshape(b.Softmax(b.Reshape(b.MulC(pick(), 1), 1, 3)), 3))
			case 6:
				g := b.Emit(graph.LayerNorm{Eps: 1}, pick(), pick(), pick())
				vals = append(vals, b.Add(g[0], g[2]))
			}
		})
	}
	b.Output("state", state)
	for i, v := range vals {
		b.Output(fmt.Sprint("y", i), v)
	}
	if err := graph.Verify(b.F); err != nil {
		t.Fatal(err)
	}
	return b.F, env
}

func mustRun(t *rapid.T, f *graph.Func, env ref.Env) ref.Env {
	res, err := ref.Run(f, env, ref.Exact)
	if err != nil {
		t.Fatal(err)
	}
	return res.Outputs
}

// Rewriting nothing gives the same program: the same operations in the same
// order with the same marks, and the old function stays as it was.
func TestRewriteNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, env := program(t)
		text := f.String()
		g, err := f.Rewrite(func(*graph.Builder, *graph.Node, []*graph.Value) []*graph.Value { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := graph.Verify(g); err != nil {
			t.Fatal(err)
		}
		if f.String() != text {
			t.Fatal("rewriting changed the function it started from")
		}
		if len(f.Nodes) != len(g.Nodes) {
			t.Fatalf("%d nodes became %d", len(f.Nodes), len(g.Nodes))
		}
		for i, n := range f.Nodes {
			if m := g.Nodes[i]; graph.Key(m.Op) != graph.Key(n.Op) || m.Layer != n.Layer || m.Block != n.Block {
				t.Fatalf("node %d was %+v, is %+v", i, n, m)
			}
		}
		if want, got := mustRun(t, f, env), mustRun(t, g, env); !sameEnv(want, got, 0) {
			t.Fatalf("results differ:\n%v\n%v", want, got)
		}
	})
}

// Replacing operations by equivalent ones keeps the results: a difference by a sum with a
// negation, a mean by several nodes, and inputs by values computed at the first use.
func TestRewriteKeepsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, env := program(t)
		g, err := f.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
			e, ok := n.Op.(graph.Elementwise)
			switch {
			case ok && e.Fn == graph.FnSub:
				return []*graph.Value{b.Add(in[0], b.Neg(in[1]))}
			case ok && e.Fn == graph.FnMul:
				return []*graph.Value{b.Mul(in[1], in[0])}
			case ok && e.Fn == graph.FnTanh: // tanh x = 2 sigmoid 2x - 1
				return []*graph.Value{b.AddC(b.MulC(b.Sigmoid(b.MulC(in[0], 2)), 2), -1)}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := graph.Verify(g); err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			if e, ok := n.Op.(graph.Elementwise); ok && (e.Fn == graph.FnSub || e.Fn == graph.FnTanh) {
				t.Fatalf("%v is still there", e.Fn)
			}
			if n.Layer != "part" || n.Block == 0 {
				t.Fatalf("replacement %+v lost its place", n)
			}
		}
		if want, got := mustRun(t, f, env), mustRun(t, g, env); !sameEnv(want, got, 1e-9) {
			t.Fatalf("results differ:\n%v\n%v", want, got)
		}
	})
}

func TestRewriteReportsErrors(t *testing.T) {
	f, _, _ := small()
	_, err := f.Rewrite(func(b *graph.Builder, _ *graph.Node, in []*graph.Value) []*graph.Value {
		return []*graph.Value{b.MatMul(in[0], in[0], false, false)}
	})
	if err == nil || !strings.Contains(err.Error(), "matmul") {
		t.Errorf("error is %v, want the matmul's", err)
	}
}

func sameEnv(a, b ref.Env, tol float64) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !slices.EqualFunc(a[name], b[name], func(x, y float64) bool {
			return x == y || math.Abs(x-y) <= tol*(1+math.Abs(x))
		}) {
			return false
		}
	}
	return true
}
