package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// elementwise generates the loop of an elementwise operation or a fused body: one pass over memory, with
// several neighboring elements to a thread.
func (l *lowering) elementwise(n *graph.Node) {
	b, shape := bodyOf(n), n.Out[0].Shape()
	op, _ := n.Op.(graph.Fused)
	whole := len(n.Out) - len(op.Reductions)
	loop := func() *loop {
		k := newLoop(b, shape)
		for i, v := range n.In {
			k.read(i, v.Type, l.at(v))
		}
		for _, v := range n.Out[:whole] {
			k.write(v.DType(), l.at(v), shape.Strides(shape))
		}
		return k
	}
	k := loop()
	if len(op.Reductions) == 0 {
		l.loop(k)
		return
	}
	outer, rows, cols, _ := op.Reductions[0].Columns(shape) // the same for all
	if k.sums = l.columnSums(k, outer, rows, cols); k.sums != nil {
		k.sums.of = b.Results[whole:]
		l.sumUp(k, n.Out[whole:])
		return
	}
	// What is added up goes through the workspace.
	k = loop()
	sums := make([]address, len(op.Reductions))
	types := make([]graph.Type, len(op.Reductions))
	for i := range op.Reductions {
		types[i] = graph.Type{DType: registerType(b, n.In, b.Results[whole+i]), Shape: shape}
		sums[i] = l.take(types[i].Bytes())
		k.write(types[i].DType, sums[i], shape.Strides(shape))
	}
	l.loop(k)
	for i, r := range op.Reductions {
		l.reduceInto(r, types[i], sums[i], l.at(n.Out[whole+i]))
	}
}

// registerType is the format of register r of a body.
func registerType(b *graph.Body, in []*graph.Value, r int) graph.DType {
	if r < b.Inputs {
		return in[r].DType()
	}
	return b.Instrs[r-b.Inputs].DType
}

// copyBody is a body that copies into a format.
func copyBody(d graph.DType) *graph.Body {
	return &graph.Body{Inputs: 1, Results: []int{1}, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnCopy}, Arg: []int{0}, DType: d}}}
}

// bodyOf is the body of an elementwise node.
func bodyOf(n *graph.Node) *graph.Body {
	switch op := n.Op.(type) {
	case graph.Fused:
		return op.Body
	case graph.Expand:
		return copyBody(n.Out[0].DType())
	}
	b := &graph.Body{Inputs: len(n.In), Results: []int{len(n.In)}}
	arg := make([]int, len(n.In))
	for i := range arg {
		arg[i] = i
	}
	b.Instrs = []graph.Instr{{Op: n.Op, Arg: arg, DType: n.Out[0].DType()}}
	return b
}

// loop is a body that runs over the elements of a shape, with the layout of its operands and results.
type loop struct {
	body    *graph.Body
	in, out []strided
	dims    graph.Shape
	width   int         // elements per thread: neighbors along the last dimension
	sums    *columnSums // nil: none
	window  *window     // nil: none
}

// strided is an operand or result of a loop.
type strided struct {
	dtype  graph.DType
	at     address
	stride []int // of each dimension, in elements
	// counter marks the run counter of a dropout, which is read once.
	counter bool
	// taps are how far the elements of a window are from its first, in elements; nil: one for the whole window.
	taps []int
}

func newLoop(b *graph.Body, shape graph.Shape) *loop {
	return &loop{body: b, in: make([]strided, b.Inputs), dims: shape.Clone()}
}

// read makes a value, which must broadcast to the shape, input i of the body.
func (k *loop) read(i int, t graph.Type, at address) {
	if isCounter(k.body, i) {
		k.in[i] = strided{dtype: t.DType, at: at, counter: true}
		return
	}
	k.in[i] = strided{dtype: t.DType, at: at, stride: t.Shape.Strides(k.dims)}
}

// write places the next result of the body, with its strides.
func (k *loop) write(d graph.DType, at address, strides []int) {
	k.out = append(k.out, strided{dtype: d, at: at, stride: strides})
}

// isCounter reports whether input i of b is a run counter.
func isCounter(b *graph.Body, i int) bool {
	return slices.ContainsFunc(b.Instrs, func(s graph.Instr) bool {
		_, drop := s.Op.(graph.Dropout)
		return drop && s.Arg[1] == i
	})
}

const loopThreads = 256

// loop generates and launches a kernel for k.
func (l *lowering) loop(k *loop) {
	k.collapse()
	k.width = k.widest()
	p := &params{}
	for _, o := range k.operands() {
		p.ptr(o.at)
	}
	chunks := int(k.dims.Elems()) / k.width
	if chunks > math.MaxUint32-loopThreads {
		l.fail("a loop over %d elements", k.dims.Elems())
	}
	k.work(l.run(l.generate("loop", func() (string, listing, error) { return k.text(l.target) }), ceil(chunks, loopThreads), loopThreads, p))
}

// work counts the work of the loop.
func (k *loop) work(x *launch) {
	w, last := warps(int(k.dims.Elems())/k.width), len(k.dims)-1
	x.does("warp", w).does("axis", w*last)
	x.bodyWork(k.body, k.width, w*k.window.size(), k.width%4 == 0)
	if k.window != nil {
		x.adds("step max", w*k.window.size()*k.width) // comparing for the gradient is as much
	}
	for i, o := range k.operands() {
		if o.counter {
			continue
		}
		width, axes, n := k.neighbors(*o), 0, max(1, len(o.taps))
		elems := 1
		for d, s := range o.stride {
			if s != 0 {
				axes++
				elems *= k.dims[d]
			}
		}
		if i < len(k.in) {
			x.does("load", n*w).reads(o.dtype, width, n*w)
		} else {
			x.does("store", n*w).writes(o.dtype, width, n*w)
		}
		x.does("stride", w*axes).adds(counts.Sector, n*w*o.sectors(k.dims, k.width))
		x.moves(int64(n*elems) * o.dtype.Size())
	}
}

// sectors is how many sectors of an operand the first warp touches: neighboring lanes have neighboring
// chunks.
func (o *strided) sectors(dims graph.Shape, width int) int {
	const sector = 32
	size := int(o.dtype.Size())
	touched := make([]int, 0, 32)
	for lane := range min(32, int(dims.Elems())/width) {
		at, rest := 0, lane*width
		for d := len(dims) - 1; d >= 0; d-- {
			at += rest % dims[d] * o.stride[d]
			rest /= dims[d]
		}
		touched = append(touched, at*size/sector)
	}
	slices.Sort(touched)
	return len(slices.Compact(touched))
}

// operands are what the loop reads and writes, in the order of its parameters.
func (k *loop) operands() []*strided {
	var all []*strided
	for i := range k.in {
		all = append(all, &k.in[i])
	}
	for i := range k.out {
		all = append(all, &k.out[i])
	}
	return all
}

// walked are the operands that the loop steps through.
func (k *loop) walked() []*strided {
	return slices.DeleteFunc(k.operands(), func(o *strided) bool { return o.counter })
}

// collapse drops dimensions of extent 1 and joins neighboring dimensions that all operands step through as
// one.
func (k *loop) collapse() {
	for d := len(k.dims) - 1; d >= 0; d-- {
		if k.dims[d] == 1 && len(k.dims) > 1 {
			k.remove(d)
		}
	}
	for d := len(k.dims) - 2; d >= 0; d-- {
		apart := func(o *strided) bool { return o.stride[d] != o.stride[d+1]*k.dims[d+1] }
		if slices.ContainsFunc(k.walked(), apart) {
			continue
		}
		k.dims[d+1] *= k.dims[d]
		k.remove(d)
	}
	if len(k.dims) == 0 {
		k.dims = graph.Shape{1}
		for _, o := range k.walked() {
			o.stride = []int{0}
		}
	}
}

func (k *loop) remove(d int) {
	k.dims = slices.Delete(k.dims, d, d+1)
	for _, o := range k.walked() {
		o.stride = slices.Delete(slices.Clone(o.stride), d, d+1)
	}
}

// widest is how many neighbors a thread can process with one access of at most 16 bytes to each operand.
func (k *loop) widest() int {
	last := len(k.dims) - 1
	for w := 8; w > 1; w /= 2 {
		narrow := func(o *strided) bool {
			if o.stride[last] == 0 {
				return false
			}
			size := int(o.dtype.Size())
			bad := o.stride[last] != 1 || w*size > 16 || o.at.offset%int64(w*size) != 0
			for _, s := range o.stride[:last] {
				bad = bad || s%w != 0
			}
			return bad
		}
		if k.dims[last]%w == 0 && !slices.ContainsFunc(k.walked(), narrow) {
			return w
		}
	}
	return 1
}

// text is the PTX of the kernel from its parameters on, and what it is for.
func (k *loop) text(target int) (string, listing, error) {
	steps, err := stepsOf(target)
	if err != nil {
		return "", nil, err
	}
	e := &emitter{steps: steps}
	e.says("the elements of the thread")
	chunk := e.chunk()
	e.put("setp.ge.u32 %%outside, %s, %d", chunk, int(k.dims.Elems())/k.width)
	e.put("@%%outside bra $done")
	if k.window != nil {
		err = k.windows(e, chunk)
	} else {
		_, err = k.elements(e, chunk)
	}
	if err != nil {
		return "", nil, err
	}
	text, says := e.kernel(len(k.in)+len(k.out), loopThreads)
	return text, says, nil
}

// elements emits what becomes of the elements of a chunk, and returns the registers of the body.
func (k *loop) elements(e *emitter, chunk string) ([][]string, error) {
	k.coordinates(e, chunk)
	var err error
	values := make([][]string, len(k.in))
	for i, o := range k.in {
		e.reads(i, o.dtype)
		at := k.address(e, i, o)
		if o.counter {
			run := e.fresh()
			e.put("ld.global.b32 %s, [%s]", run, at)
			values[i] = []string{run}
			continue
		}
		if values[i], err = e.load(o.dtype, at, k.neighbors(o)); err != nil {
			return nil, err
		}
	}
	if values, err = k.run(e, chunk, values); err != nil {
		return nil, err
	}
	for i, o := range k.out {
		e.writes(i, k.body.Results[i], o.dtype)
		v := values[k.body.Results[i]]
		for len(v) < k.width {
			v = append(v, v[0])
		}
		if err := e.store("", o.dtype, k.address(e, len(k.in)+i, o), v); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// neighbors is how many elements of an operand a thread reads or writes for its own.
func (k *loop) neighbors(o strided) int {
	if o.stride[len(k.dims)-1] == 0 {
		return 1 // the same value for all neighbors
	}
	return k.width
}

// run emits the instructions of the body, and returns its registers: the inputs, and what was computed.
func (k *loop) run(e *emitter, chunk string, values [][]string) ([][]string, error) {
	for i, s := range k.body.Instrs {
		e.says("%s", k.body.InstrString(i))
		v, err := e.step(s, values, k.width, func(op graph.Dropout, run string) ([]string, error) {
			first := e.wide()
			e.put("mul.wide.u32 %s, %s, %d", first, chunk, k.width)
			return e.words(op, k.width, k.width%4 == 0, first, run)
		})
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// chunk is the number of the thread, whose elements are the chunk with that number.
func (e *emitter) chunk() string {
	block, thread, chunk := e.fresh(), e.fresh(), e.fresh()
	e.put("mov.u32 %s, %%ctaid.x", block)
	e.put("mov.u32 %s, %%tid.x", thread)
	e.put("mad.lo.u32 %s, %s, %d, %s", chunk, block, loopThreads, thread)
	return chunk
}

// coordinates computes the position of a chunk's first element along each dimension, the last in units of
// the width, in the emitter's words 0, 1 and so on.
func (k *loop) coordinates(e *emitter, chunk string) {
	rest := chunk
	for d := len(k.dims) - 1; d > 0; d-- {
		n := k.dims[d]
		if d == len(k.dims)-1 {
			n /= k.width
		}
		q, whole := e.fresh(), e.fresh()
		e.put("div.u32 %s, %s, %d", q, rest, n)
		e.put("mul.lo.u32 %s, %s, %d", whole, q, n)
		e.put("sub.u32 %s, %s, %s", e.word(d), rest, whole)
		rest = q
	}
	e.put("mov.u32 %s, %s", e.word(0), rest)
}

// address computes where the thread's part of an operand begins.
func (k *loop) address(e *emitter, param int, o strided) string {
	at := e.wide()
	e.put("ld.param.u64 %s, [p%d]", at, param)
	e.put("cvta.to.global.u64 %s, %s", at, at)
	for d, s := range o.stride {
		if d == len(k.dims)-1 {
			s *= k.width
		}
		if s == 0 {
			continue
		}
		step := int64(s) * o.dtype.Size()
		if step <= math.MaxUint32 {
			e.put("mad.wide.u32 %s, %s, %d, %s", at, e.word(d), step, at)
		} else {
			wide := e.wide()
			e.put("cvt.u64.u32 %s, %s", wide, e.word(d))
			e.put("mad.lo.u64 %s, %s, %d, %s", at, wide, step, at)
		}
	}
	return at
}

// kernel completes the text so far to a kernel, from its parameters on: n addresses p0, p1, ...
func (e *emitter) kernel(n, threads int) (string, listing) {
	params := make([]string, n)
	for i := range params {
		params[i] = fmt.Sprintf("\t.param .u64 p%d", i)
	}
	head := fmt.Sprintf("(\n%s\n)\n.maxntid %d, 1, 1\n{\n\t.reg .pred %%outside;\n\t.reg .b32 %%v<%d>;\n\t.reg .b64 %%w<%d>;\n", strings.Join(params, ",\n"), threads, e.n, e.m)
	if e.shared > 0 {
		head += fmt.Sprintf("\t.shared .align 16 .b8 shared[%d];\n", e.shared)
	}
	e.says("")
	return head + e.text.String() + "$done:\n\tret;\n}\n\n", e.listing.moved(len(head))
}
