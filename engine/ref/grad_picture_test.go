package ref_test

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

// conv2d draws a convolution that fits images of h x w.
func (p *probe) conv2d() (op graph.Conv2D, x, w graph.Shape) {
	x = graph.Shape{p.int("batch", 1, 2), p.int("h", 1, 5), p.int("w", 1, 5), p.int("channels", 1, 3)}
	op = graph.Conv2D{
		Stride:   [2]int{p.int("stride0", 1, 3), p.int("stride1", 1, 3)},
		Dilation: [2]int{p.int("dilation0", 1, 2), p.int("dilation1", 1, 2)},
		Pad:      [4]int{p.int("top", 0, 2), p.int("bottom", 0, 2), p.int("left", 0, 2), p.int("right", 0, 2)},
		Groups:   1,
	}
	kernel := func(d int) int {
		return p.int("kernel", 1, min(3, (x[1+d]+op.Pad[2*d]+op.Pad[2*d+1]-1)/op.Dilation[d]+1))
	}
	w = graph.Shape{p.int("out", 1, 3), x[3], kernel(0), kernel(1)}
	if x[3] > 1 && p.bool("depthwise") {
		op.Groups, w[0], w[1] = x[3], x[3], 1
	}
	return op, x, w
}

func TestGradConv2D(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		op, x, w := p.conv2d()
		return []*graph.Value{p.Conv2D(op, p.x(x...), p.x(w...), p.x(w[0]))}
	})
}

func TestGradConvTranspose2D(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		op, x, w := p.conv2d()
		y := p.x(x[0], op.Size(0, x[1], w[2]), op.Size(1, x[2], w[3]), w[0])
		return []*graph.Value{p.ConvTranspose2D(op, y, p.x(w...), nil, x[1], x[2])}
	})
}

func TestGradConv1D(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		c, k, dilation := p.int("channels", 1, 3), p.int("k", 1, 3), p.int("dilation", 1, 2)
		x := p.x(p.int("batch", 1, 2), p.int("t", 1, 5), c)
		y := p.Conv1D(x, p.x(2, c, k), p.x(2), p.int("stride", 1, 2), dilation, (k-1)*dilation, 0, 1)
		return []*graph.Value{y}
	})
}

func TestGradPool2D(t *testing.T) {
	for _, kind := range []graph.PoolKind{graph.PoolMax, graph.PoolAverage} {
		t.Run(graph.Pool2D{Kind: kind}.Name(), func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value {
				op := graph.Pool2D{Kind: kind}
				s := graph.Shape{p.int("batch", 1, 2), p.int("h", 3, 5), p.int("w", 3, 5), p.int("channels", 1, 3)}
				for d := range 2 {
					op.Kernel[d], op.Stride[d] = p.int("kernel", 1, 3), p.int("stride", 1, 3)
					op.Pad[2*d], op.Pad[2*d+1] = p.int("before", 0, op.Kernel[d]-1), p.int("after", 0, op.Kernel[d]-1)
				}
				next := 0.0 // distinct elements: the maximum has no tie
				order := p.rng.Perm(int(s.Elems()))
				x := p.operand(s, func() float64 { next++; return 0.1 * float64(order[int(next)-1]) })
				return p.Emit(op, x)
			})
		})
	}
}

func TestGradChannelNorm(t *testing.T) {
	for _, groups := range []int{0, 1, 2} {
		t.Run(graph.ChannelNorm{Groups: groups}.Name(), func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value {
				c := 2 * p.int("half", 1, 2)
				x := p.x(append(p.shape(1, 3), c)...)
				return p.Emit(graph.ChannelNorm{Eps: 0.5, Groups: groups}, x, p.full(c), p.full(c))[:1]
			})
		})
	}
}

func TestGradBatchNormEval(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		c := p.int("c", 1, 3)
		variance := p.declare(graph.T(graph.F32, c), p.rng.Float64)
		mean := p.declare(graph.T(graph.F32, c), p.rng.NormFloat64)
		return []*graph.Value{p.BatchNormEval(p.x(append(p.shape(1, 2), c)...), p.full(c), p.full(c), mean, variance, 0.1)}
	})
}
