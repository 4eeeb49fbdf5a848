package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// pictures are convolution, pooling and the norms of channels.
func (t *table) pictures() {
	for _, d := range floats {
		for _, c := range []struct {
			op   graph.Conv2D
			x, w graph.Shape
		}{
			{graph.Conv(1, 1), graph.Shape{2, 5, 7, 3}, graph.Shape{4, 3, 3, 3}},
			{graph.Conv(2, 1), graph.Shape{2, 9, 6, 5}, graph.Shape{33, 5, 3, 3}},
			{graph.Conv(1, 0), graph.Shape{3, 4, 5, 37}, graph.Shape{19, 37, 1, 1}},
			{graph.Conv(2, 0), graph.Shape{1, 8, 9, 16}, graph.Shape{7, 16, 1, 1}},
			{graph.Conv(3, 2), graph.Shape{1, 11, 10, 2}, graph.Shape{3, 2, 5, 5}},
			{graph.Conv(1, 1), graph.Shape{1, 13, 15, 24}, graph.Shape{50, 24, 3, 3}},
			{graph.Conv(1, 0), graph.Shape{2, 26, 21, 3}, graph.Shape{5, 3, 2, 2}},
			{graph.Conv(1, 1), graph.Shape{2, 5, 6, 19}, graph.Shape{2, 19, 3, 3}},
			{graph.Conv(2, 1), graph.Shape{2, 9, 8, 3}, graph.Shape{24, 3, 3, 3}},
			{graph.Conv(1, 1), graph.Shape{1, 3, 530, 6}, graph.Shape{7, 6, 3, 3}},
			{graph.Conv(1, 2), graph.Shape{1, 2, 1030, 2}, graph.Shape{3, 2, 1, 5}},
			{graph.Conv(1, 0), graph.Shape{1, 2, 1100, 2}, graph.Shape{3, 2, 1, 5}},
			{graph.Conv2D{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}, Pad: [4]int{0, 0, 1, 1}, Groups: 1}, graph.Shape{1, 2, 1036, 8}, graph.Shape{13, 8, 1, 3}},
			{graph.Conv2D{Stride: [2]int{1, 21}, Dilation: [2]int{1, 1}, Groups: 1}, graph.Shape{2, 3, 62, 4}, graph.Shape{3, 4, 1, 2}},
			{graph.Conv(1, 1), graph.Shape{2, 6, 5, 72}, graph.Shape{40, 72, 3, 3}},
			{graph.Conv(2, 1), graph.Shape{2, 9, 6, 1}, graph.Shape{34, 1, 4, 4}},
			{graph.Conv2D{Stride: [2]int{1, 2}, Dilation: [2]int{2, 3}, Pad: [4]int{1, 2, 3, 0}, Groups: 1}, graph.Shape{2, 7, 12, 3}, graph.Shape{5, 3, 3, 2}},
			{graph.Conv2D{Stride: [2]int{4, 4}, Dilation: [2]int{1, 1}, Groups: 1}, graph.Shape{2, 9, 8, 3}, graph.Shape{6, 3, 4, 4}},
			{graph.Conv2D{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}, Pad: [4]int{0, 0, 3, 0}, Groups: 50}, graph.Shape{2, 1, 9, 50}, graph.Shape{50, 1, 1, 4}},
			{graph.Conv2D{Stride: [2]int{2, 1}, Dilation: [2]int{1, 2}, Pad: [4]int{1, 1, 2, 2}, Groups: 3}, graph.Shape{2, 6, 7, 3}, graph.Shape{3, 1, 3, 3}},
		} {
			t.conv(c.op, d, c.x, c.w)
		}
		for _, kind := range []graph.PoolKind{graph.PoolMax, graph.PoolAverage} {
			for _, p := range []graph.Pool2D{
				{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}},
				{Kernel: [2]int{3, 3}, Stride: [2]int{2, 2}, Pad: [4]int{1, 1, 1, 1}},
				{Kernel: [2]int{2, 3}, Stride: [2]int{1, 4}, Pad: [4]int{0, 1, 2, 1}},
				{Kernel: [2]int{1, 1}, Stride: [2]int{3, 3}},
			} {
				p.Kind = kind
				t.pool(p, d, 2, 7, 8, 21)
				t.pool(p, d, 1, 2, 3, 1)
				t.pool(p, d, 3, 4, 6, 48)
			}
		}
		for _, groups := range []int{0, 1, 5} {
			for _, s := range []graph.Shape{{1, 5}, {7, 10}, {2, 3, 35}, {3, 4, 5, 40}, {2, 40, 1, 65}, {700, 5}} {
				t.channelNorm(graph.ChannelNorm{Eps: 1e-5, Groups: groups}, d, s)
			}
		}
	}
	// A mean far from zero: only the deviations count.
	t.add("batch_norm/offset", Tolerance{Ulps: 4, Terms: 64, Abs: 2e-5}, func(m *maker) {
		x := m.input("x", graph.T(graph.F32, 600, 3), func() float64 { return 100 + m.rng.NormFloat64() })
		m.outputs(m.Emit(graph.ChannelNorm{Eps: 1e-5}, x, m.normal("gamma", graph.F32, 3), m.normal("beta", graph.F32, 3))...)
	})
	// The first of equal elements gets the gradient.
	for _, k := range []int{2, 3} {
		t.add(fmt.Sprintf("max_pool2d_grad/ties_%d", k), Tolerance{}, func(m *maker) {
			op := graph.Pool2D{Kernel: [2]int{k, k}, Stride: [2]int{k, k}}
			x := m.input("x", graph.T(graph.F32, 1, 6, 6, 32), func() float64 { return float64(m.rng.IntN(3)) })
			y := m.Emit(op, x)[0]
			m.outputs(m.Emit(graph.Pool2DGrad{Pool: op, H: 6, W: 6}, m.normal("dy", graph.F32, 1, 6/k, 6/k, 32), x, y)[0])
		})
	}
	t.add("running_stats", Tolerance{Ulps: 4}, func(m *maker) {
		typ := graph.T(graph.F32, 21)
		in := []*graph.Value{
			m.state("mean", typ, m.rng.NormFloat64), m.state("var", typ, m.rng.Float64),
			m.input("batch_mean", typ, m.rng.NormFloat64), m.input("batch_var", typ, m.rng.Float64),
		}
		m.outputs(m.Emit(graph.RunningStats{Momentum: 0.1, Rows: 5}, in...)...)
	})
}

func (t *table) conv(op graph.Conv2D, d graph.DType, x, w graph.Shape) {
	t.convStored(op, d, d, x, w)
	if d == graph.F32 {
		t.convStored(op, d, graph.BF16, x, w)
	}
}

// convStored is conv with weights that are stored in another format.
func (t *table) convStored(op graph.Conv2D, d, stored graph.DType, x, w graph.Shape) {
	name := fmt.Sprintf("/%v/%v%v_s%d_%d", d, x, w, op.Stride[0], op.Stride[1])
	if stored != d {
		name = fmt.Sprintf("/%v%s", stored, name)
	}
	y := graph.Shape{x[0], op.Size(0, x[1], w[2]), op.Size(1, x[2], w[3]), w[0]}
	// A device without 16-bit multiplication may widen the operands; one with it
	// multiplies exactly too.
	t.add("conv2d"+name, Tolerance{Ulps: 1, Terms: w[1] * w[2] * w[3]}, func(m *maker) {
		m.outputs(m.Emit(op, m.normal("x", d, x...), m.normal("w", stored, w...))...)
	})
	t.add("conv2d_grad_input"+name, Tolerance{Ulps: 1, Terms: w[0] * w[2] * w[3]}, func(m *maker) {
		m.outputs(m.Emit(graph.Conv2DGradInput{Conv: op, H: x[1], W: x[2]}, m.normal("dy", d, y...), m.normal("w", stored, w...))...)
	})
	if stored != d {
		return
	}
	t.add("conv2d_grad_weight"+name, Tolerance{Ulps: 1, Terms: y[0] * y[1] * y[2]}, func(m *maker) {
		m.outputs(m.Emit(graph.Conv2DGradWeight{Conv: op, KH: w[2], KW: w[3]}, m.normal("x", d, x...), m.normal("dy", d, y...))...)
	})
}

func (t *table) pool(op graph.Pool2D, d graph.DType, dims ...int) {
	name := fmt.Sprintf("/%v/%v_%v_%v", d, graph.Shape(dims), op.Kernel, op.Stride)
	terms := op.Kernel[0] * op.Kernel[1]
	if _, err := op.Infer([]graph.Type{graph.T(d, dims...)}); err != nil {
		return // the window does not fit
	}
	t.add(op.Name()+name, Tolerance{Ulps: 2, Terms: terms}, func(m *maker) {
		m.outputs(m.Emit(op, m.normal("x", d, dims...))...)
	})
	grad := graph.Pool2DGrad{Pool: op, H: dims[1], W: dims[2]}
	t.add(grad.Name()+name, Tolerance{Ulps: 2, Terms: terms}, func(m *maker) {
		x := m.normal("x", d, dims...)
		y := m.Emit(op, x)[0]
		in := []*graph.Value{m.normal("dy", d, y.Shape()...)}
		if op.Kind == graph.PoolMax {
			in = append(in, x, y)
		}
		m.outputs(m.Emit(grad, in...)...)
	})
}

func (t *table) channelNorm(op graph.ChannelNorm, d graph.DType, s graph.Shape) {
	name := fmt.Sprintf("/%v/%v/%d", d, s, op.Groups)
	terms := s.Rows()
	if op.Groups > 0 {
		terms = int(s[1:].Elems()) / op.Groups
	}
	tol := Tolerance{Ulps: 4, Terms: terms}
	if terms < 5 {
		tol.Abs = 1e-3 // deviations that cancel to almost nothing, divided by almost nothing
	}
	t.add(op.Name()+name, tol, func(m *maker) {
		m.outputs(m.Emit(op, m.normal("x", d, s...), m.normal("gamma", graph.F32, s.Last()), m.normal("beta", graph.F32, s.Last()))...)
	})
	if op.Groups == 0 {
		t.add("batch_stats"+name, tol, func(m *maker) { m.outputs(m.Emit(graph.BatchStats{}, m.normal("x", d, s...))...) })
	}
	statistics := func(m *maker) (mean, variance *graph.Value) {
		stats := graph.T(graph.F32, s.Last())
		if op.Groups > 0 {
			stats = graph.T(graph.F32, s[0], op.Groups)
		}
		return m.input("mean", stats, func() float64 { return 0.1 * m.rng.NormFloat64() }), m.input("var", stats, func() float64 { return 0.5 + m.rng.Float64() })
	}
	t.add(op.Name()+"_given"+name, Tolerance{Ulps: 4, Terms: 2}, func(m *maker) {
		given := op
		given.Given = true
		mean, variance := statistics(m)
		m.outputs(m.Emit(given, m.normal("x", d, s...), m.normal("gamma", graph.F32, s.Last()), m.normal("beta", graph.F32, s.Last()), mean, variance)...)
	})
	tol.Terms += s.Rows() * s.Last()
	t.add(graph.ChannelNormGrad(op).Name()+name, tol, func(m *maker) {
		mean, variance := statistics(m)
		m.outputs(m.Emit(graph.ChannelNormGrad(op), m.normal("dy", d, s...), m.normal("x", d, s...), m.normal("gamma", graph.F32, s.Last()), mean, variance)...)
	})
}
