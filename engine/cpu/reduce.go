package cpu

import (
	"math"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// reduce walks the operand in runs of neighboring elements that are either
// all combined into one result or all kept.
func (c *compiler) reduce(n *graph.Node, op graph.Reduce) ([]phase, error) {
	r := runsOf(n.In[0].Shape(), op)
	scale := float32(1)
	if op.Kind == graph.ReduceMean {
		scale = 1 / float32(op.Count(n.In[0].Shape()))
	}
	switch {
	case op.Kind == graph.ReduceMax && r.kept:
		return c.maxColumns(n, r)
	case op.Kind == graph.ReduceMax:
		return c.maxRows(n, r)
	case r.kept:
		return c.reduceColumns(n, r, scale)
	}
	return c.reduceRows(n, r, scale)
}

// runs is an operand as outer*rows runs of width elements: run r of group o starts at
// element at(o, r). The rows of a group are combined; with kept, the elements of a run
// stay separate, otherwise they are combined too.
type runs struct {
	outer, rows, width int
	kept               bool
	over, along        axes // of the groups, of the rows
}

// axes are dimensions that one index runs through, innermost first.
type axes struct{ extent, stride []int }

func (a *axes) offset(i int) int {
	at := 0
	for d, n := range a.extent {
		at += i % n * a.stride[d]
		i /= n
	}
	return at
}

// add adds a dimension outside the others, merged with the last one if the walk is the
// same.
func (a *axes) add(extent, stride int) {
	if k := len(a.extent) - 1; k >= 0 && a.stride[k]*a.extent[k] == stride {
		a.extent[k] *= extent
		return
	}
	a.extent, a.stride = append(a.extent, extent), append(a.stride, stride)
}

func (r *runs) at(o, row int) int { return r.over.offset(o) + r.along.offset(row) }

func runsOf(s graph.Shape, op graph.Reduce) *runs {
	r := &runs{outer: 1, rows: 1, width: 1}
	inner := true // still in the innermost run
	stride := 1
	for d := len(s) - 1; d >= 0; d-- {
		switch kept := !op.Has(d); {
		case s[d] == 1:
		case inner && (r.width == 1 || kept == r.kept):
			r.kept = kept
			r.width *= s[d]
		case kept:
			inner = false
			r.outer *= s[d]
			r.over.add(s[d], stride)
		default:
			inner = false
			r.rows *= s[d]
			r.along.add(s[d], stride)
		}
		stride *= s[d]
	}
	return r
}

// chunkRow is how many elements of one row a partial sum covers.
const chunkRow = 32 << 10

// rowPart returns elements [from, to) of v as floats, converted into reg if 16-bit.
func rowPart(r ref, d graph.DType, from, to int, reg []float32) []float32 {
	o := operand{ref: r, dtype: d}
	return o.load(reg[:to-from], from, 1)
}

// addPart adds elements [from, from+len(acc)) of v to acc.
func addPart(acc []float32, r ref, d graph.DType, from int, reg []float32) {
	if d == graph.BF16 {
		simd.AddRowsBF16(acc, r.u16()[from:from+len(acc)], 1, len(acc))
	} else {
		simd.Add(acc, acc, rowPart(r, d, from, from+len(acc), reg))
	}
}

// directPart returns elements [from, to) of r itself if it is float32, otherwise reg.
func directPart(r ref, d graph.DType, from, to int, reg []float32) []float32 {
	if d == graph.F32 {
		return unsafe.Slice((*float32)(unsafe.Add(r.ptr(), from*4)), to-from)
	}
	return reg[:to-from]
}

// putPart stores elements that directPart returned, from from on.
func putPart(r ref, d graph.DType, from int, reg []float32) {
	if d != graph.F32 {
		o := operand{ref: r, dtype: d}
		o.store(reg, from)
	}
}

// reduceRows sums each group into one element. Groups of more than chunkRow
// elements are cut into fixed parts, whose sums are added in order.
func (c *compiler) reduceRows(n *graph.Node, r *runs, scale float32) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	size := r.rows * r.width
	if size <= chunkRow {
		c.need(0, tile*4)
		tasks, per := chunks(r.outer, max(1, 2*grain/size))
		neighbors := size <= tile && r.rows == 1 && (r.outer == 1 || len(r.over.extent) == 1 && r.over.stride[0] == size)
		return []phase{{tasks, func(task, w int) {
			reg := floats(code.worker(w), 0, tile)
			out := dst.f32()
			o, end := task*per, min((task+1)*per, r.outer)
			for neighbors && o < end {
				k := min(tile/size, end-o)
				simd.SumRowsF64(out[o:o+k], rowPart(src, d, o*size, (o+k)*size, reg))
				if scale != 1 {
					simd.MulScalar(out[o:o+k], out[o:o+k], scale)
				}
				o += k
			}
			for ; o < end; o++ {
				out[o] = float32(r.sum(src, d, o, 0, size, reg)) * scale
			}
		}}}, nil
	}
	parts := (size + chunkRow - 1) / chunkRow
	c.need(r.outer*parts*8, tile*4)
	partial := func() []float64 {
		return unsafe.Slice((*float64)(unsafe.Pointer(&code.m.shared[0])), r.outer*parts)
	}
	return []phase{{r.outer * parts, func(task, w int) {
		from := task % parts * chunkRow
		partial()[task] = r.sum(src, d, task/parts, from, min(from+chunkRow, size), floats(code.worker(w), 0, tile))
	}}, {1, func(_, _ int) {
		out := dst.f32()
		for o := range r.outer {
			s := 0.0
			for _, v := range partial()[o*parts : (o+1)*parts] {
				s += v
			}
			out[o] = float32(s) * scale
		}
	}}}, nil
}

// sum adds up elements [from, to) of group o.
func (r *runs) sum(src ref, d graph.DType, o, from, to int, reg []float32) float64 {
	s := 0.0
	for from < to {
		row, col := from/r.width, from%r.width
		n := min(tile, r.width-col, to-from)
		at := r.at(o, row) + col
		s += simd.SumF64(rowPart(src, d, at, at+n, reg))
		from += n
	}
	return s
}

// reduceColumns adds up rows: bias gradients, sums over a batch.
func (c *compiler) reduceColumns(n *graph.Node, r *runs, scale float32) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	v := newColumns(r.outer, r.rows, r.width)
	cols, set, sets, wide := v.cols, v.set, v.sets, v.wide
	// Whole rows are read fastest, and equal strips make equal work.
	const widest = 4 * tile
	strips := (cols + widest - 1) / widest
	strip := alignUp((cols+strips-1)/strips, 16)
	if len(r.along.extent) != 1 || r.along.stride[0] != cols {
		wide = 1 // rows are not neighbors
	}
	room := max(strip, tile)
	c.need(r.outer*sets*cols*4, 2*room*4)
	sums := func() []float32 { return floats(code.m.shared, 0, r.outer*sets*cols) }
	return []phase{{r.outer * sets * strips, func(task, w int) {
		reg := floats(code.worker(w), 0, room)
		s, g, o := task%strips, task/strips%sets, task/strips/sets
		c0, c1 := s*strip, min((s+1)*strip, cols)
		out := sums()[(o*sets+g)*cols+c0 : (o*sets+g)*cols+c1]
		acc := out
		if wide > 1 {
			acc = floats(code.worker(w), room*4, wide*cols)
		}
		clear(acc)
		row, end := g*set, min((g+1)*set, r.rows)
		for ; row+wide <= end; row += wide {
			addPart(acc, src, d, r.at(o, row)+c0, reg)
		}
		if wide == 1 {
			return
		}
		if left := (end - row) * cols; left > 0 {
			addPart(acc[:left], src, d, r.at(o, row), reg)
		}
		copy(out, gather(acc, cols))
	}}, {r.outer * strips, func(task, _ int) {
		s, o := task%strips, task/strips
		c0, c1 := s*strip, min((s+1)*strip, cols)
		out := dst.f32()[o*cols+c0 : o*cols+c1]
		total(out, sums()[o*sets*cols+c0:], sets, cols)
		if scale != 1 {
			simd.MulScalar(out, out, scale)
		}
	}}}, nil
}

func (c *compiler) maxColumns(n *graph.Node, r *runs) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	c.need(0, tile*4)
	tasks, per := chunks(r.outer, max(1, grain/(r.rows*r.width)))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, tile)
		for o := task * per; o < min((task+1)*per, r.outer); o++ {
			for c0 := 0; c0 < r.width; c0 += tile {
				c1 := min(c0+tile, r.width)
				out := dst.f32()[o*r.width+c0 : o*r.width+c1]
				at := r.at(o, 0)
				copy(out, rowPart(src, d, at+c0, at+c1, reg))
				for row := 1; row < r.rows; row++ {
					at := r.at(o, row)
					simd.Max(out, out, rowPart(src, d, at+c0, at+c1, reg))
				}
			}
		}
	}}}, nil
}

func (c *compiler) maxRows(n *graph.Node, r *runs) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	c.need(0, tile*4)
	tasks, per := chunks(r.outer, max(1, grain/(r.rows*r.width)))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, tile)
		for o := task * per; o < min((task+1)*per, r.outer); o++ {
			best := float32(math.Inf(-1))
			for row := range r.rows {
				at := r.at(o, row)
				for k := 0; k < r.width; k += tile {
					best = max(best, simd.MaxValue(rowPart(src, d, at+k, at+min(k+tile, r.width), reg)))
				}
			}
			dst.f32()[o] = best
		}
	}}}, nil
}
