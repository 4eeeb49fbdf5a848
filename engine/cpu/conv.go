package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
)

// Convolution is a matmul of the patches of an image with the weights, rectangle by
// rectangle of positions (implicit GEMM): a task fills in the border of its
// rectangle, and the kernels read the patches in place. For few channels in or out
// see convfew.go.

// word returns the type in which operands of types a and b are multiplied.
func word(a, b graph.DType) gemm.DType {
	if a == graph.BF16 && b == graph.BF16 {
		return gemm.BF16
	}
	return gemm.F32
}

// micro multiplies patches by weights of type d. Runs of an odd number of
// elements do not start with words of two.
func (p *patches) micro(d graph.DType) gemm.Micro {
	var terms []int
	for _, t := range p.runs {
		terms = append(terms, t.n*p.ch)
		if t.n*p.ch%2 != 0 {
			return gemm.NewMicro(matmulISA, gemm.F32)
		}
	}
	return gemm.NewMicro(matmulISA, word(p.dtype, d), terms...)
}

// wordType is the type of elements that u reads in place.
func wordType(u gemm.Micro) graph.DType {
	if u.Word() == gemm.BF16 {
		return graph.BF16
	}
	return graph.F32
}

// patchProduct is one matmul of patches with a matrix of weights [taps*channels, n].
type patchProduct struct {
	grid
	u       gemm.Micro
	d       graph.DType // of the patches' elements
	n       int
	cut     int // columns of a task
	packed  int // offset of the packed weights in the shared workspace
	bytes   int // of the packed weights
	product int // offset of the float32 result in the worker's scratch, if it is not stored directly
	need    int // scratch of a worker
}

const (
	// patchBytes is the part of the second-level cache that a frame may take.
	patchBytes = 256 << 10
	// positions is how many positions make the rows of a task.
	positions = 512
)

func (c *compiler) patchProduct(p *patches, n int, weights graph.DType, direct bool) *patchProduct {
	q := &patchProduct{u: p.micro(weights), n: n}
	q.d = wordType(q.u)
	q.grid = p.grid(positions, 2*c.workers, q.d)
	// Few positions: columns are shared out too.
	q.cut = min(n, alignUp(max(1, n*q.rects()/(2*c.workers)), q.u.Cols()))
	q.bytes = q.u.PackedBytes(p.inner(), n)
	q.product = q.frameBytes(q.d)
	q.need = q.product
	if !direct {
		q.need += q.positions() * q.cut * 4
	}
	return q
}

func (q *patchProduct) tasks() int { return q.rects() * ((q.n + q.cut - 1) / q.cut) }

// part returns the part that a task computes.
func (q *patchProduct) part(task int) (r rect, col, cols int) {
	cuts := (q.n + q.cut - 1) / q.cut
	col = task % cuts * q.cut
	return q.at(task / cuts), col, min(q.cut, q.n-col)
}

// run runs one task. out, if not nil, receives the result, ld floats per position;
// otherwise it is left in the scratch, which is returned, cut floats per position.
func (q *patchProduct) run(task int, shared, mem []byte, out *float32, ld int) *float32 {
	r, col, cols := q.part(task)
	line := q.wide * ld // floats from row to row of positions
	if out == nil {
		out, ld = (*float32)(unsafe.Pointer(&mem[q.product])), q.cut
		line = r.cols * ld
	} else {
		out = (*float32)(unsafe.Add(unsafe.Pointer(out), 4*(q.first(r)*ld+col)))
	}
	if len(q.runs) == 0 {
		clear(unsafe.Slice(out, r.rows*line))
		return out
	}
	f := q.frame(r, q.d, mem)
	weights := q.u.Panels(q.inner(), shared[q.packed:])
	for j := 0; j < cols; j += q.u.Cols() {
		panel := weights.Rest(q.u, 0, col+j)
		for i := range r.rows {
			at := (*float32)(unsafe.Add(unsafe.Pointer(out), 4*(i*line+j)))
			k := 0
			for _, t := range q.runs {
				inner := t.n * q.ch
				a := f.rows(i, t)
				left := q.u.ViewA(&a)
				q.u.Mul(r.cols, min(q.u.Cols(), cols-j), inner, &left, panel.Rest(q.u, k, 0), at, ld, k > 0)
				k += inner
			}
		}
	}
	return out
}

// weights are a convolution's weights [O,C,taps], rearranged in the order of patches:
// [O,taps,C], or transposed, for gradients of the image, [taps,O,C].
type weights struct {
	src         ref
	dtype       graph.DType
	out, in, kk int
	turned      bool
	at          int // offset in the shared workspace
}

// order is the phase that rearranges them.
func (w *weights) order(code *Code) phase {
	tasks, per := chunks(w.out, max(1, 4*grain/(w.in*w.kk)))
	return phase{tasks, func(task, _ int) {
		for o := task * per; o < min((task+1)*per, w.out); o++ {
			for t := range w.kk {
				to, from := w.row(o, t), o*w.in*w.kk+t
				if w.dtype == graph.F32 {
					strided(floats(code.m.shared, w.at+to*4, w.in), w.src.f32()[from:], w.kk)
				} else {
					src := unsafe.Slice((*uint16)(w.src.ptr()), w.src.n)
					strided(unsafe.Slice((*uint16)(unsafe.Pointer(&code.m.shared[w.at+to*2])), w.in), src[from:], w.kk)
				}
			}
		}
	}}
}

// row is the position of the channels of output o and tap t.
func (w *weights) row(o, t int) int {
	if w.turned {
		return (t*w.out + o) * w.in
	}
	return (o*w.kk + t) * w.in
}

func (w *weights) bytes() int { return w.out * w.in * w.kk * int(w.dtype.Size()) }

// strided copies every step-th element.
func strided[T any](dst, src []T, step int) {
	if step == 1 {
		copy(dst, src)
		return
	}
	for i := range dst {
		dst[i] = src[i*step]
	}
}

// packPhase packs the weights of the matmuls, which are contiguous.
func (c *compiler) packPhase(w *weights, products []*patchProduct) phase {
	code := c.code
	type job struct {
		q         *patchProduct
		col, cols int
	}
	var jobs []job
	scratch := 0
	for _, q := range products {
		if q.inner() == 0 {
			continue
		}
		scratch = max(scratch, q.u.ScratchBytes(q.inner()))
		group := 4 * q.u.Cols()
		for col := 0; col < q.n; col += group {
			jobs = append(jobs, job{q, col, min(group, q.n-col)})
		}
	}
	// Transposed weights of some of the taps are gathered first.
	gathered := 0
	if w.turned {
		for _, q := range products {
			gathered = max(gathered, alignUp(q.inner()*4*q.u.Cols()*4, 64))
		}
	}
	c.need(0, scratch+gathered)
	size := int(w.dtype.Size())
	return phase{len(jobs), func(task, worker int) {
		j := jobs[task]
		mem := code.worker(worker)
		dst := code.m.shared[j.q.packed+j.q.u.PackedBytes(j.q.inner(), j.col):]
		b := gemm.Matrix{Type: gemmType(w.dtype)}
		if w.turned {
			b.Data, b.Stride = unsafe.Pointer(&mem[scratch]), j.cols
			k := scratch
			for _, t := range j.q.taps {
				for o := range w.out {
					from := w.at + (w.row(o, t.at)+j.col)*size
					copy(mem[k:k+j.cols*size], code.m.shared[from:from+j.cols*size])
					k += j.cols * size
				}
			}
		} else {
			b.Data, b.Stride, b.Trans = unsafe.Pointer(&code.m.shared[w.at+w.row(j.col, 0)*size]), w.kk*w.in, true
		}
		j.q.u.PackB(j.q.inner(), j.cols, &b, dst, mem[:scratch])
	}}
}

// place allocates the ordered weights and the packed ones in the shared workspace.
func (c *compiler) place(w *weights, products []*patchProduct) {
	at := alignUp(w.bytes(), 64)
	for _, q := range products {
		q.packed = at
		at += alignUp(q.bytes, 64)
		c.need(0, q.need)
	}
	c.need(at, 0)
}

// pixels says where the results for positions go: to pixels first + stride*position of
// images [count,h,w,ch].
type pixels struct {
	operand
	h, w, ch int
	stride   [2]int
}

// at returns the element where the results for position (i, j) of a residue start.
func (o *pixels) at(r *residue, b, i, j int) int {
	return ((b*o.h+r.first[0]+i*o.stride[0])*o.w + r.first[1] + j*o.stride[1]) * o.ch
}

// put stores results for columns col.. at the positions from (i, j) on along a
// row; they are ld apart in line, cols each.
func (o *pixels) put(r *residue, b, i, j, col int, line []float32, cols, ld int) {
	to, step := o.at(r, b, i, j)+col, o.stride[1]*o.ch
	if step == cols && ld == cols {
		o.store(line, to)
		return
	}
	for k := 0; k < len(line); k += ld {
		o.store(line[k:k+cols], to)
		to += step
	}
}

func (c *compiler) conv2d(n *graph.Node, op graph.Conv2D) ([]phase, error) {
	x, wv, y := n.In[0], n.In[1], n.Out[0]
	ws := wv.Shape()
	r := []*residue{{patches: *c.forward(op, x, y.Shape(), ws[2], ws[3])}}
	if op.Depthwise() {
		return c.depthwise(r, wv, y, [2]int{1, 1})
	}
	return c.convolve(r, &weights{src: c.ref(wv), dtype: wv.DType(), out: ws[0], in: ws[1], kk: ws[2] * ws[3]}, y, [2]int{1, 1}), nil
}

func (c *compiler) conv2dGradInput(n *graph.Node, op graph.Conv2DGradInput) ([]phase, error) {
	dy, wv, dx := n.In[0], n.In[1], n.Out[0]
	ws := wv.Shape()
	residues := c.backward(op.Conv, dy, dx.Shape(), ws[2], ws[3])
	if op.Conv.Depthwise() {
		return c.depthwise(residues, wv, dx, op.Conv.Stride)
	}
	w := &weights{src: c.ref(wv), dtype: wv.DType(), out: ws[0], in: ws[1], kk: ws[2] * ws[3], turned: true}
	return c.convolve(residues, w, dx, op.Conv.Stride), nil
}

// convolve multiplies the patches of each residue by the weights.
func (c *compiler) convolve(residues []*residue, w *weights, y *graph.Value, stride [2]int) []phase {
	s := y.Shape()
	out := &pixels{operand{ref: c.ref(y), dtype: y.DType()}, s[1], s[2], s[3], stride}
	if stride == [2]int{1, 1} {
		r := residues[0]
		r.flatten()
		out.h, out.w = r.high, r.wide
	}
	switch ch := residues[0].ch; {
	case asPlanes(ch, w.kk):
		return c.fewIn(residues, w, out)
	case out.ch <= fewChannels:
		return c.fewOut(residues, w, out)
	}
	direct := stride == [2]int{1, 1} && out.dtype == graph.F32
	var qs []*patchProduct
	for _, r := range residues {
		qs = append(qs, c.patchProduct(&r.patches, out.ch, w.dtype, direct))
	}
	c.place(w, qs)
	code := c.code
	ps := []phase{w.order(code), c.packPhase(w, qs)}
	for k, q := range qs {
		ps = append(ps, phase{q.tasks(), func(task, worker int) {
			mem := code.worker(worker)
			if direct {
				q.run(task, code.m.shared, mem, &out.f32()[0], out.ch)
				return
			}
			product := q.run(task, code.m.shared, mem, nil, 0)
			r, col, cols := q.part(task)
			n := r.cols * q.cut
			for i := range r.rows {
				line := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(product), 4*i*n)), n)
				out.put(residues[k], r.b, r.i+i, r.j, col, line, cols, q.cut)
			}
		}})
	}
	return ps
}
