package ref_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// A state written in place has versions: what was computed before the write
// keeps the old elements, and the environment is not touched.
func TestStatesHaveVersions(t *testing.T) {
	b := graph.NewBuilder("versions")
	s := b.State(&graph.State{Name: "s", Type: graph.T(graph.F32, 2)})
	x := b.Input("x", graph.T(graph.F32, 2))
	before := b.MulC(s, 1)
	s = b.Accumulate(s, x)
	s = b.Accumulate(s, x)
	b.Output("before", before)
	b.Output("after", s)
	env := ref.Env{"s": {1, 2}, "x": {10, 20}, "unused": {5}}
	res, err := ref.Run(b.F, env, ref.Exact)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][2][]float64{
		"output before": {res.Outputs["before"], {1, 2}},
		"output after":  {res.Outputs["after"], {21, 42}},
		"state s":       {res.States["s"], {21, 42}},
		"environment s": {env["s"], {1, 2}},
	} {
		if !slices.Equal(c[0], c[1]) {
			t.Errorf("%s is %v, want %v", name, c[0], c[1])
		}
	}
}

func TestModes(t *testing.T) {
	b := graph.NewBuilder("modes")
	x := b.Input("x", graph.T(graph.BF16, 1))
	b.Output("y", b.AddC(x, 0.001))
	for mode, want := range map[ref.Mode]float64{ref.Exact: 1.004, ref.Rounded: 1} {
		res, err := ref.Run(b.F, ref.Env{"x": {1.003}}, mode)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Outputs["y"][0]; math.Abs(got-want) > 1e-12 {
			t.Errorf("mode %d gives %v, want %v", mode, got, want)
		}
	}
}

func TestRunErrors(t *testing.T) {
	f32, i32 := graph.F32, graph.I32
	for name, c := range map[string]struct {
		build func(b *graph.Builder)
		env   ref.Env
		want  string
	}{
		"missing input": {
			func(b *graph.Builder) { b.Input("x", graph.T(f32, 2)) }, ref.Env{},
			"input x f32[2] is missing",
		},
		"missing state": {
			func(b *graph.Builder) { b.State(&graph.State{Name: "w", Type: graph.T(f32)}) }, ref.Env{},
			"state w f32[] is missing",
		},
		"wrong size": {
			func(b *graph.Builder) { b.Input("x", graph.T(f32, 2)) }, ref.Env{"x": {1, 2, 3}},
			"x is f32[2], but the environment has 3 elements",
		},
		"id": {
			func(b *graph.Builder) { b.Embedding(b.Input("t", graph.T(f32, 2, 1)), b.Input("ids", graph.T(i32, 2))) },
			ref.Env{"t": {1, 2}, "ids": {0, 2}},
			"node 0 (embedding ): id 2 at position 1 is outside [0, 2)",
		},
		"id of a gradient": {
			func(b *graph.Builder) {
				b.Emit(graph.EmbeddingGrad{Vocab: 2}, b.Input("dy", graph.T(f32, 1, 1)), b.Input("ids", graph.T(i32, 1)))
			},
			ref.Env{"dy": {1}, "ids": {-1}},
			"id -1 at position 0 is outside [0, 2)",
		},
		"label": {
			func(b *graph.Builder) {
				b.CrossEntropy(b.Input("x", graph.T(f32, 1, 3)), b.Input("labels", graph.T(i32, 1)), b.Input("w", graph.T(f32, 1)))
			},
			ref.Env{"x": {1, 2, 3}, "labels": {3}, "w": {1}},
			"label 3 of row 0 is outside the vocabulary of 3",
		},
		"position": {
			func(b *graph.Builder) {
				b.Rotary(graph.Rotary{Heads: 1, Dims: 2, Offset: true},
					b.Input("x", graph.T(f32, 1, 1, 2)), b.RotaryTable(3, 2, 10), b.Input("first", graph.T(i32, 1)))
			},
			ref.Env{"x": {1, 2}, "first": {3}},
			"row 0 has position 3, the table has 3",
		},
		"cache": {
			func(b *graph.Builder) {
				c := b.State(&graph.State{Name: "cache", Type: graph.T(f32, 1, 2, 1)})
				b.Emit(graph.CacheWrite{}, c, b.Input("x", graph.T(f32, 1, 2, 1)), b.Input("pos", graph.T(i32, 1)))
			},
			ref.Env{"cache": {0, 0}, "x": {1, 2}, "pos": {1}},
			"row 0 writes positions 1..2 of a cache of 2",
		},
	} {
		b := graph.NewBuilder("f")
		if err := graph.Catch(func() { c.build(b) }); err != nil {
			t.Fatal(err)
		}
		_, err := ref.Run(b.F, c.env, ref.Exact)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want ...%s...", name, err, c.want)
		}
	}
}

// Attention means softmax of masked scores, dropout over the [B,H,Tq,Tk] weights in
// row-major order, times the values: written with plain operations it gives the same
// result, for every layout and mask.
func TestAttentionIsSoftmax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &probe{Builder: graph.NewBuilder("attention"), t: t, env: ref.Env{}, dtype: graph.F32, rng: source(t)}
		batch, heads, k := p.int("batch", 1, 2), p.int("heads", 1, 3), p.int("k", 1, 3)
		tq, tk := p.int("tq", 1, 5), p.int("tk", 1, 5)
		op := graph.Attention{
			Heads: heads, Scale: 0.6, Causal: p.bool("causal"), Lens: p.bool("lens"), Segments: p.bool("segments"),
			Layout: rapid.SampledFrom(layouts).Draw(t, "layout"), Seed: 3, Stream: 4,
		}
		if p.bool("drop") {
			op.Drop = 0.4
		}
		if op.Segments || op.Layout != graph.Separate {
			tk = tq
		}
		// q, k and v are [B,T,H,K]; the packed layouts join them.
		q, kk, v := p.x(batch, tq, heads, k), p.x(batch, tk, heads, k), p.x(batch, tk, heads, k)
		var in []*graph.Value
		switch op.Layout {
		case graph.Separate:
			for _, x := range []*graph.Value{q, kk, v} {
				in = append(in, p.Reshape(x, batch, -1, heads*k))
			}
		case graph.PackedHeads:
			in = append(in, p.Reshape(p.Concat(3, q, kk, v), batch, tq, 3*heads*k))
		case graph.PackedQKV:
			in = append(in, p.Reshape(p.Concat(2, q, kk, v), batch, tq, 3*heads*k))
		}
		lens := make([]float64, batch)
		for i := range lens {
			lens[i] = float64(tk)
		}
		if op.Lens {
			n := p.ints(1, tk, batch)
			in, lens = append(in, n), p.env[n.Name]
		}
		seg := make([]float64, batch*tq)
		if op.Segments {
			s := p.ints(0, 1, batch, tq)
			in, seg = append(in, s), p.env[s.Name]
		}
		rng := p.ints(0, 100, 2)
		if op.Drop > 0 {
			in = append(in, rng)
		}
		// visible is the mask as the documentation describes it.
		var visible []float64
		for b := range batch {
			n := int(lens[b])
			first := 0 // the position of query 0
			if n > tq {
				first = n - tq
			}
			for range heads {
				for i := range tq {
					for j := range tk {
						see := j < n && (!op.Causal || j <= first+i) && (!op.Segments || seg[b*tq+i] == seg[b*tq+j])
						visible = append(visible, map[bool]float64{true: 1}[see])
					}
				}
			}
		}
		i := -1
		see := p.declare(graph.T(graph.F32, batch, heads, tq, tk), func() float64 { i++; return visible[i] })
		front := func(x *graph.Value) *graph.Value { return p.Transpose(x, 0, 2, 1, 3) }
		scores := p.MulC(p.MatMul(front(q), front(kk), false, true), op.Scale)
		// e^x over what is seen, not Softmax, so that rows that see nothing stay 0.
		e := p.Mul(p.Exp(scores), see)
		sum := p.SumKeep(e, -1)
		w := p.Div(e, p.Add(sum, p.Apply(graph.FnEqual, sum, p.Scalar(0))))
		if op.Drop > 0 {
			w = p.Emit(graph.Dropout{P: op.Drop, Seed: op.Seed, Stream: op.Stream}, w, rng)[0]
		}
		y := p.Emit(op, in...)
		p.Output("attention", y[0])
		p.Output("lse", y[1])
		p.Output("plain", front(p.MatMul(w, front(v), false, false)))
		p.Output("plain_lse", p.Log(sum))
		res := p.run()
		for _, c := range [][2]string{{"attention", "plain"}, {"lse", "plain_lse"}} {
			got, want := res.Outputs[c[0]], res.Outputs[c[1]]
			for i := range want {
				if got[i] != want[i] && !(math.Abs(got[i]-want[i]) < 1e-12) {
					t.Fatalf("%+v: %s[%d] is %v, by plain operations %v", op, c[0], i, got[i], want[i])
				}
			}
		}
	})
}
