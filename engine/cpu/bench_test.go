package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
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
	r, err := p.Load(backend.CPU(2))
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
	r.Observe(&engine.Observer{After: func(n *graph.Node, d time.Duration) bool {
		name := n.Op.Name() + n.Layer
		if was, ok := least[name]; !ok || d < was {
			least[name] = d
		}
		flops[name] = n.Cost().FLOPs
		return true
	}})
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
//	go test -run '^$' -bench . -benchtime 20x ./engine/cpu
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
			{graph.Shape{100, 64, 64, 1}, graph.Shape{64, 1, 3, 3}, 1}, {graph.Shape{4, 64, 64, 1}, graph.Shape{64, 1, 3, 3}, 1},
			{graph.Shape{100, 32, 32, 64}, graph.Shape{128, 64, 3, 3}, 1},
			{graph.Shape{100, 16, 16, 128}, graph.Shape{256, 128, 3, 3}, 1},
			{graph.Shape{4, 56, 56, 64}, graph.Shape{64, 64, 3, 3}, 1},
			{graph.Shape{4, 28, 28, 256}, graph.Shape{512, 256, 1, 1}, 1},
			{graph.Shape{96, 64, 64, 3}, graph.Shape{8, 3, 3, 3}, 1}, {graph.Shape{96, 64, 64, 3}, graph.Shape{1, 3, 3, 3}, 1},
			{graph.Shape{96, 64, 64, 1}, graph.Shape{1, 1, 1, 1}, 1},
		} {
			b.Run(fmt.Sprintf("%v/%v%v_s%d", d, s.x, s.w, s.stride), func(b *testing.B) {
				g := graph.NewBuilder("f")
				op := graph.Conv(s.stride, s.w[2]/2)
				x, w := g.Input("x", graph.Type{DType: d, Shape: s.x}), g.Input("w", graph.Type{DType: d, Shape: s.w})
				y := g.Emit(op, x, w)[0]
				g.Output("y", y)
				g.Output("dx", g.Emit(graph.Conv2DGradInput{Conv: op, H: s.x[1], W: s.x[2]}, y, w)[0])
				g.Output("dw", g.Emit(graph.Conv2DGradWeight{Conv: op, KH: s.w[2], KW: s.w[3]}, x, y)[0])
				measure(b, g.F)
			})
		}
	}
}

// BenchmarkPictures times the operations between convolutions.
func BenchmarkPictures(b *testing.B) {
	for _, s := range []graph.Shape{{2, 220, 320, 64}, {100, 16, 16, 128}} {
		b.Run(s.String(), func(b *testing.B) {
			g := graph.NewBuilder("f")
			x := g.Input("x", graph.Type{DType: graph.F32, Shape: s})
			gamma, beta := g.Input("gamma", graph.T(graph.F32, s[3])), g.Input("beta", graph.T(graph.F32, s[3]))
			op := graph.ChannelNorm{Eps: 1e-5}
			y := g.Emit(op, x, gamma, beta)
			d := g.Emit(graph.ChannelNormGrad(op), x, y[0], gamma, y[1], y[2])
			pool := graph.Pool2D{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}}
			m := g.Emit(pool, y[0])[0]
			g.Output("dm", g.Emit(graph.Pool2DGrad{Pool: pool, H: s[1], W: s[2]}, m, y[0], m)[0])
			g.Output("dx", d[0])
			measure(b, g.F)
		})
	}
}

// BenchmarkScan times a selective scan with its depthwise convolution.
func BenchmarkScan(b *testing.B) {
	const n, t, d, states = 4, 512, 512, 16
	g := graph.NewBuilder("f")
	seq := g.Input("u", graph.T(graph.F32, n, t, d))
	taps := g.Input("taps", graph.T(graph.F32, d, 1, 4))
	u := g.Conv1D(seq, taps, nil, 1, 1, 3, 0, d)
	dt := g.Sigmoid(u)
	in := []*graph.Value{
		u, dt, g.Neg(g.Sigmoid(g.Input("A", graph.T(graph.F32, d, states)))),
		g.Input("B", graph.T(graph.F32, n, t, states)), g.Input("C", graph.T(graph.F32, n, t, states)), g.Input("D", graph.T(graph.F32, d)),
	}
	op := graph.SelectiveScan{Chunk: 16}
	y := g.Emit(op, in...)
	for i, v := range g.Emit(graph.SelectiveScanGrad(op), append([]*graph.Value{u, y[1]}, in...)...) {
		g.Output(fmt.Sprint("g", i), v)
	}
	g.Output("y", y[0])
	conv := graph.Conv2D{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}, Pad: [4]int{0, 0, 3, 0}, Groups: d}
	g.Output("dtaps", g.Emit(graph.Conv2DGradWeight{Conv: conv, KH: 1, KW: 4}, g.Reshape(seq, n, 1, t, d), g.Reshape(y[0], n, 1, t, d))[0])
	measure(b, g.F)
}
