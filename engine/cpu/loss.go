package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// target checks a label: it returns the class, or ok = false for a row without weight.
func (c *Code) target(label int32, vocab, at int, layer string) (class int, ok bool) {
	if int(label) >= vocab {
		c.m.fail(fmt.Errorf("%s: label %d at position %d is outside the %d classes", layer, label, at, vocab))
		return 0, false
	}
	return int(label), label >= 0
}

func (c *compiler) crossEntropy(n *graph.Node) ([]phase, error) {
	logits, labels, weights := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2])
	loss, lse := c.ref(n.Out[0]), c.ref(n.Out[1])
	rows, vocab, d := n.In[0].Shape()[0], n.In[0].Shape()[1], n.In[0].DType()
	code, layer := c.code, n.Layer
	c.need(rows*8, vocab*4)
	each := func() []float64 { return unsafe.Slice((*float64)(unsafe.Pointer(&code.m.shared[0])), rows) }
	tasks, per := chunks(rows, max(1, grain/4/vocab))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, vocab)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			x := row(logits, d, i, vocab, reg)
			lse.f32()[i] = simd.LogSumExpRow(x)
			each()[i] = 0
			if t, ok := code.target(labels.i32()[i], vocab, i, layer); ok {
				each()[i] = float64(weights.f32()[i]) * float64(lse.f32()[i]-x[t])
			}
		}
	}}, {1, func(_, _ int) { loss.f32()[0] = sum64(each()) }}}, nil
}

func sum64(x []float64) float32 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return float32(s)
}

func (c *compiler) crossEntropyGrad(n *graph.Node) ([]phase, error) {
	logits, labels, weights := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2])
	lse, dloss, out := c.ref(n.In[3]), c.ref(n.In[4]), c.ref(n.Out[0])
	rows, vocab, d := n.In[0].Shape()[0], n.In[0].Shape()[1], n.In[0].DType()
	code, layer := c.code, n.Layer
	c.need(0, 2*vocab*4)
	tasks, per := chunks(rows, max(1, grain/4/vocab))
	return []phase{{tasks, func(task, w int) {
		in, reg := floats(code.worker(w), 0, vocab), floats(code.worker(w), vocab*4, vocab)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			y := direct(out, d, i, vocab, reg)
			x := row(logits, d, i, vocab, in)
			if t, ok := code.target(labels.i32()[i], vocab, i, layer); ok {
				simd.CrossEntropyRowGrad(y, x, lse.f32()[i], t, dloss.scalar()*weights.f32()[i])
			} else {
				clear(y)
			}
			put(out, d, i, vocab, y)
		}
	}}}, nil
}

// chunkedLoss drives the matmuls of a LinearCrossEntropy one chunk of rows at a time:
// logits = h w^T, then their loss (and gradient, in place), then with grad dh = dlogits w
// and dw += dlogits^T h.
type chunkedLoss struct {
	h, w, labels, weights, scratch ref
	dh, dw, dloss                  ref
	rows, width, vocab, chunk      int
	dtype, stored                  graph.DType // of h, of w
	layer                          string
	grad, accumulate, frozen       bool // frozen: there is no dw
}

func (c *compiler) linearCrossEntropy(n *graph.Node, op graph.LinearCrossEntropy) ([]phase, error) {
	if op.Exponentials {
		return nil, errExponentials
	}
	l := c.chunkedLoss(n, op.Chunk)
	l.scratch = c.ref(n.Out[2])
	return c.lowerChunkedLoss(l, c.ref(n.Out[0]), c.ref(n.Out[1]))
}

func (c *compiler) linearCrossEntropyGrad(n *graph.Node, op graph.LinearCrossEntropyGrad) ([]phase, error) {
	if op.Exponentials {
		return nil, errExponentials
	}
	l := c.chunkedLoss(n, op.Chunk)
	l.grad, l.accumulate = true, len(n.In) > 5
	l.dloss, l.dh, l.scratch = c.ref(n.In[4]), c.ref(n.Out[1]), c.ref(n.Out[len(n.Out)-1])
	if l.frozen = op.Frozen; !l.frozen {
		l.dw = c.ref(n.Out[2])
	}
	return c.lowerChunkedLoss(l, c.ref(n.Out[0]), ref{})
}

// errExponentials refuses what only cards do: here, a chunk of logits stays in the cache.
var errExponentials = errors.New("exponentials of logits are kept by cards, not by processors")

func (c *compiler) chunkedLoss(n *graph.Node, chunk int) *chunkedLoss {
	return &chunkedLoss{
		h: c.ref(n.In[0]), w: c.ref(n.In[1]), labels: c.ref(n.In[2]), weights: c.ref(n.In[3]),
		rows: n.In[0].Shape()[0], width: n.In[0].Shape()[1], vocab: n.In[1].Shape()[0], chunk: chunk,
		dtype: n.In[0].DType(), stored: n.In[1].DType(), layer: n.Layer,
	}
}

func (c *compiler) lowerChunkedLoss(l *chunkedLoss, loss, lse ref) ([]phase, error) {
	code := c.code
	t, stored := gemmType(l.dtype), gemmType(l.stored)
	size := int(l.dtype.Size())
	// The shared workspace holds the row losses and then the panels of the matmuls.
	front := alignUp(l.rows*8, 64)
	each := func() []float64 { return unsafe.Slice((*float64)(unsafe.Pointer(&code.m.shared[0])), l.rows) }
	multiply := func(m, n, k int, a, b, out gemm.DType, ta, tb, acc bool, args func() (a, b, c unsafe.Pointer), strides [3]int) []phase {
		p, shared, worker := c.plan(product{m, n, k, ta, tb, acc}, a, b, out, false, gemm.Options{Workers: c.workers, Compute: t, ISA: matmulISA})
		c.need(front+shared, worker)
		var ps []phase
		for ph := range p.Phases() {
			ps = append(ps, phase{p.Tasks(ph), func(task, w int) {
				pa, pb, pc := args()
				run := gemm.Args{
					A: gemm.Matrix{Data: pa, Type: a, Stride: strides[0], Trans: ta},
					B: gemm.Matrix{Data: pb, Type: b, Stride: strides[1], Trans: tb},
					C: gemm.Matrix{Data: pc, Type: out, Stride: strides[2]},
				}
				p.Run(ph, task, &run, code.m.shared[front:], code.worker(w))
			}})
		}
		return ps
	}
	var ps []phase
	for r0 := 0; r0 < l.rows; r0 += l.chunk {
		m := min(l.chunk, l.rows-r0)
		hAt := func() unsafe.Pointer { return unsafe.Add(l.h.ptr(), r0*l.width*size) }
		ps = append(ps, multiply(m, l.vocab, l.width, t, stored, gemm.F32, false, true, false,
			func() (_, _, _ unsafe.Pointer) { return hAt(), l.w.ptr(), l.scratch.ptr() },
			[3]int{l.width, l.width, l.vocab})...)
		tasks, per := chunks(m, max(1, grain/4/l.vocab))
		ps = append(ps, phase{tasks, func(task, _ int) {
			for i := task * per; i < min((task+1)*per, m); i++ {
				l.row(code, i, r0+i, each(), lse)
			}
		}})
		if !l.grad {
			continue
		}
		ps = append(ps, multiply(m, l.width, l.vocab, gemm.F32, stored, t, false, false, false,
			func() (_, _, _ unsafe.Pointer) {
				return l.scratch.ptr(), l.w.ptr(), unsafe.Add(l.dh.ptr(), r0*l.width*size)
			}, [3]int{l.vocab, l.width, l.width})...)
		if l.frozen {
			continue
		}
		ps = append(ps, multiply(l.vocab, l.width, m, gemm.F32, t, gemm.F32, true, false, l.accumulate || r0 > 0,
			func() (_, _, _ unsafe.Pointer) { return l.scratch.ptr(), hAt(), l.dw.ptr() },
			[3]int{l.vocab, l.width, l.width})...)
	}
	ps = append(ps, phase{1, func(_, _ int) { loss.f32()[0] = sum64(each()) }})
	return ps, nil
}

// row computes row i of a chunk, row at overall: its loss, and its gradient in place.
func (l *chunkedLoss) row(code *Code, i, at int, each []float64, lse ref) {
	x := l.scratch.f32()[i*l.vocab : (i+1)*l.vocab]
	t, ok := code.target(l.labels.i32()[at], l.vocab, at, l.layer)
	each[at] = 0
	if lse.n > 0 {
		lse.f32()[at] = simd.LogSumExpRow(x)
	}
	weight := l.weights.f32()[at]
	if !ok || weight == 0 {
		if l.grad {
			clear(x)
		}
		return
	}
	nll, z := simd.CrossEntropyRow(x, t)
	each[at] = float64(weight) * float64(nll)
	if l.grad {
		simd.CrossEntropyRowGrad(x, x, z, t, l.dloss.scalar()*weight)
	}
}
