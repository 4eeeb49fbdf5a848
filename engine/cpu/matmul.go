package cpu

import (
	"cmp"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/quant"
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

// matmul drives the phases of a matmul; small matmuls of a batch are one task each.
func (c *compiler) matmul(n *graph.Node, op graph.MatMul) ([]phase, error) {
	types := []graph.Type{n.In[0].Type, n.In[1].Type}
	batch, rows, cols, inner := op.Dims(types)
	a, b, out := n.In[0], n.In[1], n.Out[0]
	if rowDots(op, n, batch, rows) {
		return c.rowDot(n, op, rows, cols, inner)
	}
	opts := gemm.Options{Workers: c.workers, Compute: gemmType(a.DType()), ISA: matmulISA}
	var err error
	if opts.MapA, err = mapOf(op.MapA); err != nil {
		return nil, err
	}
	if opts.MapB, err = mapOf(op.MapB); err != nil {
		return nil, err
	}
	if batch > 1 {
		opts.Workers = 1
	}
	bt := gemmType(b.DType())
	if m, ok := b.Type.Quantized(); ok {
		bt, opts.ReadB = gemmType(a.DType()), decoder(m)
	}
	q := product{rows, cols, inner, op.TransA, op.TransB, op.Accumulate}
	p, shared, need := c.plan(q, gemmType(a.DType()), bt, gemmType(out.DType()), op.SumA || batch > 1, opts)
	ar, br, cr := c.ref(a), c.ref(b), c.ref(out)
	args := gemm.Args{
		A: gemm.Matrix{Type: gemmType(a.DType()), Stride: a.Shape().Last(), Trans: op.TransA},
		B: gemm.Matrix{Type: bt, Stride: b.Shape().Last(), Trans: op.TransB},
		C: gemm.Matrix{Type: gemmType(out.DType()), Stride: out.Shape().Last()},
	}
	code := c.code
	if batch > 1 {
		return c.batchedMatmul(n, p, args, batch)
	}
	var ep *epilogue
	var bias *graph.Value
	if op.Body != nil {
		result := cmp.Or(op.Out, a.DType())
		body, in := op.Body, operandsOfBody(n)
		if result == graph.F32 {
			body, in, bias = withoutBias(body, in, cols)
		}
		if len(body.Instrs) > 0 || len(body.Results) > 1 {
			if ep, err = c.epilogue(n, body, in, result, alignUp(need, 64)); err != nil {
				return nil, err
			}
			need = ep.end
		}
	}
	var biasRef ref
	if bias != nil {
		biasRef = c.ref(bias)
	}
	var sums *blockSums
	var see func(kb, k0, k1, i0, i1 int)
	if op.SumA {
		sums = c.blockSums(n, alignUp(shared, 64), p.Blocks(), rows)
		see, shared = sums.add, sums.end()
	}
	c.need(shared, need)
	var ps []phase
	for ph := range p.Phases() {
		ps = append(ps, phase{p.Tasks(ph), func(task, w int) {
			args := args
			args.A.Data, args.B.Data, args.C.Data = ar.ptr(), br.ptr(), cr.ptr()
			if ep != nil {
				args.Epilogue = ep.forWorker(w)
			}
			if bias != nil {
				args.Bias = biasRef.ptr()
			}
			args.SeeA = see
			p.Run(ph, task, &args, code.m.shared, code.worker(w))
		}})
	}
	if op.SumA {
		ps = append(ps, phase{1, sums.total})
	}
	return ps, nil
}

// decoder reads a quantized matrix.
func decoder(m quant.Matrix) gemm.Reader {
	return func(dst []float32, data unsafe.Pointer, i, j int) {
		m.Decode(dst, unsafe.Slice((*byte)(data), m.Bytes()), i*m.Cols+j)
	}
}

// mapOf returns the function that is applied to an operand of a matmul, nil for none.
func mapOf(e graph.Elementwise) (gemm.Map, error) {
	if e == (graph.Elementwise{}) {
		return nil, nil
	}
	f, err := scalarFn(e)
	return func(dst, x []float32) { f(dst, x, nil, nil) }, err
}

// operandsOfBody returns the operands of the body of a matmul n; the first is the
// matmul's result, which is not an operand in memory.
func operandsOfBody(n *graph.Node) []*graph.Value {
	return append([]*graph.Value{n.Out[0]}, n.In[2:]...)
}

// withoutBias removes the first instruction of a body if it adds a float32 vector of cols
// elements to the matmul's result, register 0, which nothing else reads: the matmul
// kernels do that themselves. in are the body's operands.
func withoutBias(body *graph.Body, in []*graph.Value, cols int) (*graph.Body, []*graph.Value, *graph.Value) {
	if len(body.Instrs) == 0 || body.Instrs[0].DType != graph.F32 {
		return body, in, nil
	}
	q, ok := body.Addend(0, 0)
	if !ok || in[q].DType() != graph.F32 || in[q].Shape().Last() != cols || int(in[q].Shape().Elems()) != cols {
		return body, in, nil
	}
	rest, inputs := body.After(1, body.Inputs)
	left := in[:1:1]
	for _, i := range inputs {
		left = append(left, in[i])
	}
	return rest, left, in[q]
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
