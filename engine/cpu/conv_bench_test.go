package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// measure runs f on 2 workers and reports the time of each node and the rate
// of its products.
func measure(b *testing.B, f *graph.Func) {
	b.Helper()
	p, err := engine.CompileForward(engine.CompileOptions{}, f)
	if err != nil {
		b.Fatal(err)
	}
	r, err := p.Arm(2)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	}()
	for _, in := range p.Inputs {
		x, _ := r.Input(0, in.Name)
		switch in.Type.DType {
		case graph.F32:
			for i := range x.F32() {
				x.F32()[i] = float32(i%13) - 6
			}
		case graph.BF16:
			for i := range x.U16() {
				x.U16()[i] = uint16(0x3f80 + i%13)
			}
		}
	}
	least := map[string]time.Duration{}
	flops := map[string]float64{}
	r.Profile(func(n *graph.Node, d time.Duration) {
		name := n.Op.Name() + n.Layer
		if was, ok := least[name]; !ok || d < was {
			least[name] = d
		}
		var in, out []graph.Type
		for _, v := range n.In {
			in = append(in, v.Type)
		}
		for _, v := range n.Out {
			out = append(out, v.Type)
		}
		flops[name] = n.Op.Cost(in, out).FLOPs
	})
	for b.Loop() {
		if err := r.Run(f.Name, 0); err != nil {
			b.Fatal(err)
		}
	}
	for name, d := range least {
		b.ReportMetric(float64(d.Microseconds()), name+"_us")
		if flops[name] > 1e6 {
			b.ReportMetric(flops[name]/d.Seconds()/1e9, name+"_GFLOP/s")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkConv2D times the three products of convolutions.
//
//	go test -run '^$' -bench Conv2D -benchtime 20x ./engine/cpu
func BenchmarkConv2D(b *testing.B) {
	for _, d := range []graph.DType{graph.F32, graph.BF16} {
		for _, s := range []struct {
			x, w   graph.Shape
			stride int
		}{
			{graph.Shape{100, 64, 64, 1}, graph.Shape{64, 1, 3, 3}, 2},
			{graph.Shape{100, 64, 64, 3}, graph.Shape{64, 3, 3, 3}, 2},
			{graph.Shape{100, 32, 32, 64}, graph.Shape{128, 64, 3, 3}, 2},
			{graph.Shape{100, 16, 16, 128}, graph.Shape{256, 128, 3, 3}, 2},
			{graph.Shape{4, 56, 56, 64}, graph.Shape{64, 64, 3, 3}, 1},
			{graph.Shape{4, 28, 28, 256}, graph.Shape{512, 256, 1, 1}, 1},
		} {
			b.Run(fmt.Sprintf("%v/%v%v_s%d", d, s.x, s.w, s.stride), func(b *testing.B) {
				g := graph.NewBuilder("f")
				op := graph.Conv(s.stride, s.w[2]/2)
				x, w := g.Input("x", graph.Type{DType: d, Shape: s.x}), g.Input("w", graph.Type{DType: d, Shape: s.w})
				y := g.Emit(op, x, w)[0]
				g.Output("y", y)
				g.Output("dx", g.Emit(graph.Conv2DInput{Conv: op, H: s.x[1], W: s.x[2]}, y, w)[0])
				g.Output("dw", g.Emit(graph.Conv2DWeight{Conv: op, KH: s.w[2], KW: s.w[3]}, x, y)[0])
				measure(b, g.F)
			})
		}
	}
}
