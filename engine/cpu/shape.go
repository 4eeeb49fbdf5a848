package cpu

import (
	"slices"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

func (c *compiler) constant(n *graph.Node, op graph.Constant) ([]phase, error) {
	out := c.ref(n.Out[0])
	v := float32(op.V)
	return []phase{{1, func(_, _ int) { out.f32()[0] = v }}}, nil
}

// bytes returns n bytes of r from byte offset off.
func (r ref) bytes(off, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(r.ptr(), off)), n)
}

// split returns the shape as [outer, axis, inner] around axis, inner in bytes.
func split(v *graph.Value, axis int) (outer, dim, inner int) {
	s := v.Shape()
	return int(s[:axis].Elems()), s[axis], int(s[axis+1:].Elems() * v.DType().Size())
}

// copyRows is the region that copies n runs of size bytes, run i from
// src(i) to dst(i).
func copyRows(n, size int, dst, src ref, to, from func(i int) int) phase {
	tasks, per := chunks(n, max(1, 4*grain/max(size, 1)))
	return phase{tasks, func(task, _ int) {
		for i := task * per; i < min((task+1)*per, n); i++ {
			copy(dst.bytes(to(i), size), src.bytes(from(i), size))
		}
	}}
}

// steps are runs of bytes: the first is at byte at, and the next ones follow by bytes apart.
type steps struct{ at, by int }

// copySteps is the region that copies n runs of size bytes.
func copySteps(n, size int, dst ref, to steps, src ref, from steps) phase {
	tasks, per := chunks(n, max(1, 4*grain/max(size, 1)))
	return phase{tasks, func(task, _ int) {
		i, end := task*per, min((task+1)*per, n)
		d, s := dst.bytes(to.at+i*to.by, (end-1-i)*to.by+size), src.bytes(from.at+i*from.by, (end-1-i)*from.by+size)
		switch size { // a call for each would take longest
		case 2:
			copyEach[uint16](end-i, d, to.by, s, from.by)
		case 4:
			copyEach[uint32](end-i, d, to.by, s, from.by)
		default:
			for k := range end - i {
				copy(d[k*to.by:][:size], s[k*from.by:])
			}
		}
	}}
}

func copyEach[T uint16 | uint32](n int, dst []byte, to int, src []byte, from int) {
	d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	for k := range n {
		*(*T)(unsafe.Add(d, k*to)) = *(*T)(unsafe.Add(s, k*from))
	}
}

func (c *compiler) slice(n *graph.Node, op graph.Slice) ([]phase, error) {
	_, dim, inner := split(n.In[0], op.Axis)
	outer, _, _ := split(n.Out[0], op.Axis)
	src, dst := c.ref(n.In[0]), c.ref(n.Out[0])
	if op.Step == 1 && outer == 1 {
		return []phase{copyRun(op.Len*inner, dst, src.from(op.Start*inner), 0)}, nil
	}
	if op.Step == 1 {
		size := op.Len * inner
		return []phase{copySteps(outer, size, dst, steps{0, size}, src, steps{op.Start * inner, dim * inner})}, nil
	}
	return []phase{copyRows(outer*op.Len, inner, dst, src,
		func(i int) int { return i * inner },
		func(i int) int { return (i/op.Len*dim + op.Start + i%op.Len*op.Step) * inner })}, nil
}

func (c *compiler) sliceGrad(n *graph.Node, op graph.SliceGrad) ([]phase, error) {
	outer, dim, inner := split(n.Out[0], op.Slice.Axis)
	src, dst := c.ref(n.In[0]), c.ref(n.Out[0])
	s := op.Slice
	row := dim * inner
	if s.Step == 1 && outer == 1 {
		return []phase{clearRun(row, dst), copyRun(s.Len*inner, dst, src, s.Start*inner)}, nil
	}
	tasks, per := chunks(outer, max(1, 4*grain/max(row, 1)))
	return []phase{{tasks, func(task, _ int) {
		for i := task * per; i < min((task+1)*per, outer); i++ {
			clear(dst.bytes(i*row, row))
			if s.Step == 1 {
				copy(dst.bytes(i*row+s.Start*inner, s.Len*inner), src.bytes(i*s.Len*inner, s.Len*inner))
				continue
			}
			for j := range s.Len {
				copy(dst.bytes(i*row+(s.Start+j*s.Step)*inner, inner), src.bytes((i*s.Len+j)*inner, inner))
			}
		}
	}}}, nil
}

// pieces is the region that runs fn on n bytes in pieces, so that all workers share a
// single run.
func pieces(n int, fn func(at, size int)) phase {
	const piece = 1 << 16
	return phase{(n + piece - 1) / piece, func(task, _ int) { fn(task*piece, min(piece, n-task*piece)) }}
}

// copyRun copies n bytes from the beginning of src to byte to of dst.
func copyRun(n int, dst, src ref, to int) phase {
	return pieces(n, func(at, size int) { copy(dst.bytes(to+at, size), src.bytes(at, size)) })
}

// clearRun zeroes the first n bytes of dst.
func clearRun(n int, dst ref) phase {
	return pieces(n, func(at, size int) { clear(dst.bytes(at, size)) })
}

func (c *compiler) sliceWrite(n *graph.Node, op graph.SliceWrite) ([]phase, error) {
	outer, dim, inner := split(n.Out[0], op.Slice.Axis)
	whole, part, dst := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	var ps []phase
	if whole != dst {
		ps = append(ps, copyRun(outer*dim*inner, dst, whole, 0))
	}
	s := op.Slice
	if s.Step == 1 && outer == 1 {
		return append(ps, copyRun(s.Len*inner, dst, part, s.Start*inner)), nil
	}
	return append(ps, copyRows(outer*s.Len, inner, dst, part,
		func(i int) int { return (i/s.Len*dim + s.Start + i%s.Len*s.Step) * inner },
		func(i int) int { return i * inner })), nil
}

func (c *compiler) concat(n *graph.Node, op graph.Concat) ([]phase, error) {
	outer, dim, inner := split(n.Out[0], op.Axis)
	dst := c.ref(n.Out[0])
	var ps []phase
	at := 0
	for _, v := range n.In {
		size := v.Shape()[op.Axis] * inner
		ps = append(ps, copySteps(outer, size, dst, steps{at * inner, dim * inner}, c.ref(v), steps{0, size}))
		at += v.Shape()[op.Axis]
	}
	return ps, nil
}

// transpose copies in blocks: whole runs if the innermost dimension stays; otherwise
// square tiles of the plane of both innermost dimensions.
func (c *compiler) transpose(n *graph.Node, op graph.Transpose) ([]phase, error) {
	src, dst := c.ref(n.In[0]), c.ref(n.Out[0])
	size := int(n.In[0].DType().Size())
	shape, perm := collapsePerm(n.In[0].Shape(), op.Perm)
	rank := len(shape)
	inStride := strides(shape)
	outShape := make(graph.Shape, rank)
	for i, p := range perm {
		outShape[i] = shape[p]
	}
	outStride := strides(outShape)
	if rank == 0 || perm[rank-1] == rank-1 {
		run := 1
		if rank > 0 {
			run = shape[rank-1]
		}
		rows := int(shape.Elems()) / run
		return []phase{copyRows(rows, run*size, dst, src,
			func(i int) int { return i * run * size },
			func(i int) int {
				off := 0
				for d := rank - 2; d >= 0; d-- {
					off += i % outShape[d] * inStride[perm[d]]
					i /= outShape[d]
				}
				return off * size
			})}, nil
	}
	// a: the input dimension that becomes innermost; z: the output dimension
	// that the input's innermost becomes.
	a := perm[rank-1]
	z := slices.Index(perm, rank-1)
	rows, cols := shape[a], shape[rank-1]
	var rest []int // output dimensions that are neither
	planes := 1
	for d := range rank - 1 {
		if d != z {
			rest = append(rest, d)
			planes *= outShape[d]
		}
	}
	const block = 64
	br, bc := (rows+block-1)/block, (cols+block-1)/block
	tasks, per := chunks(planes*br*bc, max(1, grain/(block*block)))
	return []phase{{tasks, func(task, _ int) {
		for u := task * per; u < min((task+1)*per, planes*br*bc); u++ {
			i, j, plane := u%br*block, u/br%bc*block, u/(br*bc)
			in, out := i*inStride[a]+j, j*outStride[z]+i
			for k := len(rest) - 1; k >= 0; k-- {
				d := rest[k]
				in += plane % outShape[d] * inStride[perm[d]]
				out += plane % outShape[d] * outStride[d]
				plane /= outShape[d]
			}
			nr, nc := min(block, rows-i), min(block, cols-j)
			span, width := (nr-1)*inStride[a]+nc, (nc-1)*outStride[z]+nr
			if size == 2 {
				simd.Transpose16(unsafe.Slice((*uint16)(unsafe.Add(dst.ptr(), out*2)), width), outStride[z],
					unsafe.Slice((*uint16)(unsafe.Add(src.ptr(), in*2)), span), inStride[a], nr, nc)
			} else {
				simd.Transpose(unsafe.Slice((*float32)(unsafe.Add(dst.ptr(), out*4)), width), outStride[z],
					unsafe.Slice((*float32)(unsafe.Add(src.ptr(), in*4)), span), inStride[a], nr, nc)
			}
		}
	}}}, nil
}

func strides(s graph.Shape) []int {
	st := make([]int, len(s))
	run := 1
	for i := len(s) - 1; i >= 0; i-- {
		st[i] = run
		run *= s[i]
	}
	return st
}

// collapsePerm merges dimensions that stay neighbors and drops those of extent 1.
func collapsePerm(s graph.Shape, perm []int) (graph.Shape, []int) {
	var groups [][]int // input dimensions, in output order
	for _, p := range perm {
		if s[p] == 1 {
			continue
		}
		if k := len(groups) - 1; k >= 0 && follows(s, groups[k][len(groups[k])-1], p) {
			groups[k] = append(groups[k], p)
			continue
		}
		groups = append(groups, []int{p})
	}
	byInput := slices.Clone(groups)
	slices.SortFunc(byInput, func(a, b []int) int { return a[0] - b[0] })
	var shape graph.Shape
	for _, g := range byInput {
		n := 1
		for _, d := range g {
			n *= s[d]
		}
		shape = append(shape, n)
	}
	out := make([]int, len(groups))
	for i, g := range groups {
		out[i] = slices.IndexFunc(byInput, func(h []int) bool { return h[0] == g[0] })
	}
	return shape, out
}

// follows reports whether dimension q comes right after p not counting dimensions of
// extent 1.
func follows(s graph.Shape, p, q int) bool {
	if q <= p {
		return false
	}
	for d := p + 1; d < q; d++ {
		if s[d] != 1 {
			return false
		}
	}
	return true
}
