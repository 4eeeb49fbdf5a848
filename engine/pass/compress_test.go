package pass_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// 8-bit storage changes gradients, not what the forward half computes; recomputing,
// fusing and ordering do not change a bit of it.
func TestCompress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		for !compresses(t, m) { // about one model in twenty does
			m.seed, m.size = m.seed+1, m.size%40+1
		}
		o := engine.CompileOptions{Compress: true, ComputeDType: rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low")}
		accumulation := rapid.IntRange(1, 2).Draw(t, "accumulation")
		o.Skip = without("fuse", "order")
		want := train(t, m, accumulation, o)
		o.Skip = nil
		o.Budget = want.temps * 3 / 4
		for _, o.Recompute = range []pass.Recompute{pass.RecomputeNone, pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull, pass.RecomputeAuto} {
			train(t, m, accumulation, o).equal(t, want, o.Recompute.String())
		}
	})
}

// compresses reports whether anything of m is kept in 8 bits.
func compresses(t *rapid.T, m randomModel) bool {
	u := m.unit(true)
	u.Compress = true
	if err := pass.Run(u, pass.Options{Stop: "compress", Verify: true}); err != nil {
		t.Fatal(err)
	}
	return count(u.F, "quantize") > 0
}

// A feed-forward layer, plain and gated: the loss has the same bits, gradients are off by
// less than a hundredth of their length, and less memory is needed.
func TestCompressedGradients(t *testing.T) {
	const rows, width, inner = 256, 64, 512
	for _, gated := range []bool{false, true} {
		var want map[string][]float32
		var temps int64
		for _, compress := range []bool{false, true} {
			b := graph.NewBuilder("layer")
			x := b.Input("x", graph.T(graph.F32, rows, width))
			weight := func(name string, in, out int) *graph.Value {
				return b.State(&graph.State{Name: name, Type: graph.T(graph.F32, in, out), Role: graph.Weight, Init: graph.Normal(0.3)})
			}
			up := b.MatMul(x, weight("up", width, inner), false, false)
			h := b.GELU(up)
			if gated {
				h = b.Mul(b.SiLU(up), b.MatMul(x, weight("gate", width, inner), false, false))
			}
			y := b.MatMul(h, weight("down", inner, width), false, false)
			b.Output("loss", b.Sum(b.Mul(y, y)))
			u := &pass.Unit{F: b.F, Loss: "loss", Compress: compress, Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
				for i, p := range params {
					b.Output(p.Name, grads[i])
				}
			}}
			if err := pass.Run(u, pass.Options{Stop: "compress", Verify: true}); err != nil {
				t.Fatal(err)
			}
			p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, u.F)
			if err != nil {
				t.Fatal(err)
			}
			r, err := execute(p, u.F.Name)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]float32{}
			for _, name := range r.names {
				got[name] = slices.Clone(f32(r.data[name]))
			}
			if !compress {
				want, temps = got, r.temps
				continue
			}
			if n := count(u.F, "quantize"); n != 1 {
				t.Errorf("gated %v: %d values are compressed, want 1", gated, n)
			}
			if r.temps >= temps {
				t.Errorf("gated %v: %d bytes of temporaries, %d without", gated, r.temps, temps)
			}
			for name, g := range got {
				off, size := 0.0, 0.0
				for i := range g {
					d := float64(g[i] - want[name][i])
					off, size = off+d*d, size+float64(want[name][i])*float64(want[name][i])
				}
				off = math.Sqrt(off / size)
				t.Logf("gated %v: %s is off by %.2g of its length", gated, name, off)
				if gradient := strings.Contains(name, "layer/") && !strings.Contains(name, "loss"); gradient != (off > 0) || off > 0.01 {
					t.Errorf("gated %v: %s is off by %g of its length", gated, name, off)
				}
			}
		}
	}
}

func count(f *graph.Func, op string) (n int) {
	for _, m := range f.Nodes {
		if m.Op.Name() == op {
			n++
		}
	}
	return n
}
