package ref_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
)

func TestGradMatMul(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		batch := p.shape(0, 2)
		m, n, k := p.int("m", 1, 4), p.int("n", 1, 4), p.int("k", 1, 4)
		ta, tb := p.bool("transA"), p.bool("transB")
		a, b := graph.Shape{m, k}, graph.Shape{k, n}
		if ta {
			a = graph.Shape{k, m}
		}
		if tb {
			b = graph.Shape{n, k}
		}
		x, y := p.x(append(batch.Clone(), a...)...), p.x(append(batch.Clone(), b...)...)
		return []*graph.Value{p.MatMul(x, y, ta, tb)}
	})
}

func TestGradLinear(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		k, n := p.int("k", 1, 4), p.int("n", 1, 4)
		var bias *graph.Value
		if p.bool("bias") {
			bias = p.x(n)
		}
		return []*graph.Value{p.Linear(p.x(append(p.shape(0, 2), k)...), p.x(n, k), bias)}
	})
}

func TestGradReduce(t *testing.T) {
	for _, kind := range []graph.ReduceKind{graph.ReduceSum, graph.ReduceMean, graph.ReduceMax} {
		t.Run(graph.Reduce{Kind: kind}.Name(), func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value {
				s := p.shape(1, 4)
				axes := p.int("axes", 1, 1<<len(s)-1)
				next := 0.0 // distinct elements: the maximum has no tie
				x := p.operand(s, func() float64 { next++; return 0.1*next*(1-2*float64(p.rng.IntN(2))) + 0.01 })
				return p.Emit(graph.Reduce{Kind: kind, Axes: uint32(axes), Keep: p.bool("keep")}, x)
			})
		})
	}
}

func TestGradShape(t *testing.T) {
	for name, build := range map[string]func(p *probe) *graph.Value{
		"reshape": func(p *probe) *graph.Value { return p.Reshape(p.x(p.shape(0, 4)...), -1) },
		"transpose": func(p *probe) *graph.Value {
			s := p.shape(0, 4)
			dims := make([]int, len(s))
			for i := range dims {
				dims[i] = i
			}
			return p.Transpose(p.x(s...), rapid.Permutation(dims).Draw(p.t, "perm")...)
		},
		"slice": func(p *probe) *graph.Value {
			s, axis, start, n, step := p.slice()
			return p.SliceStep(p.x(s...), axis, start, n, step)
		},
		"slice_grad": func(p *probe) *graph.Value {
			s, axis, start, n, step := p.slice()
			dim := s[axis]
			s[axis] = n
			return p.Emit(graph.SliceGrad{Slice: graph.Slice{Axis: axis, Start: start, Len: n, Step: step}, Dim: dim}, p.x(s...))[0]
		},
		"slice_write": func(p *probe) *graph.Value {
			s, axis, start, n, step := p.slice()
			part := s.Clone()
			part[axis] = n
			return p.Emit(graph.SliceWrite{Slice: graph.Slice{Axis: axis, Start: start, Len: n, Step: step}}, p.x(s...), p.x(part...))[0]
		},
		"pad": func(p *probe) *graph.Value {
			s := p.shape(1, 3)
			return p.Pad(p.x(s...), p.int("axis", 0, len(s)-1), p.int("before", 0, 2), p.int("after", 0, 2))
		},
		"concat": func(p *probe) *graph.Value {
			s := p.shape(1, 3)
			axis := p.int("axis", 0, len(s)-1)
			var xs []*graph.Value
			for range p.int("operands", 1, 4) {
				s[axis] = p.int("extent", 1, 3)
				xs = append(xs, p.x(s.Clone()...))
			}
			return p.Concat(axis, xs...)
		},
		"expand": func(p *probe) *graph.Value {
			s := p.shape(0, 4)
			return p.BroadcastTo(p.x(p.within(s)...), s...)
		},
		"sumto": func(p *probe) *graph.Value {
			s := p.shape(0, 4)
			return p.SumTo(p.x(s...), p.within(s))
		},
	} {
		t.Run(name, func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value { return []*graph.Value{build(p)} })
		})
	}
}

// slice draws a shape with a valid slice of it.
func (p *probe) slice() (s graph.Shape, axis, start, n, step int) {
	s = p.shape(1, 3)
	axis = p.int("axis", 0, len(s)-1)
	s[axis] = p.int("extent", 1, 6)
	start = p.int("start", 0, s[axis]-1)
	step = p.int("step", 1, 3)
	n = p.int("len", 1, (s[axis]-1-start)/step+1)
	return
}

func TestGradEmbedding(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		vocab := p.int("vocab", 1, 5)
		return []*graph.Value{p.Embedding(p.x(vocab, p.int("d", 1, 4)), p.ints(0, vocab-1, p.shape(0, 2)...))}
	})
}

// The rule for the gradient of a table is linear and has a gradient itself.
func TestGradEmbeddingGrad(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		vocab, s := p.int("vocab", 1, 5), p.shape(1, 2)
		dy := p.x(append(s.Clone(), p.int("d", 1, 3))...)
		return p.Emit(graph.EmbeddingGrad{Vocab: vocab}, dy, p.ints(0, vocab-1, s...))
	})
}

func TestGradLayerNorm(t *testing.T) {
	for _, rms := range []bool{false, true} {
		t.Run(graph.LayerNorm{RMS: rms}.Name(), func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value {
				d := p.int("d", 1, 5)
				x, gamma := p.x(append(p.shape(0, 2), d)...), p.full(d)
				if rms {
					return []*graph.Value{p.RMSNorm(x, gamma, 0.5)}
				}
				return []*graph.Value{p.LayerNorm(x, gamma, p.full(d), 0.5)}
			})
		})
	}
}

func TestGradSoftmax(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value { return []*graph.Value{p.Softmax(p.full(p.shape(1, 3)...))} })
}

func TestGradDropout(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		x := p.x(p.shape(0, 3)...)
		p.env[graph.RunCounter] = []float64{float64(p.int("run", 0, 1000)), 0}
		return []*graph.Value{p.Dropout(x, 0.4, rapid.Uint64().Draw(p.t, "seed"))}
	})
}

func TestGradCrossEntropy(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, v := p.int("n", 1, 4), p.int("v", 1, 6)
		weights := p.declare(graph.T(graph.F32, n), p.rng.Float64)
		return []*graph.Value{p.CrossEntropy(p.x(n, v), p.ints(-1, v-1, n), weights)}
	})
}

func TestGradLinearCrossEntropy(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, v, d := p.int("n", 1, 4), p.int("v", 1, 5), p.int("d", 1, 3)
		weights := p.declare(graph.T(graph.F32, n), p.rng.Float64)
		return []*graph.Value{p.LinearCrossEntropy(p.x(n, d), p.x(v, d), p.ints(-1, v-1, n), weights, p.int("chunk", 0, n))}
	})
}

func TestGradRotary(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		batch, time, heads := p.int("batch", 1, 2), p.int("time", 1, 3), p.int("heads", 1, 2)
		half := p.int("half", 1, 2)
		k := 2*half + p.int("unturned", 0, 2)
		op := graph.Rotary{
			Heads: heads, Dims: 2 * half, Inverse: p.bool("inverse"), Offset: p.bool("offset"),
			Layout: rapid.SampledFrom(layouts).Draw(p.t, "layout"),
		}
		width := heads * k
		if op.Layout != graph.Separate {
			width *= 3
		}
		in := []*graph.Value{p.x(batch, time, width), p.RotaryTable(time+2, op.Dims, 100)}
		if op.Offset {
			in = append(in, p.ints(0, 2, batch))
		}
		return []*graph.Value{p.Rotary(op, in...)}
	})
}

var layouts = []graph.Layout{graph.Separate, graph.PackedHeads, graph.PackedQKV}

func TestGradAttention(t *testing.T) {
	for _, layout := range layouts {
		t.Run([]string{"separate", "packed_heads", "packed_qkv"}[layout], func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value {
				batch, heads, k := p.int("batch", 1, 2), p.int("heads", 1, 2), p.int("k", 1, 2)
				tq, tk := p.int("tq", 1, 4), p.int("tk", 1, 4)
				op := graph.Attention{
					Heads: heads, Causal: p.bool("causal"), Scale: 0.7, Layout: layout,
					Lens: p.bool("lens"), Segments: p.bool("segments"), Seed: 5, Stream: 3,
				}
				if op.Segments || layout != graph.Separate {
					tk = tq
				}
				if p.bool("drop") {
					op.Drop = 0.3
				}
				var in []*graph.Value
				if layout == graph.Separate {
					op.KVHeads, op.Heads = heads, heads*p.int("group", 1, 3)
					in = []*graph.Value{p.x(batch, tq, op.Heads*k), p.x(batch, tk, heads*k), p.x(batch, tk, heads*k)}
				} else {
					in = []*graph.Value{p.x(batch, tq, 3*heads*k)}
				}
				if op.Lens {
					in = append(in, p.ints(0, tk, batch))
				}
				if op.Segments {
					in = append(in, p.ints(0, 1, batch, tq))
				}
				if op.Drop > 0 {
					in = append(in, p.ints(0, 99, 2))
				}
				return []*graph.Value{p.Attention(op, in...)}
			})
		})
	}
}

// An operation without a gradient rule fails instead of returning no gradient.
func TestNoSecondDerivatives(t *testing.T) {
	ops := []graph.Op{
		graph.AttentionGrad{}, graph.LayerNormGrad{}, graph.LayerNormGrad{RMS: true}, graph.SoftmaxGrad{},
		graph.CrossEntropyGrad{}, graph.LinearCrossEntropyGrad{}, graph.AdamW{}, graph.AdamW8bit{}, graph.Lion{}, graph.Adafactor{}, graph.SGD{}, graph.StepPart{Step: graph.Lion{}}, graph.GlobalNorm{},
		graph.CacheWrite{}, graph.Fused{},
		graph.Conv2DGradWeight{}, graph.Pool2DGrad{}, graph.ChannelNormGrad{}, graph.RoutedDot{}, graph.GroupedOuter{}, graph.GroupedSum{},
		graph.SelectiveScanGrad{},
	}
	for fn, d := range domains {
		if d == second {
			ops = append(ops, graph.Elementwise{Fn: fn})
		}
	}
	for _, op := range ops {
		b := graph.NewBuilder("second")
		x := b.Input("x", graph.T(graph.F32, 1))
		n := &graph.Node{Op: op, In: []*graph.Value{x, x, x}, Out: []*graph.Value{x, x, x}}
		err := graph.Catch(func() { op.Grad(b, n, []*graph.Value{x, x, x}) })
		if err == nil || !strings.Contains(err.Error(), op.Name()) {
			t.Errorf("%s: gradient gave %v, want an error with its name", op.Name(), err)
		}
	}
}
