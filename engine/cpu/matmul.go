package cpu

import (
	"cmp"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
)

func gemmType(d graph.DType) gemm.DType {
	switch d {
	case graph.BF16:
		return gemm.BF16
	case graph.F16:
		return gemm.F16
	}
	return gemm.F32
}

// matmul drives the product's phases; small batches of products are one task each.
func (c *compiler) matmul(n *graph.Node, op graph.MatMul) ([]phase, error) {
	types := []graph.Type{n.In[0].Type, n.In[1].Type}
	batch, rows, cols, inner := op.Dims(types)
	a, b, out := n.In[0], n.In[1], n.Out[0]
	if rowDots(op, n, batch, rows) {
		return c.rowDot(n, op, rows, cols, inner)
	}
	opts := gemm.Options{Accumulate: op.Accumulate, Workers: c.workers, Compute: gemmType(a.DType()), ISA: products}
	if batch > 1 {
		opts.Workers = 1
	}
	p := gemm.NewPlan(rows, cols, inner, gemmType(a.DType()), gemmType(b.DType()), gemmType(out.DType()), op.TransA, op.TransB, opts)
	ar, br, cr := c.ref(a), c.ref(b), c.ref(out)
	args := gemm.Args{
		A: gemm.Matrix{Type: gemmType(a.DType()), Stride: a.Shape().Last(), Trans: op.TransA},
		B: gemm.Matrix{Type: gemmType(b.DType()), Stride: b.Shape().Last(), Trans: op.TransB},
		C: gemm.Matrix{Type: gemmType(out.DType()), Stride: out.Shape().Last()},
	}
	code := c.code
	if batch > 1 {
		return c.batchedMatmul(n, p, args, batch)
	}
	need := p.WorkerBytes()
	var ep *epilogue
	if op.Body != nil {
		var err error
		product := cmp.Or(op.Out, a.DType())
		if ep, err = c.epilogue(n, op.Body, product, alignUp(p.WorkerBytes(), 64)); err != nil {
			return nil, err
		}
		need = ep.end
	}
	c.need(p.SharedBytes(), need)
	var ps []phase
	for ph := range p.Phases() {
		ps = append(ps, phase{p.Tasks(ph), func(task, w int) {
			args := args
			args.A.Data, args.B.Data, args.C.Data = ar.ptr(), br.ptr(), cr.ptr()
			if ep != nil {
				args.Epilogue = ep.forWorker(w)
			}
			p.Run(ph, task, &args, code.m.shared, code.worker(w))
		}})
	}
	return ps, nil
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

func (c *compiler) batchedMatmul(n *graph.Node, p *gemm.Plan, args gemm.Args, batch int) ([]phase, error) {
	ar, br, cr := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	step := func(v *graph.Value) int { return int(v.Type.Bytes()) / batch }
	sa, sb, sc := step(n.In[0]), step(n.In[1]), step(n.Out[0])
	shared := alignUp(p.SharedBytes(), 64)
	c.need(0, shared+p.WorkerBytes())
	code := c.code
	return []phase{{batch, func(i, w int) {
		args := args
		args.A.Data = unsafe.Add(ar.ptr(), i*sa)
		args.B.Data = unsafe.Add(br.ptr(), i*sb)
		args.C.Data = unsafe.Add(cr.ptr(), i*sc)
		mem := code.worker(w)
		for ph := range p.Phases() {
			for t := range p.Tasks(ph) {
				p.Run(ph, t, &args, mem[:shared], mem[shared:])
			}
		}
	}}}, nil
}
