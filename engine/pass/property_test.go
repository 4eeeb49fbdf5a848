package pass_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

func drawModel(t *rapid.T) randomModel {
	return randomModel{
		size: rapid.IntRange(1, 40).Draw(t, "size"),
		seed: rapid.Uint64().Draw(t, "seed"),
		clip: rapid.SampledFrom([]float64{0, 1}).Draw(t, "clip"),
	}
}

// without skips passes.
func without(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func train(t *rapid.T, m randomModel, accumulation int, o engine.CompileOptions) *run {
	r, _ := trainOn(t, backend.CPU(1), m, accumulation, o)
	return r
}

func trainOn(t *rapid.T, b engine.Backend, m randomModel, accumulation int, o engine.CompileOptions) (*run, *engine.Program) {
	o.Verify = true
	p, err := engine.CompileTraining(m.training(accumulation), o)
	if err != nil {
		t.Fatal(err)
	}
	fns := []string{engine.FuncStep}
	if accumulation > 1 {
		fns = []string{engine.FuncMicro, engine.FuncMicro, engine.FuncUpdate}
	}
	for _, f := range p.Funcs {
		checkPlacement(t, f)
	}
	r, err := executeOn(b, p, fns...)
	if err != nil {
		t.Fatal(err)
	}
	return r, p
}

// fuseAndOrder checks that training has the same bits without fusing, without ordering, and with both and with parts of
// buffers instead of copies.
func fuseAndOrder(t *rapid.T, b engine.Backend, m randomModel, accumulation int, o engine.CompileOptions) {
	t.Helper()
	o.Skip = without("accumulate", "fuse", "order", "alias")
	want, _ := trainOn(t, b, m, accumulation, o)
	for _, skip := range [][]string{{"fuse"}, {"order"}, {}} {
		o.Skip = without(append(skip, "accumulate")...)
		got, _ := trainOn(t, b, m, accumulation, o)
		got.equal(t, want, fmt.Sprint("without ", skip))
	}
}

func (r *run) equal(t *rapid.T, want *run, what string) {
	t.Helper()
	if !slices.Equal(r.names, want.names) {
		t.Fatalf("%s: results %v, want %v", what, r.names, want.names)
	}
	for _, n := range r.names {
		if !bytes.Equal(r.data[n], want.data[n]) {
			i := 0
			for r.data[n][i] == want.data[n][i] {
				i++
			}
			a, b := f32(r.data[n])[i/4], f32(want.data[n])[i/4]
			t.Fatalf("%s: %s: element %d is %v, want %v", what, n, i/4, a, b)
		}
	}
}

// near compares r with want to an error relative to each tensor's largest element. A gradient whose terms cancel
// is left with their rounding error, up to 2^-16 of the largest gradient: a hundred terms of that size, each
// rounded to float32.
func (r *run) near(t *rapid.T, want *run, bound float64, what string) {
	t.Helper()
	largest := func(x []float32) (m float64) {
		for _, v := range x {
			m = max(m, math.Abs(float64(v)))
		}
		return m
	}
	rounding := 0.0
	for _, n := range want.names {
		if strings.Contains(n, "gradient.") {
			rounding = max(rounding, 0x1p-16*largest(f32(want.data[n])))
		}
	}
	for _, n := range r.names {
		a, b := f32(r.data[n]), f32(want.data[n])
		scale, worst := largest(b), 0.0
		for i := range a {
			worst = max(worst, math.Abs(float64(a[i]-b[i])))
		}
		if worst > max(bound*scale, rounding) {
			t.Fatalf("%s: %s is off by %v of %v, rounding by %v", what, n, worst, scale, rounding)
		}
	}
}

func f32(x []byte) []float32 { return engine.Tensor{Data: x}.F32() }

// Fusing and ordering change no bit, in no format.
func TestFuseAndOrderChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		low := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(t, "low")
		fuseAndOrder(t, backend.CPU(1), m, 1, engine.CompileOptions{ComputeDType: low})
	})
}

// The same holds if gradients are kept in 16 bits.
func TestPassesKeepGradientsIn16Bits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		m.gradients = graph.BF16
		accumulation := rapid.IntRange(1, 2).Draw(t, "accumulation")
		low := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(t, "low")
		fuseAndOrder(t, backend.CPU(1), m, accumulation, engine.CompileOptions{ComputeDType: low})
	})
}

// What a device's kernels can fuse changes no bit, nothing is fused that they cannot
// fuse, and tensors are aligned as the device requires.
func TestFusionFollowsTheDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		low := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low")
		want := train(t, m, 1, engine.CompileOptions{ComputeDType: low, Skip: without("accumulate")})
		yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
		traits := engine.Traits{Name: "drawn", Align: 64 << rapid.IntRange(0, 2).Draw(t, "align"), Fusion: pass.Fusion{
			Epilogues: yes("epilogues"), Operands: yes("operands"), OperandReductions: yes("operand sums"), Addends: yes("addends"),
			LoopReductions: yes("loop sums"), Registers: rapid.IntRange(4, graph.MaxRegisters).Draw(t, "registers"),
			Results: rapid.IntRange(1, graph.MaxBodyResults).Draw(t, "results"),
		}, Rounded: yes("rounded")}
		train(t, m, 1, engine.CompileOptions{Traits: &traits, ComputeDType: low, Skip: without("accumulate")}).equal(t, want, fmt.Sprintf("%+v", traits))
		p, err := engine.CompileTraining(m.training(1), engine.CompileOptions{Traits: &traits, ComputeDType: low})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Funcs {
			for _, off := range f.Placement.Offset {
				if off > 0 && off%traits.Align != 0 {
					t.Fatalf("a buffer at %d, aligned to %d", off, traits.Align)
				}
			}
			for _, n := range f.F.Nodes {
				if what := cannot(traits.Fusion, n); what != "" {
					t.Fatalf("%v: %s", n.Op, what)
				}
			}
		}
	})
}

// cannot says what in a node a device cannot do, empty if nothing.
func cannot(can pass.Fusion, n *graph.Node) string {
	body := func(b *graph.Body) string {
		if b != nil && (b.Inputs+len(b.Instrs) > can.Registers || len(b.Results) > can.Results) {
			return "the body is too large"
		}
		return ""
	}
	switch op := n.Op.(type) {
	case graph.MatMul:
		switch {
		case op.Body != nil && !can.Epilogues:
			return "an epilogue"
		case (op.MapA != graph.Elementwise{} || op.MapB != graph.Elementwise{}) && !can.Operands:
			return "a function of an operand"
		case op.SumA && !can.OperandReductions:
			return "sums of an operand"
		}
		return body(op.Body)
	case graph.LayerNormGrad:
		if len(n.In) > 5 && !can.Addends {
			return "an addend"
		}
	case graph.Pool2D:
		if op.Body != nil && !can.Pools {
			return "work on what a pool reads"
		}
	case graph.BatchStats:
		if !can.Normalizations {
			return "statistics alone"
		}
	case graph.Fused:
		if len(op.Reductions) > 0 && !can.LoopReductions {
			return "sums of a loop"
		}
		if len(op.Body.Instrs) > 1 {
			return body(op.Body)
		}
	}
	return ""
}

// Sharing and folding change no bit.
func TestSimplifyChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		want := train(t, m, 1, engine.CompileOptions{Skip: without("simplify", "tidy", "accumulate", "fuse", "order")})
		train(t, m, 1, engine.CompileOptions{Skip: without("accumulate", "fuse", "order")}).equal(t, want, "simplified")
	})
}

// Recomputation changes no bit, whatever follows it.
func TestRecomputeChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		o := engine.CompileOptions{ComputeDType: rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low")}
		accumulation := rapid.IntRange(1, 2).Draw(t, "accumulation")
		want := train(t, m, accumulation, o)
		o.Budget = want.temps * 3 / 4
		for _, o.Recompute = range []pass.Recompute{pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull, pass.RecomputeAuto} {
			train(t, m, accumulation, o).equal(t, want, o.Recompute.String())
		}
	})
}

// Adding gradients up where they are computed changes them only by rounding.
func TestAccumulateStaysNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := differentiated(t, drawModel(t).unit(false))
		want := forward(t, u.F, "accumulate")
		forward(t, u.F).near(t, want, 1e-4, "accumulated")
	})
}

// content is a piece of memory as a node wrote it: the i-th of a result.
type content struct {
	of *graph.Value
	i  int
}

// checkPlacement walks through a program and records what each piece of the arena holds: no
// value may be read after another was written over it, a result may overwrite an operand of
// its node only if the operation can write there, and views lie where they say.
func checkPlacement(t *rapid.T, f *engine.Func) {
	now := make([]content, f.Placement.Bytes/engine.CPU.Align)
	holds := map[*graph.Value][]content{}
	span := func(v *graph.Value) []content {
		off := f.Placement.Offset[v.ID]
		if off < 0 {
			return nil
		}
		if off%engine.CPU.Align != 0 || off+v.Type.Bytes() > f.Placement.Bytes {
			t.Fatalf("%s: %s lies at %d, with %d bytes of %d", f.Name, v.Label(), off, v.Type.Bytes(), f.Placement.Bytes)
		}
		return now[off/engine.CPU.Align : (off+v.Type.Bytes()+engine.CPU.Align-1)/engine.CPU.Align]
	}
	// part reports whether a begins at a byte of b and ends within it.
	part := func(a, b *graph.Value, at int64) bool {
		return f.Placement.Offset[a.ID] == f.Placement.Offset[b.ID]+at && at+a.Type.Bytes() <= b.Type.Bytes()
	}
	overlap := func(a, b *graph.Value) bool {
		x, y := f.Placement.Offset[a.ID], f.Placement.Offset[b.ID]
		return x >= 0 && y >= 0 && x < y+b.Type.Bytes() && y < x+a.Type.Bytes()
	}
	for _, n := range f.F.Nodes {
		if graph.IsView(n.Op) {
			continue
		}
		for _, v := range n.In {
			s := graph.Storage(v)
			for i, c := range span(s) {
				if c != holds[s][i] {
					t.Fatalf("%s: %s reads %s, but %s lies there", f.Name, n.Op.Name(), s.Label(), c.of.Label())
				}
			}
		}
		switch op := n.Op.(type) {
		case graph.SliceView:
			x, y := graph.Storage(n.In[0]), n.Out[0]
			if at, run := op.Run(n.In[0].Type); !run || !part(y, x, at) {
				t.Fatalf("%s: %s is no part of %s", f.Name, y.Label(), x.Label())
			}
			holds[y] = slices.Clone(span(y))
			continue
		case graph.ConcatView:
			at := int64(0)
			for _, v := range n.In {
				if !part(graph.Storage(v), n.Out[0], at) {
					t.Fatalf("%s: %s is no part of %s", f.Name, v.Label(), n.Out[0].Label())
				}
				at += v.Type.Bytes()
			}
			holds[n.Out[0]] = slices.Clone(span(n.Out[0]))
			continue
		}
		for j, v := range n.Out {
			if v.State != nil {
				continue
			}
			for at, w := range n.In {
				if s := graph.Storage(w); overlap(v, s) {
					ip, ok := n.Op.(graph.Inplacer)
					if !ok || j > 0 || !slices.Contains(ip.InplaceOperands(n), at) || f.Placement.Offset[v.ID] != f.Placement.Offset[s.ID] || v.Type.Bytes() != s.Type.Bytes() {
						t.Fatalf("%s: result %d of %s lies on operand %d", f.Name, j, n.Op.Name(), at)
					}
				}
			}
			// Results must not overlap either.
			for _, w := range n.Out[:j] {
				if w.State == nil && overlap(v, w) {
					t.Fatalf("%s: results %s and %s lie on each other", f.Name, w.Label(), v.Label())
				}
			}
			to := span(v)
			for i := range to {
				to[i] = content{v, i}
			}
			holds[v] = slices.Clone(to)
		}
	}
}
