package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// The sizes of the calibration: matmuls and arithmetic that stay in the cache, and one array much larger than
// the cache.
const (
	calibrateProduct = 640
	calibrateTime    = 256      // positions of attention, in 4 heads of 64
	calibrateVector  = 64 << 10 // elements
	calibrateStream  = 8 << 20  // elements
	calibrateRuns    = 4
)

// Calibrate measures a processor once, which takes about 50 to 100 ms and 70 MB. Of several measurements, use
// the best ([Rates.Best]).
func Calibrate(on engine.Backend) (Rates, error) {
	b := graph.NewBuilder("calibrate")
	probes := map[*graph.Node]*probe{}
	var r Rates
	err := graph.Catch(func() {
		watch := func(v *graph.Value, work float64) *probe {
			b.Output(fmt.Sprintf("probe%d", len(probes)), v)
			p := &probe{work: work, best: math.Inf(1)}
			probes[v.Node] = p
			return p
		}
		x := b.Input("x", graph.T(graph.F32, calibrateProduct, calibrateProduct))
		product := func(d graph.DType) *probe {
			y := b.Cast(x, d)
			return watch(b.MatMul(y, y, false, true), 2*calibrateProduct*calibrateProduct*calibrateProduct)
		}
		f32, bf16, f16 := product(graph.F32), product(graph.BF16), product(graph.F16)
		qkv := b.Input("qkv", graph.T(graph.F32, 1, calibrateTime, 3*256))
		attend := func(x *graph.Value) *probe {
			a := b.Attention(graph.Attention{Heads: 4, Causal: true, Scale: 0.125, Layout: graph.PackedHeads}, x)
			return watch(a, a.Node.Cost().MatrixFLOPs)
		}
		attention, attentionBF16 := attend(qkv), attend(b.Cast(qkv, graph.BF16))
		small := b.Input("small", graph.T(graph.F32, calibrateVector))
		g := b.Apply(graph.FnGELU, small)
		vector := watch(g, g.Node.Cost().FLOPs)
		big := b.Input("big", graph.T(graph.F32, calibrateStream))
		s := b.AddC(big, 1)
		stream := watch(s, s.Node.Cost().Bytes)
		launch := watch(b.AddC(b.Input("one", graph.T(graph.F32, 16)), 1), 1)
		if err := measure(b.F, on, probes); err != nil {
			b.Failf("calibrating the processor: %w", err)
		}
		r.Measurements = 1
		r.F32, r.BF16, r.F16 = f32.rate(), bf16.rate(), f16.rate()
		r.Attention, r.AttentionBF16 = attention.rate(), attentionBF16.rate()
		r.Vector, r.Bandwidth = vector.rate(), stream.rate()
		r.Launch = time.Duration(launch.best * float64(time.Second))
	})
	return r, err
}

// probe is the shortest time that a node took.
type probe struct{ work, best float64 }

func (p *probe) rate() float64 { return p.work / p.best }

// measure runs f several times and keeps the best time of each probe.
func measure(f *graph.Func, on engine.Backend, probes map[*graph.Node]*probe) error {
	names := make(map[string]*probe, len(probes))
	for _, o := range f.Outputs {
		names[o.Name] = probes[o.Value.Node]
	}
	r, err := engine.LoadForward(on, engine.CompileOptions{}, f)
	if err != nil {
		return err
	}
	p := r.Program()
	// The passes rebuild the nodes, but outputs keep their names.
	made := map[*graph.Node]*probe{}
	for _, o := range p.Funcs[0].F.Outputs {
		made[o.Value.Node] = names[o.Name]
	}
	for _, v := range p.Inputs {
		t, _ := r.Input(0, v.Name)
		for i := range t.F32() {
			t.F32()[i] = 1 // write to the array, or reads come from the single page of zeros instead of memory
		}
	}
	r.Observe(&engine.Observer{After: func(n *graph.Node, d time.Duration) bool {
		if q := made[n]; q != nil {
			q.best = min(q.best, max(d.Seconds(), 1e-9))
		}
		return true
	}})
	for range calibrateRuns {
		if err := r.Run(f.Name, 0); err != nil {
			_ = r.Close()
			return err
		}
	}
	return r.Close()
}
