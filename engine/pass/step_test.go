package pass_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/nn/hf"
)

// neox is a training step of a GPT-NeoX.
type neox struct {
	model    hf.NeoX
	batch, t int
	acc      int
	clip     float64
}

// reference is work (a) of the comparison on the CPU in docs/measurements.md.
func reference() neox {
	return neox{model: hf.NeoX{Vocab: 8192, D: 384, Layers: 6, Heads: 6, FF: 1536, MaxPositions: 256, RotaryPct: .25,
		RotaryBase: 10000, Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .02}, batch: 4, t: 256, acc: 1, clip: 1}
}

func (s neox) training() engine.Training {
	return engine.Training{
		Accumulation: s.acc,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: s.clip},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			n := s.batch * s.t
			h := s.model.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, s.batch, s.t)), Train: mode.Train})
			loss := b.LinearCrossEntropy(b.Reshape(h, n, s.model.D), s.model.Output(b),
				b.Input("labels", graph.T(graph.I32, n)), b.Input("weights", graph.T(graph.F32, n)), min(n, 256))
			return engine.Objective{Sum: loss}
		},
	}
}

// compile compiles the step; the first function is the one with the backward half.
func (s neox) compile(tb testing.TB, o engine.CompileOptions) (*engine.Program, *engine.Func) {
	tb.Helper()
	p, err := engine.CompileTraining(s.training(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return p, p.Funcs[0]
}

// work counts the nodes of f that run and the bytes that they move.
func work(f *graph.Func) (nodes int, bytes float64) {
	for _, n := range f.Nodes {
		if !graph.IsView(n.Op) {
			nodes++
			bytes += n.Cost().Bytes
		}
	}
	return nodes, bytes
}

// Fusing takes elementwise work off memory: nothing elementwise of the size of
// an activation is left alone in a layer, and no more memory is needed.
func TestFuseStep(t *testing.T) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		for _, mode := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
			for _, acc := range []int{1, 4} {
				s := reference()
				s.acc, s.model.Dropout = acc, .1
				_, plain := s.compile(t, engine.CompileOptions{ComputeDType: low, Recompute: mode, Skip: without("fuse", "accumulate")})
				_, fused := s.compile(t, engine.CompileOptions{ComputeDType: low, Recompute: mode})
				n0, b0 := work(plain.F)
				n1, b1 := work(fused.F)
				t.Logf("%v, recompute %v, accumulation %d: %d nodes and %.0f MB moved, fused %d and %.0f MB (%.0f %%); temporaries %.1f and %.1f MB",
					low, mode, acc, n0, b0/1e6, n1, b1/1e6, 100*b1/b0, float64(plain.Placement.Bytes)/1e6, float64(fused.Placement.Bytes)/1e6)
				if b1 > .9*b0 {
					t.Errorf("fusing saves only %.0f of %.0f MB", (b0-b1)/1e6, b0/1e6)
				}
				if a, b := plain.Placement.Bytes, fused.Placement.Bytes; float64(b) > 1.01*float64(a) {
					t.Errorf("fusing takes %d bytes instead of %d", b, a)
				}
				for _, n := range fused.F.Nodes {
					if mode != pass.RecomputeNone {
						break // what is rebuilt may have to be where it saves memory
					}
					e, ok := n.Op.(graph.Elementwise)
					if ok && n.Layer != "" && n.Layer != "gpt_neox" && e.Fn != graph.FnCopy && n.Out[0].Shape().Elems() >= int64(s.batch*s.t*s.model.D) {
						t.Errorf("%s of %s is alone", n.Op.Name(), n.Layer)
					}
				}
			}
		}
	}
}

// loaded loads a program with inputs to run on.
func (s neox) loaded(tb testing.TB, p *engine.Program, workers int) *engine.Executable {
	tb.Helper()
	r, err := p.Load(backend.CPU(workers))
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.Initialize(1); err != nil {
		tb.Fatal(err)
	}
	for _, v := range p.Inputs {
		x, _ := r.Input(0, v.Name)
		if v.Type.DType == graph.I32 {
			for i := range x.I32() {
				x.I32()[i] = int32(i * 7919 % s.model.Vocab)
			}
			continue
		}
		for i := range x.F32() {
			x.F32()[i] = 1e-3
		}
	}
	return r
}

// BenchmarkStep runs an update plain and fused in turns. The times are the
// least of all turns; by operation, the sums over the nodes of the least of
// each.
func BenchmarkStep(b *testing.B) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		b.Run(low.String(), func(b *testing.B) {
			s := reference()
			skip := []func(string) bool{without("fuse", "accumulate"), nil}
			var runners []*engine.Executable
			for _, f := range skip {
				p, _ := s.compile(b, engine.CompileOptions{ComputeDType: low, Skip: f})
				r := s.loaded(b, p, 2)
				b.Cleanup(func() { r.Close() })
				runners = append(runners, r)
			}
			least := [2]time.Duration{1 << 62, 1 << 62}
			each := [2]map[*graph.Node]time.Duration{{}, {}}
			for b.Loop() {
				for i, r := range runners {
					r.Observe(&engine.Observer{After: func(n *graph.Node, d time.Duration) bool {
						if was, ok := each[i][n]; !ok || d < was {
							each[i][n] = d
						}
						return true
					}})
					start := time.Now()
					if err := r.Run(engine.FuncStep, 0); err != nil {
						b.Fatal(err)
					}
					least[i] = min(least[i], time.Since(start))
				}
			}
			b.ReportMetric(float64(least[0].Microseconds())/1e3, "plain-ms")
			b.ReportMetric(float64(least[1].Microseconds())/1e3, "fused-ms")
			for i, name := range []string{"plain", "fused"} {
				ops := map[string]time.Duration{}
				var sum time.Duration
				for n, d := range each[i] {
					ops[n.Op.Name()] += d
					sum += d
				}
				line := fmt.Sprintf("%s: %.1f ms in all;", name, float64(sum.Microseconds())/1e3)
				names := slices.SortedFunc(maps.Keys(ops), func(x, y string) int { return cmp.Compare(ops[y], ops[x]) })
				for _, n := range names[:min(14, len(names))] {
					line += fmt.Sprintf(" %s %.2f", n, float64(ops[n].Microseconds())/1e3)
				}
				b.Log(line)
			}
		})
	}
}

// BenchmarkPasses compiles the step of a model of 24 layers.
func BenchmarkPasses(b *testing.B) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		for _, mode := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
			b.Run(fmt.Sprintf("%v/%v", low, mode), func(b *testing.B) {
				s := reference()
				s.model.Layers = 24
				for b.Loop() {
					s.compile(b, engine.CompileOptions{ComputeDType: low, Recompute: mode})
				}
			})
		}
	}
}
