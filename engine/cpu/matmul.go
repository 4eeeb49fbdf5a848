package cpu

import (
	"cmp"
	"slices"
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
		return c.rowDot(n, rows, cols, inner)
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

// epilogue runs an elementwise body over the finished tiles of a product.
type epilogue struct {
	p       *program
	code    *Code
	from    int // byte offset of the registers in the worker's scratch
	end     int
	step    []int
	product graph.DType // the format that the product is rounded to first
	rows    bool        // several rows may go through the program at once
	workers []workerEpilogue
}

// workerEpilogue is the epilogue in the hands of one worker.
type workerEpilogue struct {
	*epilogue
	w int
}

// epilogue compiles bd for the product n: register 0 is the product's tile,
// the result that takes its place comes first, others have storage of their own.
func (c *compiler) epilogue(n *graph.Node, bd *graph.Body, product graph.DType, from int) (*epilogue, error) {
	dims := n.Out[0].Shape()
	// The product itself is no operand in memory; a stand-in keeps the numbering.
	in := append([]*graph.Value{n.Out[0]}, n.In[2:]...)
	p, err := c.tileProgram(bd, in, n.Out, dims)
	if err != nil {
		return nil, err
	}
	p.replaceProduct()
	e := &epilogue{p: p, code: c.code, from: from, end: from + p.scratchBytes(), product: product}
	for i := range len(p.in) + len(p.outRef) {
		e.step = append(e.step, p.operand(i).stride[1])
	}
	// Random numbers are counted along a row.
	e.rows = !slices.ContainsFunc(p.code, func(ins instr) bool { return ins.drop != nil })
	for w := range max(c.workers, 1) {
		e.workers = append(e.workers, workerEpilogue{e, w})
	}
	return e, nil
}

// replaceProduct sends result 0 where register 0, the product, is: at once if
// nothing reads the product any more, else at the end.
func (p *program) replaceProduct() {
	p.outRef[0].dtype, p.stored[0] = graph.Invalid, false
	k := p.out[0] - len(p.in)
	if k < 0 {
		return
	}
	p.dest[k] = toRegister
	for _, q := range p.out {
		if q == 0 {
			return
		}
	}
	for _, ins := range p.code[k+1:] {
		if slices.Contains(ins.arg[:ins.narg], 0) {
			return
		}
	}
	p.dest[k], p.stored[0] = toProduct, true
}

func (e *epilogue) forWorker(w int) gemm.Epilogue { return &e.workers[w] }

// Tile implements gemm.Epilogue.
func (e *workerEpilogue) Tile(i0, i1, j0, j1 int, acc *float32, stride int) {
	if e.rows && 2*(j1-j0) <= tile {
		e.group(i0, i1, j0, j1, acc, stride)
		return
	}
	regs := floats(e.code.worker(e.w), e.from, e.p.regs*tile)
	var at [maxOperands]int
	k := len(e.step)
	width := e.p.outRef[0].stride[0]
	for i := i0; i < i1; i++ {
		row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(acc), (i-i0)*stride*4)), j1-j0)
		round(row, e.product)
		for j := j0; j < j1; j += tile {
			m := min(tile, j1-j)
			for q := range k {
				o := e.p.operand(q)
				at[q] = i*o.stride[0] + j*o.stride[1]
			}
			e.p.tile(m, i*width+j, at[:k], e.step, regs, row[j-j0:j-j0+m])
		}
	}
}

// group is Tile for blocks narrower than a tile: several rows go through the
// program at once, since each step costs as much to start as a hundred
// elements to do.
func (e *workerEpilogue) group(i0, i1, j0, j1 int, acc *float32, stride int) {
	p, w := e.p, j1-j0
	regs := floats(e.code.worker(e.w), e.from, p.regs*tile)
	accRow := func(i int) []float32 {
		return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(acc), (i-i0)*stride*4)), w)
	}
	each := tile / w
	for i := i0; i < i1; i += each {
		m := min(each, i1-i)
		for q := range m {
			copy(regs[q*w:(q+1)*w], accRow(i+q))
		}
		round(regs[:m*w], e.product)
		for k := 1; k < len(p.in); k++ {
			o := &p.in[k]
			reg := regs[k*tile : k*tile+m*w]
			for q := range m {
				row := reg[q*w : (q+1)*w]
				if q > 0 && o.stride[0] == 0 {
					copy(row, reg[:w])
					continue
				}
				if src := o.load(row, (i+q)*o.stride[0]+j0*o.stride[1], e.step[k]); &src[0] != &row[0] {
					copy(row, src)
				}
			}
		}
		p.steps(m*w, regs)
		for j, r := range p.out {
			o := &p.outRef[j]
			for q := range m {
				row := regs[r*tile+q*w : r*tile+(q+1)*w]
				if o.dtype == graph.Invalid {
					copy(accRow(i+q), row)
				} else {
					o.store(row, (i+q)*o.stride[0]+j0*o.stride[1])
				}
			}
		}
	}
}

// steps runs the program on registers alone.
func (p *program) steps(n int, regs []float32) {
	reg := func(i int) []float32 { return regs[i*tile : i*tile+n] }
	for k := range p.code {
		ins := &p.code[k]
		dst := reg(len(p.in) + k)
		var y, z []float32
		if ins.narg > 1 {
			y = reg(ins.arg[1])
		}
		if ins.narg > 2 {
			z = reg(ins.arg[2])
		}
		ins.run(dst, reg(ins.arg[0]), y, z)
		round(dst, ins.half)
	}
}
