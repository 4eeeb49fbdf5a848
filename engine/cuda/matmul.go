package cuda

import (
	"cmp"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/tiling"
)

// factor is an operand of a product in memory: a matrix or a batch of them.
type factor struct {
	dtype graph.DType
	at    address
	trans bool
}

// product is op(A) op(B), an m x n matrix for each of batch, with inner dimension k.
type product struct {
	a, b           factor
	batch, m, n, k int
	// pitch is the distance in elements between rows of A that are padded with zeros; 0: rows are not padded.
	pitch int
	// tf32 says that float32 factors are rounded to TF32.
	tf32 bool
	// decodes, when set, has a quantized B decoded by the kernel that multiplies.
	decodes *quantized
}

func (l *lowering) matmul(n *graph.Node, op graph.MatMul) {
	in := make([]graph.Type, 2)
	for i := range in {
		in[i] = n.In[i].Type
	}
	p := product{a: l.factor(n.In[0], op.TransA, op.MapA), tf32: op.TF32}
	p.batch, p.m, p.n, p.k = op.Dims(in)
	if !in[1].DType.Quantized() {
		p.b = l.factor(n.In[1], op.TransB, op.MapB)
	} else if q := l.quantized(n.In[1]); l.decodesInMatmul(p, q) {
		p.b, p.decodes = factor{p.a.dtype, q.at, op.TransB}, &q
	} else {
		p.b = l.decoded(n.In[1], p.a.dtype, op.TransB)
	}
	if op.SumA { // sums over K of a matrix [K, M]
		l.reduceColumns("sum_", n.In[0].DType(), l.at(n.In[0]), l.at(n.Out[len(n.Out)-1]), 1, p.k, p.m, 1)
	}
	l.product(p, l.epilogueOf(n, op))
}

// factor is an operand of a product, with a function applied to it.
func (l *lowering) factor(v *graph.Value, trans bool, f graph.Elementwise) factor {
	if f == (graph.Elementwise{}) {
		return factor{v.DType(), l.at(v), trans}
	}
	at := l.take(v.Type.Bytes())
	k := newLoop(&graph.Body{Inputs: 1, Results: []int{1}, Instrs: []graph.Instr{{Op: f, Arg: []int{0}, DType: v.DType()}}}, v.Shape())
	k.read(0, v.Type, l.at(v))
	k.write(v.DType(), at, v.Shape().Strides(v.Shape()))
	l.loop(k)
	return factor{v.DType(), at, trans}
}

// epilogueOf is the epilogue of a node's product.
func (l *lowering) epilogueOf(n *graph.Node, op graph.MatMul) *epilogue {
	y := n.Out[0]
	cols := y.Shape().Last()
	d := op.Out
	if d == graph.Invalid {
		d = n.In[0].DType()
	}
	switch {
	case op.Accumulate:
		return accumulating(cols, l.at(y))
	case op.Body == nil:
		return plain(d, cols, l.at(y))
	}
	e := &epilogue{body: op.Body, first: d, cols: cols}
	for i, v := range n.In[2:] {
		o := placed{dtype: v.DType(), at: l.at(v), extent: counter}
		if !isCounter(op.Body, i+1) {
			var ok bool
			if o.extent, ok = extentOf(v.Shape(), y.Shape()); !ok {
				return l.afterwards(n, op, d)
			}
		}
		e.in = append(e.in, o)
	}
	for _, v := range n.Out[:len(op.Body.Results)] {
		e.out = append(e.out, placed{dtype: v.DType(), at: l.at(v)})
	}
	if len(e.in)+len(e.out) > maxPlaced {
		return l.afterwards(n, op, d)
	}
	return e
}

// accumulating is the epilogue that adds to a float32 matrix.
func accumulating(cols int, to address) *epilogue {
	c := placed{dtype: graph.F32, at: to}
	return &epilogue{
		body:  &graph.Body{Inputs: 2, Results: []int{2}, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{1, 0}, DType: graph.F32}}},
		first: graph.F32, cols: cols, in: []placed{c}, out: []placed{c},
	}
}

// afterwards stores the product in the workspace and runs the body later as a loop.
func (l *lowering) afterwards(n *graph.Node, op graph.MatMul, d graph.DType) *epilogue {
	y := n.Out[0]
	t := graph.Type{DType: d, Shape: y.Shape()}
	e := plain(d, y.Shape().Last(), l.take(t.Bytes()))
	k := newLoop(op.Body, y.Shape())
	k.read(0, t, e.out[0].at)
	for i, v := range n.In[2:] {
		k.read(i+1, v.Type, l.at(v))
	}
	for _, v := range n.Out[:len(op.Body.Results)] {
		k.write(v.DType(), l.at(v), y.Shape().Strides(y.Shape()))
	}
	l.later = append(l.later, func() { l.loop(k) })
	return e
}

// product launches p and its epilogue.
func (l *lowering) product(p product, e *epilogue) {
	if p.a.dtype != p.b.dtype {
		p.a, p.b = l.wide(p.a, p.batch*p.m*p.k), l.wide(p.b, p.batch*p.k*p.n)
	}
	p.tf32 = p.tf32 && p.a.dtype == graph.F32
	first, free := len(l.launches), l.scratch
	cut := p.tiled()
	if parts, size := cut.Split(l.sms, cut.Tile(l.sms)); parts > 1 {
		sum := l.take(4 * int64(p.m) * int64(p.n))
		partial := l.take(4 * int64(parts) * int64(p.m) * int64(p.n))
		l.gemm(p, plain(graph.F32, p.n, partial), parts, size)
		l.reduceColumns("sum_", graph.F32, partial, sum, 1, parts, p.m*p.n, 1)
		l.epilogueLoop(e, p.m, sum)
	} else {
		l.gemm(p, e, 1, p.k)
	}
	if p.decodes == nil {
		l.replaceable(p, e, first, free)
	}
	for _, f := range l.later {
		f()
	}
	l.later = nil
}

// wide converts a factor to float32.
func (l *lowering) wide(f factor, elems int) factor {
	if f.dtype == graph.F32 {
		return f
	}
	at := l.take(4 * int64(elems))
	l.copyLoop(graph.Shape{elems}, strided{dtype: f.dtype, at: f.at, stride: []int{1}}, strided{dtype: graph.F32, at: at, stride: []int{1}})
	return factor{graph.F32, at, f.trans}
}

// onTensorCores reports whether there are kernels on tensor cores for products of a format; float32 needs
// rounding to TF32.
func (l *lowering) onTensorCores(d graph.DType, tf32 bool) bool {
	if tf32 && l.target < 80 {
		l.fail("tf32 needs compute capability 8.0 or newer")
	}
	return d == graph.F16 || d == graph.BF16 && l.target >= 80 || d == graph.F32 && tf32
}

// formatOf is a format's name in the names of kernels on tensor cores.
func formatOf(d graph.DType) string {
	if d == graph.F32 {
		return "tf32"
	}
	return d.String()
}

// perPiece is how many elements of a format 16 bytes hold.
func perPiece(d graph.DType) int { return int(16 / d.Size()) }

// aligned reports whether a factor's rows of n elements begin at multiples of 16 bytes.
func aligned(f factor, n int) bool { return n%perPiece(f.dtype) == 0 && f.at.offset%16 == 0 }

// rowA is the length of a row of A.
func (p product) rowA() int {
	if p.a.trans {
		return p.m
	}
	return p.k
}

// tiled is p in the form that tiling takes.
func (p product) tiled() tiling.Product {
	return tiling.Product{Batch: p.batch, M: p.m, N: p.n, K: p.k}
}

// gemm launches a product; part i of K gives rows i*m... of the result.
func (l *lowering) gemm(p product, e *epilogue, parts, size int) {
	s := p.tiled().Tile(l.sms)
	pitch, rowB := cmp.Or(p.pitch, p.rowA()), p.n
	if p.b.trans {
		rowB = p.k
	}
	kernel, threads := tileName(s), 128
	params, bytesB := new(params).ptr(p.a.at), int64(p.k)*int64(p.n)*p.b.dtype.Size()
	if p.decodes != nil {
		p.decodes.pass(l, params)
		bytesB = int64(p.decodes.Bytes())
	} else {
		params.ptr(p.b.at)
	}
	params.u32(p.m, p.n, p.k, pitch, parts, size)
	if l.onTensorCores(p.a.dtype, p.tf32) {
		if p.a.trans && p.b.trans || !aligned(p.a, pitch) || !aligned(p.b, rowB) {
			kernel, s = "any", 64
		}
		kernel = "gemm_" + kernel + "_" + transposes(p) + "_" + formatOf(p.a.dtype)
		if p.decodes != nil {
			kernel += "_" + p.decodes.format()
		}
	} else {
		l.steppable(pitch, p.n, p.k)
		kernel, threads = "sgemm_"+kernel+"_"+p.a.dtype.String(), 256
		params.u32(flag(p.a.trans), flag(p.b.trans))
	}
	tiles := ceil(p.n, s) * ceil(p.m, s) * p.batch * parts
	x := l.runProduct(kernel, [3]int{tiles, 1, 1}, threads, params, e, s*s, tiles, p.batch*parts*p.m*p.n)
	x.multiplies(p.batch*p.m, p.n, p.k).moves(int64(p.batch) * (int64(p.m)*int64(p.k)*p.a.dtype.Size() + bytesB))
	if threads == 256 { // one kernel for all layouts, with steps of 8 along K
		x.does("step "+transposes(p), tiles*ceil(size, 8))
		return
	}
	x.does("step", tiles*ceil(size, 32))
}

// steppable fails for a float32 product whose rows are so long that the elements of 32 rows cannot be counted
// in 32 bits, as the kernels count them to step over rows.
func (l *lowering) steppable(row ...int) {
	if n := slices.Max(row); n >= 1<<27 {
		l.fail("a float32 matmul with rows of %d elements: want fewer than 2^27", n)
	}
}

// runProduct launches a kernel with an epilogue in its places. Each of tiles blocks computes a tile of area
// elements of a result of elems elements.
func (l *lowering) runProduct(kernel string, grid [3]int, threads int, params *params, e *epilogue, area, tiles, elems int) *launch {
	params.align(8)
	for _, o := range slices.Concat(e.in, e.out) {
		params.ptr(o.at)
	}
	for range maxPlaced - len(e.in) - len(e.out) {
		params.null()
	}
	name := l.generate(kernel, func() (string, listing, error) { return e.substitute(l.target, kernel) })
	x := l.runGrid(name, grid, threads, params)
	x.does("tile", tiles)
	e.work(x, tiles*area/(32*lanes), elems)
	return x
}

func transposes(p product) string {
	return map[bool]string{false: "n", true: "t"}[p.a.trans] + map[bool]string{false: "n", true: "t"}[p.b.trans]
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// epilogueLoop runs an epilogue as a loop over the rows of a product in the workspace.
func (l *lowering) epilogueLoop(e *epilogue, rows int, at address) {
	// The product is first rounded, as a separate step.
	b := &graph.Body{Inputs: e.body.Inputs, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnCopy}, Arg: []int{0}, DType: e.first}}}
	moved := func(r int) int {
		switch {
		case r == 0:
			return b.Inputs
		case r >= e.body.Inputs:
			return r + 1
		}
		return r
	}
	for _, s := range e.body.Instrs {
		s.Arg = slices.Clone(s.Arg)
		for i, a := range s.Arg {
			s.Arg[i] = moved(a)
		}
		b.Instrs = append(b.Instrs, s)
	}
	for _, r := range e.body.Results {
		b.Results = append(b.Results, moved(r))
	}
	l.bodyLoop(b, e, graph.Type{DType: graph.F32, Shape: graph.Shape{rows, e.cols}}, at)
}

// bodyLoop runs a body as a loop over a product in memory, with the operands and results of an epilogue.
func (l *lowering) bodyLoop(b *graph.Body, e *epilogue, product graph.Type, at address) {
	shape := product.Shape
	k := newLoop(b, shape)
	k.read(0, product, at)
	for i, o := range e.in {
		k.read(i+1, graph.Type{DType: o.dtype, Shape: [...]graph.Shape{full: shape, perColumn: {e.cols}, perRow: {shape[0], 1}, scalar: {}, counter: {2}}[o.extent]}, o.at)
	}
	for _, o := range e.out {
		k.write(o.dtype, o.at, shape.Strides(shape))
	}
	l.loop(k)
}
