package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/cpu/simd"
	"github.com/snug-ml/snug/engine/graph"
)

// Convolution is a product of the patches of a picture with the weights, tile
// by tile (implicit GEMM): a task lays a few rows of patches out in its cache
// and multiplies them by the packed weights.

// word is the type that operands of types a and b are multiplied in.
func word(a, b graph.DType) gemm.DType {
	if a == graph.BF16 && b == graph.BF16 {
		return gemm.BF16
	}
	return gemm.F32
}

// patchProduct is one product of patches with a matrix of weights
// [taps*channels, n].
type patchProduct struct {
	*patches
	u       gemm.Micro
	n       int
	few     bool // so few columns that scalar products do
	inner   int  // columns of the patches that are multiplied, zeros included
	rows    int  // of all pictures
	tile    int  // rows of a task
	cut     int  // columns of a task
	packed  int  // offset of the packed weights in the shared workspace
	bytes   int  // of the packed weights
	block   int  // offset in the worker's scratch of the packed rows
	product int  // offset of the float32 product, where it is not stored directly
	need    int  // scratch of a worker
}

// patchBytes is the part of the second-level cache that a tile of patches may take.
const patchBytes = 256 << 10

func (c *compiler) patchProduct(p *patches, pictures, n int, u gemm.Micro, direct bool) *patchProduct {
	q := &patchProduct{patches: p, u: u, n: n, rows: pictures * p.high * p.wide, inner: p.cols()}
	// A register tile has at least 16 columns; a scalar product is no faster
	// than one unless it is some vectors long.
	q.few = n <= 2 && q.inner >= 32
	if u.Word() == gemm.BF16 && p.dtype == graph.BF16 && !p.plain() && !q.few {
		q.inner = alignUp(q.inner, 2)
	}
	pitch := pitch(p.cols(), p.dtype)
	mr := u.Rows()
	q.tile = max(2, min(240, patchBytes/pitch)/mr) * mr
	if even := alignUp((q.rows+2*c.workers-1)/(2*c.workers), mr); even < q.tile {
		q.tile = even
	}
	tiles := (q.rows + q.tile - 1) / q.tile
	q.cut = alignUp(max(1, n*tiles/(2*c.workers)), u.Cols()) // few rows: columns are shared out too
	q.cut = min(q.cut, n)
	q.bytes = u.PackedBytes(q.inner, n)
	if q.few {
		q.cut, q.bytes = n, q.inner*n*4
	}
	if !p.plain() {
		q.block = alignUp(q.tile*pitch, 64)
	}
	q.product = q.block + alignUp(u.BlockBytes(q.tile, q.inner, gemmType(p.dtype), false), 64)
	if q.few {
		q.product = q.block + alignUp(q.inner*4, 64) // a row in float32
	}
	q.need = q.product
	if !direct {
		q.need += q.tile * q.cut * 4
	}
	return q
}

func (q *patchProduct) tasks() int {
	return ((q.rows + q.tile - 1) / q.tile) * ((q.n + q.cut - 1) / q.cut)
}

// run does one task. out, if not nil, is where the float32 product lies, ld
// floats a row; else it is left in the scratch. It returns the part done.
func (q *patchProduct) run(task int, shared, mem []byte, out *float32, ld int) (first, rows, col, cols int, product *float32) {
	cuts := (q.n + q.cut - 1) / q.cut
	first, col = task/cuts*q.tile, task%cuts*q.cut
	rows, cols = min(q.tile, q.rows-first), min(q.cut, q.n-col)
	if out == nil {
		out, ld = (*float32)(unsafe.Pointer(&mem[q.product])), q.cut
	} else {
		out = (*float32)(unsafe.Add(unsafe.Pointer(out), 4*(first*ld+col)))
	}
	a := q.matrix(first, rows, mem)
	if q.few {
		q.dots(a, rows, shared, mem, out, ld)
		return first, rows, col, cols, out
	}
	left := q.u.PackA(rows, q.inner, &a, mem[q.block:])
	right := q.u.Panels(q.inner, shared[q.packed:]).Rest(q.u, 0, col)
	q.u.Mul(rows, cols, q.inner, &left, right, out, ld, false)
	return first, rows, col, cols, out
}

// dots computes the product by scalar products of rows of a and of the
// weights, which lie [n, inner] in float32.
func (q *patchProduct) dots(a gemm.Matrix, rows int, shared, mem []byte, product *float32, ld int) {
	reg := floats(mem, q.block, q.inner)
	for i := range rows {
		at := unsafe.Add(a.Data, i*a.Stride*int(q.dtype.Size()))
		row := reg
		if q.dtype == graph.F32 {
			row = unsafe.Slice((*float32)(at), q.inner)
		} else {
			widen(reg, unsafe.Slice((*uint16)(at), q.inner), q.dtype)
		}
		out := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(product), 4*i*ld)), q.n)
		for o := range out {
			out[o] = simd.Dot(row, floats(shared, q.packed+o*q.inner*4, q.inner))
		}
	}
}

// weights are those of a convolution [O,C,taps], brought into the order of
// patches: [O,taps,C], or turned, for gradients of the picture, [taps,O,C].
type weights struct {
	src         ref
	dtype       graph.DType
	out, in, kk int
	turned      bool
	at          int // offset in the shared workspace
}

// order is the phase that does so.
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
	for i := range dst {
		dst[i] = src[i*step]
	}
}

// packPhase packs the weights of the products, which lie one behind the other.
func (c *compiler) packPhase(w *weights, products []*patchProduct) phase {
	code := c.code
	type job struct {
		q         *patchProduct
		col, cols int
	}
	var jobs []job
	scratch := 0
	for _, q := range products {
		if q.inner == 0 {
			continue
		}
		if q.few {
			jobs = append(jobs, job{q, 0, q.n})
			continue
		}
		scratch = max(scratch, q.u.ScratchBytes(q.inner))
		group := 4 * q.u.Cols()
		for col := 0; col < q.n; col += group {
			jobs = append(jobs, job{q, col, min(group, q.n-col)})
		}
	}
	// Turned weights of some of the taps are gathered first.
	gathered := 0
	if w.turned {
		for _, q := range products {
			gathered = max(gathered, alignUp(q.cols()*4*q.u.Cols()*4, 64))
		}
	}
	c.need(0, scratch+gathered)
	size := int(w.dtype.Size())
	return phase{len(jobs), func(task, worker int) {
		j := jobs[task]
		if j.q.few {
			w.rows(j.q, code.m.shared)
			return
		}
		mem := code.worker(worker)
		dst := code.m.shared[j.q.packed+j.q.u.PackedBytes(j.q.inner, j.col):]
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
		j.q.u.PackB(j.q.cols(), j.cols, &b, dst, mem[:scratch])
	}}
}

// rows writes the weights of q, which has few columns, as float32 rows.
func (w *weights) rows(q *patchProduct, shared []byte) {
	ordered := func(at int) float32 {
		var x [1]float32
		if w.dtype == graph.F32 {
			return *(*float32)(unsafe.Pointer(&shared[w.at+at*4]))
		}
		widen(x[:], unsafe.Slice((*uint16)(unsafe.Pointer(&shared[w.at+at*2])), 1), w.dtype)
		return x[0]
	}
	for col := range q.n {
		dst := floats(shared, q.packed+col*q.inner*4, q.inner)
		for t, tap := range q.taps {
			for k := range q.ch {
				at := w.row(col, tap.at) + k
				if w.turned {
					at = w.row(k, tap.at) + col
				}
				dst[t*q.ch+k] = ordered(at)
			}
		}
	}
}

// place puts the ordered weights and the packed ones into the shared workspace.
func (c *compiler) place(w *weights, products []*patchProduct) {
	at := alignUp(w.bytes(), 64)
	for _, q := range products {
		q.packed = at
		at += alignUp(q.bytes, 64)
		c.need(0, q.need)
	}
	c.need(at, 0)
}

func (c *compiler) conv2d(n *graph.Node, op graph.Conv2D) ([]phase, error) {
	x, wv, y := n.In[0], n.In[1], n.Out[0]
	ws := wv.Shape()
	p := c.forward(op, x, y.Shape(), ws[2], ws[3])
	if op.Depthwise() {
		return c.depthwise([]*residue{{patches: *p}}, wv, y, [2]int{1, 1})
	}
	w := &weights{src: c.ref(wv), dtype: wv.DType(), out: ws[0], in: ws[1], kk: ws[2] * ws[3]}
	out, d := c.ref(y), y.DType()
	q := c.patchProduct(p, x.Shape()[0], ws[0], gemm.NewMicro(products, word(x.DType(), wv.DType())), d == graph.F32)
	c.place(w, []*patchProduct{q})
	code := c.code
	return []phase{w.order(code), c.packPhase(w, []*patchProduct{q}), {q.tasks(), func(task, worker int) {
		if d == graph.F32 {
			q.run(task, code.m.shared, code.worker(worker), &out.f32()[0], q.n)
			return
		}
		first, rows, col, cols, product := q.run(task, code.m.shared, code.worker(worker), nil, 0)
		o := operand{ref: out, dtype: d}
		for i := range rows {
			src := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(product), 4*i*q.cut)), cols)
			o.store(src, (first+i)*q.n+col)
		}
	}}}, nil
}

func (c *compiler) conv2dInput(n *graph.Node, op graph.Conv2DInput) ([]phase, error) {
	dy, wv, dx := n.In[0], n.In[1], n.Out[0]
	s, ws := dx.Shape(), wv.Shape()
	residues := c.backward(op.Conv, dy, s, ws[2], ws[3])
	if op.Conv.Depthwise() {
		return c.depthwise(residues, wv, dx, op.Conv.Stride)
	}
	w := &weights{src: c.ref(wv), dtype: wv.DType(), out: ws[0], in: ws[1], kk: ws[2] * ws[3], turned: true}
	u := gemm.NewMicro(products, word(dy.DType(), wv.DType()))
	out, d := c.ref(dx), dx.DType()
	direct := len(residues) == 1 && d == graph.F32
	var qs []*patchProduct
	for _, r := range residues {
		qs = append(qs, c.patchProduct(&r.patches, s[0], ws[1], u, direct))
	}
	c.place(w, qs)
	var ps []phase
	ps = append(ps, w.order(c.code), c.packPhase(w, qs))
	code := c.code
	for i, q := range qs {
		r := residues[i]
		ps = append(ps, phase{q.tasks(), func(task, worker int) {
			if direct && q.inner > 0 {
				q.run(task, code.m.shared, code.worker(worker), &out.f32()[0], q.n)
				return
			}
			q.scatter(task, code, worker, operand{ref: out, dtype: d}, r.first, op.Conv.Stride, s)
		}})
	}
	return ps, nil
}

// scatter does a task whose rows are the pixels first + stride*position of out.
func (q *patchProduct) scatter(task int, code *Code, worker int, out operand, first, stride [2]int, s graph.Shape) {
	mem := code.worker(worker)
	var from, rows, col, cols int
	var product *float32
	if q.inner > 0 {
		from, rows, col, cols, product = q.run(task, code.m.shared, mem, nil, 0)
	} else { // no tap falls on these pixels
		cuts := (q.n + q.cut - 1) / q.cut
		from, col = task/cuts*q.tile, task%cuts*q.cut
		rows, cols = min(q.tile, q.rows-from), min(q.cut, q.n-col)
		product = (*float32)(unsafe.Pointer(&mem[q.product]))
		clear(unsafe.Slice(product, rows*q.cut))
	}
	b, rest := from/(q.high*q.wide), from%(q.high*q.wide)
	i, j := rest/q.wide, rest%q.wide
	for k := range rows {
		src := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(product), 4*k*q.cut)), cols)
		out.store(src, ((b*s[1]+first[0]+i*stride[0])*s[2]+first[1]+j*stride[1])*q.n+col)
		if j++; j == q.wide {
			j = 0
			if i++; i == q.high {
				i, b = 0, b+1
			}
		}
	}
}
