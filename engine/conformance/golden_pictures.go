package conformance

import "github.com/snug-ml/snug/engine/graph"

// The operations on images: PyTorch's goldens have channels first, the
// engine channels last.
func init() {
	for name, build := range map[string]func(m *goldenMaker){
		"conv2d": func(m *goldenMaker) {
			m.tol = Tolerance{Ulps: 1, Terms: 100}
			m.out("y", m.first(m.Conv2D(graph.Conv(m.Attrs.Stride, m.Attrs.Pad), m.last(m.arg("x")), m.arg("weight"), m.bias())))
		},
		"conv1d": func(m *goldenMaker) {
			m.tol = Tolerance{Ulps: 1, Terms: 100}
			x := m.Transpose(m.arg("x"), 0, 2, 1)
			a := m.Attrs
			y := m.Conv1D(x, m.arg("weight"), m.bias(), a.Stride, a.Dilation, a.PadLeft, a.PadRight, a.Groups)
			m.out("y", m.Transpose(y, 0, 2, 1))
		},
		"max_pool2d": func(m *goldenMaker) {
			m.tol = Tolerance{Ulps: 1, Terms: 9}
			m.out("y", m.first(m.MaxPool2D(m.last(m.arg("x")), m.Attrs.Kernel, m.Attrs.Stride, m.Attrs.Pad)))
		},
		"avg_pool2d": func(m *goldenMaker) {
			m.tol = Tolerance{Ulps: 1, Terms: 9}
			m.out("y", m.first(m.AvgPool2D(m.last(m.arg("x")), m.Attrs.Kernel, m.Attrs.Stride, m.Attrs.Pad)))
		},
		"global_avg_pool2d": func(m *goldenMaker) {
			m.tol = Tolerance{Ulps: 1, Terms: 35}
			y := m.GlobalAvgPool2D(m.last(m.arg("x")))
			m.out("y", m.Reshape(y, y.Shape()[0], y.Shape()[1], 1, 1))
		},
		"group_norm": func(m *goldenMaker) {
			m.tol = Tolerance{Ulps: 4, Terms: 200}
			m.out("y", m.first(m.GroupNorm(m.last(m.arg("x")), m.arg("weight"), m.arg("bias"), m.Attrs.Groups, m.Attrs.Eps)))
		},
		"batch_norm": goldenBatchNorm,
		"topk": func(m *goldenMaker) {
			values, indices := m.TopK(m.arg("x"), m.Attrs.K)
			m.out("values", values)
			m.out("indices", indices)
		},
	} {
		goldenOps[name] = build
	}
}

func (m *goldenMaker) bias() *graph.Value {
	if m.has("bias") {
		return m.arg("bias")
	}
	return nil
}

// last moves channels [B,C,...] to the end, first moves them back to the second place;
// rows [B,C] stay as they are.
func (m *goldenMaker) last(x *graph.Value) *graph.Value {
	if len(x.Shape()) == 2 {
		return x
	}
	return m.Transpose(x, 0, 2, 3, 1)
}

func (m *goldenMaker) first(x *graph.Value) *graph.Value {
	if len(x.Shape()) == 2 {
		return x
	}
	return m.Transpose(x, 0, 3, 1, 2)
}

func goldenBatchNorm(m *goldenMaker) {
	m.tol = Tolerance{Ulps: 4, Terms: 180}
	running := func(name string) *graph.Value {
		i := -1
		return m.state(name, m.types["in."+name], func() float64 { i++; return m.data["in."+name][i] })
	}
	x, gamma, beta := m.last(m.arg("x")), m.arg("weight"), m.arg("bias")
	mean, variance := running("running_mean"), running("running_var")
	if !m.Attrs.Training {
		m.out("y", m.first(m.BatchNormEval(x, gamma, beta, mean, variance, m.Attrs.Eps)))
		m.out("running_mean", mean)
		m.out("running_var", variance)
		return
	}
	m.out("y", m.first(m.BatchNorm(x, gamma, beta, mean, variance, m.Attrs.Momentum, m.Attrs.Eps)))
	for _, n := range m.F.Nodes {
		if _, ok := n.Op.(graph.RunningStats); ok {
			m.out("running_mean", n.Out[0])
			m.out("running_var", n.Out[1])
		}
	}
}
