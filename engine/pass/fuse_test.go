package pass_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// shapeOf describes what became of a function: its nodes except views, constants and
// reductions, with bodies spelled out.
func shapeOf(f *graph.Func) []string {
	var s []string
	for _, n := range f.Nodes {
		var body *graph.Body
		maps := ""
		switch op := n.Op.(type) {
		case graph.Fused:
			body = op.Body
		case graph.MatMul:
			body = op.Body
			for k, m := range []graph.Elementwise{op.MapA, op.MapB} {
				if m != (graph.Elementwise{}) {
					maps += fmt.Sprintf(" %c=%s", 'A'+k, m.Name())
				}
			}
			if op.SumA {
				maps += " sums"
			}
		case graph.Reduce, graph.Constant, graph.Reshape:
			continue
		}
		name := n.Op.Name()
		if body != nil {
			var steps []string
			for _, st := range body.Instrs {
				steps = append(steps, st.Op.Name())
			}
			name += fmt.Sprintf("(%s)%d", strings.Join(steps, " "), len(n.Out))
		}
		s = append(s, name+maps)
	}
	return s
}

// Which operations are fused.
func TestFuseShapes(t *testing.T) {
	const n, d, ff = 64, 32, 48
	type build func(b *graph.Builder, x *graph.Value)
	w := func(b *graph.Builder, name string, dims ...int) *graph.Value {
		return b.Param(name, graph.Normal(.1), dims...)
	}
	for _, c := range []struct {
		name  string
		build build
		want  []string
	}{
		{"bias and activation", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.GELU(b.Linear(x, w(b, "w", ff, d), w(b, "c", ff))))
		}, []string{"matmul(add gelu)1"}},
		{"what the backward half wants is a result of its own", func(b *graph.Builder, x *graph.Value) {
			h := b.Linear(x, w(b, "w", ff, d), w(b, "c", ff))
			b.Output("y", b.GELU(h))
			b.Output("h", b.Sum(h))
		}, []string{"matmul(add gelu)2"}},
		{"through views", func(b *graph.Builder, x *graph.Value) {
			h := b.Linear(b.Reshape(x, 4, n/4, d), w(b, "w", d, d), w(b, "c", d))
			b.Output("y", b.Add(b.Reshape(x, 4, n/4, d), b.Tanh(h)))
		}, []string{"matmul(add tanh add)1"}},
		{"an operand that the view cannot stretch stays outside", func(b *graph.Builder, x *graph.Value) {
			h := b.Linear(b.Reshape(x, 4, n/4, d), w(b, "w", d, d), nil)
			b.Output("y", b.Tanh(b.Mul(h, w(b, "p", n/4, d))))
		}, []string{"matmul", "fused(mul tanh)1"}},
		{"the later of two matmuls adds them", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Add(b.Linear(x, w(b, "w", ff, d), nil), b.Linear(x, w(b, "v", ff, d), nil)))
		}, []string{"matmul", "matmul(add)1"}},
		{"a matmul waits for what is added to it", func(b *graph.Builder, x *graph.Value) {
			y := b.Linear(x, w(b, "w", ff, d), w(b, "c", ff))
			b.Output("y", b.Add(y, b.Softmax(b.Linear(x, w(b, "v", ff, d), nil))))
		}, []string{"matmul", "softmax", "matmul(add add)1"}},
		{"unless another node needs it before", func(b *graph.Builder, x *graph.Value) {
			y := b.Linear(x, w(b, "w", ff, d), w(b, "c", ff))
			b.Output("y", b.Add(y, b.Softmax(y)))
		}, []string{"matmul(add)1", "softmax", "add"}},
		{"a gate joins the second matmul", func(b *graph.Builder, x *graph.Value) {
			g := b.SiLU(b.Linear(x, w(b, "w", ff, d), nil))
			b.Output("y", b.Mul(g, b.Linear(x, w(b, "v", ff, d), nil)))
		}, []string{"matmul(silu)1", "matmul(mul)1"}},
		{"a chain is one loop", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Tanh(b.Add(b.MulC(x, 2), b.Sigmoid(x))))
		}, []string{"fused(mulc sigmoid add tanh)1"}},
		{"stretching needs no step", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Mul(b.BroadcastTo(w(b, "c", d), n, d), b.Tanh(x)))
		}, []string{"fused(tanh mul)1"}},
		{"scalars stay with scalars", func(b *graph.Builder, x *graph.Value) {
			s := b.Sqrt(b.AddC(b.Sum(x), 1))
			b.Output("y", b.Tanh(b.Mul(x, s)))
		}, []string{"fused(addc sqrt)1", "fused(mul tanh)1"}},
		{"a loop does not wait across other work", func(b *graph.Builder, x *graph.Value) {
			a := b.Mul(b.Softmax(x), b.Softmax(b.Input("z", x.Type)))
			s := b.Softmax(b.Input("v", x.Type))
			b.Output("y", b.Add(a, s))
		}, []string{"softmax", "softmax", "mul", "softmax", "add"}},
		{"unless that keeps nothing alive", func(b *graph.Builder, x *graph.Value) {
			a := b.Mul(b.Tanh(x), b.Input("z", x.Type))
			b.Output("y", b.Add(a, b.Softmax(x)))
		}, []string{"softmax", "fused(tanh mul add)1"}},
		{"a state is read before it is written", func(b *graph.Builder, x *graph.Value) {
			s := b.State(&graph.State{Name: "s", Type: x.Type, Role: graph.Buffer})
			a := b.Tanh(s)
			next := b.Accumulate(s, x)
			b.Output("y", b.Add(a, b.MulC(next, 2)))
		}, []string{"tanh", "accumulate", "fused(mulc add)1"}},
		{"sums over columns join what makes their operand", func(b *graph.Builder, x *graph.Value) {
			y := b.Tanh(x)
			b.Output("y", y)
			b.Output("s", b.Sum(y, 0))
		}, []string{"fused(tanh)2"}},
		{"or reads it, and what only they read is no result", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Tanh(x))
			b.Output("s", b.Sum(x, 0))
			b.Output("t", b.Sum(b.Mul(x, b.Sigmoid(x)), 0))
		}, []string{"fused(tanh sigmoid mul)3"}},
		{"sums over rows do not, nor what is a sum only", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Tanh(x))
			b.Output("s", b.Sum(x, 1))
			b.Output("t", b.Sum(b.Sigmoid(b.Softmax(x)), 0))
		}, []string{"tanh", "softmax", "sigmoid"}},
		{"matmuls put an operand that stays through a function", func(b *graph.Builder, x *graph.Value) {
			h := b.Linear(x, w(b, "w", ff, d), nil)
			g := b.GELU(b.Reshape(h, 2, n/2, ff))
			b.Output("y", b.Linear(g, w(b, "v", d, ff), w(b, "c", d)))
			b.Output("z", b.MatMul(x, b.Reshape(g, n, ff), true, false))
			b.Output("s", b.Softmax(h))
		}, []string{"matmul", "matmul(add)1 A=gelu", "matmul B=gelu", "softmax"}},
		{"but not one that is transposed, nor where somebody else wants the result", func(b *graph.Builder, x *graph.Value) {
			v := b.Linear(x, w(b, "w", d, d), nil)
			b.Output("y", b.MatMul(b.GELU(v), x, true, false))
			b.Output("z", b.Softmax(v))
			h := b.GELU(x)
			b.Output("h", b.Softmax(h))
			b.Output("u", b.Linear(h, w(b, "u", d, d), nil))
		}, []string{"matmul(gelu)2", "matmul", "softmax", "gelu", "softmax", "matmul"}},
		{"nor what nobody wants but the function", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Linear(b.GELU(b.Linear(x, w(b, "w", ff, d), nil)), w(b, "v", d, ff), nil))
		}, []string{"matmul(gelu)1", "matmul"}},
		{"matmuls sum the columns of what they read transposed", func(b *graph.Builder, x *graph.Value) {
			g := b.Softmax(x)
			b.Output("w", b.MatMul(g, x, true, false))
			b.Output("c", b.Sum(b.Reshape(g, 2, n/2, d), 0, 1))
			b.Output("v", b.MatMul(g, g, true, false))
		}, []string{"softmax", "matmul sums", "matmul"}},
		{"but not when somebody needs the sums before", func(b *graph.Builder, x *graph.Value) {
			g := b.Softmax(x)
			s := b.Softmax(b.Sum(g, 0))
			b.Output("w", b.MatMul(g, x, true, false))
			b.Output("s", s)
		}, []string{"softmax", "softmax", "matmul"}},
		{"matmuls of several matrices take nothing on", func(b *graph.Builder, x *graph.Value) {
			b.Output("y", b.Tanh(b.MatMul(b.Reshape(x, 2, n/2, d), b.Reshape(x, 2, n/2, d), false, true)))
		}, []string{"matmul", "tanh"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := graph.NewBuilder("f")
			c.build(b, b.Input("x", graph.T(graph.F32, n, d)))
			u := &pass.Unit{F: b.F}
			if err := pass.Run(u, pass.Options{Stop: "fuse", Verify: true}); err != nil {
				t.Fatal(err)
			}
			if got := shapeOf(u.F); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q\n%v", got, c.want, u.F)
			}
		})
	}
}

// A sum fused with a loop adds what the loop read, even if a result of the loop
// overwrites that operand.
func TestFusedSumsOfWhatIsOverwritten(t *testing.T) {
	outputs := func(o engine.CompileOptions) (*run, *engine.Program) {
		b := graph.NewBuilder("f")
		x := b.Softmax(b.Input("x", graph.T(graph.F32, 100, 40)))
		b.Output("s", b.Sum(x, 0))
		b.Output("z", b.Softmax(b.Neg(x)))
		p, err := engine.CompileForward(o, b.F)
		if err != nil {
			t.Fatal(err)
		}
		r, err := execute(p, "f")
		if err != nil {
			t.Fatal(err)
		}
		return r, p
	}
	got, p := outputs(engine.CompileOptions{})
	f := p.Funcs[0].F
	if i := slices.IndexFunc(f.Nodes, func(n *graph.Node) bool { return len(n.Out) == 2 }); i < 0 {
		t.Fatalf("the sum did not join the loop:\n%v", f)
	}
	want, _ := outputs(engine.CompileOptions{Skip: without("fuse")})
	for _, n := range want.names {
		if !slices.Equal(got.data[n], want.data[n]) {
			t.Errorf("%s differs from that of the plain program", n)
		}
	}
}

// A long chain becomes several loops, each within the limits of a body.
func TestFuseKeepsBodiesSmall(t *testing.T) {
	b := graph.NewBuilder("f")
	x := b.Input("x", graph.T(graph.F32, 8, 8))
	y := x
	const pairs = 3 * graph.MaxRegisters
	for i := range pairs {
		y = b.Add(b.Tanh(y), b.Input(fmt.Sprint("z", i), x.Type))
		if i%5 == 0 {
			b.Output(fmt.Sprint("y", i), y)
		}
	}
	u := &pass.Unit{F: b.F}
	if err := pass.Run(u, pass.Options{Verify: true}); err != nil {
		t.Fatal(err)
	}
	loops := 0
	for _, n := range u.F.Nodes {
		f, ok := n.Op.(graph.Fused)
		if !ok {
			continue
		}
		loops++
		if r := f.Body.Inputs + len(f.Body.Instrs); r > graph.MaxRegisters || len(f.Body.Results) > graph.MaxBodyResults {
			t.Errorf("a body of %d registers and %d results", r, len(f.Body.Results))
		}
	}
	// Each of the pairs takes three registers: two steps and an input.
	if least := pairs * 3 / graph.MaxRegisters; loops < least || loops > 2*least {
		t.Errorf("%d loops, want %d or a few more", loops, least)
	}
}

// The two halves do not mix: a forward value never waits for the backward half.
func TestFuseKeepsHalvesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawModel(t).unit(true)
		u.Recompute = rapid.SampledFrom([]pass.Recompute{pass.RecomputeNone, pass.RecomputeFull}).Draw(t, "recompute")
		if err := pass.Run(u, pass.Options{Stop: "accumulate"}); err != nil {
			t.Fatal(err)
		}
		steps := func(f *graph.Func) (forward, backward int) {
			for _, n := range f.Nodes {
				k := 0
				switch op := n.Op.(type) {
				case graph.Elementwise, graph.Dropout:
					k = 1
				case graph.Fused:
					k = len(op.Body.Instrs)
				case graph.MatMul:
					if op.Body != nil {
						k = len(op.Body.Instrs)
					}
					for _, m := range []graph.Elementwise{op.MapA, op.MapB} {
						if m != (graph.Elementwise{}) {
							k++
						}
					}
				case graph.LayerNormGrad:
					k = len(n.In) - 5
				}
				if n.Backward {
					backward += k
				} else {
					forward += k
				}
			}
			return forward, backward
		}
		f0, b0 := steps(u.F)
		v := &pass.Unit{F: u.F}
		all := pass.Names()
		if err := pass.Run(v, pass.Options{Stop: "fuse", Skip: without(all[:slices.Index(all, "fuse")]...), Verify: true}); err != nil {
			t.Fatal(err)
		}
		// Stretched operands need no steps of their own, but may get one as results.
		if f1, b1 := steps(v.F); f1 < f0 || b1 < b0 {
			t.Errorf("%d forward and %d backward steps became %d and %d", f0, b0, f1, b1)
		}
	})
}

// Fusing takes hardly more memory than the plain program, on any program.
func TestFuseTakesNoMoreMemory(t *testing.T) {
	worst, sum, count := 1.0, 0.0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		o := engine.CompileOptions{Recompute: rapid.SampledFrom([]pass.Recompute{pass.RecomputeNone, pass.RecomputeFull}).Draw(t, "recompute")}
		bound := func(skip ...string) float64 {
			o.Skip = without(skip...)
			p, err := engine.CompileTraining(m.training(2), o)
			if err != nil {
				t.Fatal(err)
			}
			return float64(p.Funcs[0].Placement.Bound)
		}
		ratio := bound() / bound("fuse")
		worst = max(worst, ratio)
		sum += ratio
		count++
	})
	t.Logf("peak of the fused program, times that of the plain one: %.3f on average, %.3f at worst", sum/float64(count), worst)
	if sum/float64(count) > 1.005 || worst > 1.5 {
		t.Errorf("fusing raises the peak %.3f times on average, %.3f at worst", sum/float64(count), worst)
	}
}
