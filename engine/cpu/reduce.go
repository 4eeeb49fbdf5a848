package cpu

import (
	"fmt"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/simd"
	"github.com/snug-ml/snug/engine/graph"
)

// reduce handles shapes that collapse to [outer, reduced, inner]; others are
// first brought there by the caller's transposes.
func (c *compiler) reduce(n *graph.Node, op graph.Reduce) ([]phase, error) {
	outer, red, inner, err := reduceDims(n.In[0].Shape(), op)
	if err != nil {
		return nil, err
	}
	scale := float32(1)
	if op.Kind == graph.ReduceMean {
		scale = 1 / float32(red)
	}
	if op.Kind == graph.ReduceMax {
		return c.reduceMax(n, outer, red, inner)
	}
	if inner == 1 {
		return c.reduceRows(n, outer, red, scale)
	}
	return c.reduceColumns(n, outer, red, inner, scale)
}

func reduceDims(s graph.Shape, op graph.Reduce) (outer, red, inner int, err error) {
	outer, red, inner = 1, 1, 1
	state := 0
	for i, d := range s {
		if d == 1 {
			continue
		}
		switch {
		case op.Has(i) && state < 2:
			state = 1
			red *= d
		case !op.Has(i) && state == 0:
			outer *= d
		case !op.Has(i):
			state = 2
			inner *= d
		default:
			return 0, 0, 0, fmt.Errorf("reduces dimensions %b of %v, which are not neighbours: transpose first", op.Axes, s)
		}
	}
	return outer, red, inner, nil
}

// chunkRow is how many elements of one row a partial sum covers.
const chunkRow = 32 << 10

// rowPart is elements [from, to) of v as floats, converted into reg if 16-bit.
func rowPart(r ref, d graph.DType, from, to int, reg []float32) []float32 {
	o := operand{ref: r, dtype: d}
	return o.load(reg[:to-from], from, 1)
}

func (c *compiler) reduceRows(n *graph.Node, rows, width int, scale float32) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	if width <= chunkRow {
		c.need(0, tile*4)
		tasks, per := chunks(rows, max(1, 2*grain/width))
		return []phase{{tasks, func(task, w int) {
			reg := floats(code.worker(w), 0, tile)
			out := dst.f32()
			for i := task * per; i < min((task+1)*per, rows); i++ {
				out[i] = float32(sumRange(src, d, i*width, (i+1)*width, reg)) * scale
			}
		}}}, nil
	}
	parts := (width + chunkRow - 1) / chunkRow
	c.need(rows*parts*8, tile*4)
	partial := func() []float64 {
		return unsafe.Slice((*float64)(unsafe.Pointer(&code.m.shared[0])), rows*parts)
	}
	return []phase{{rows * parts, func(task, w int) {
		i, k := task/parts, task%parts
		partial()[task] = sumRange(src, d, i*width+k*chunkRow, i*width+min((k+1)*chunkRow, width), floats(code.worker(w), 0, tile))
	}}, {1, func(_, _ int) {
		out := dst.f32()
		for i := range rows {
			s := 0.0
			for _, v := range partial()[i*parts : (i+1)*parts] {
				s += v
			}
			out[i] = float32(s) * scale
		}
	}}}, nil
}

func sumRange(src ref, d graph.DType, from, to int, reg []float32) float64 {
	s := 0.0
	for ; from < to; from += tile {
		s += simd.SumF64(rowPart(src, d, from, min(from+tile, to), reg))
	}
	return s
}

// reduceColumns adds rows up: bias gradients, sums over a batch. Rows are cut
// into at most 32 fixed groups; their sums are added in order.
func (c *compiler) reduceColumns(n *graph.Node, outer, rows, cols int, scale float32) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	group := max((rows+31)/32, min(rows, max(64, 4*grain/cols)))
	groups := (rows + group - 1) / group
	strips := (cols + tile - 1) / tile
	c.need(outer*groups*cols*4, tile*4)
	sums := func() []float32 { return floats(code.m.shared, 0, outer*groups*cols) }
	return []phase{{outer * groups * strips, func(task, w int) {
		reg := floats(code.worker(w), 0, tile)
		s, g, o := task%strips, task/strips%groups, task/strips/groups
		c0, c1 := s*tile, min((s+1)*tile, cols)
		acc := sums()[(o*groups+g)*cols+c0 : (o*groups+g)*cols+c1]
		clear(acc)
		for r := g * group; r < min((g+1)*group, rows); r++ {
			at := (o*rows+r)*cols + c0
			simd.Add(acc, acc, rowPart(src, d, at, at+len(acc), reg))
		}
	}}, {outer * strips, func(task, _ int) {
		s, o := task%strips, task/strips
		c0, c1 := s*tile, min((s+1)*tile, cols)
		out := dst.f32()[o*cols+c0 : o*cols+c1]
		copy(out, sums()[o*groups*cols+c0:])
		for g := 1; g < groups; g++ {
			at := (o*groups + g) * cols
			simd.Add(out, out, sums()[at+c0:at+c1])
		}
		if scale != 1 {
			simd.MulScalar(out, out, scale)
		}
	}}}, nil
}

func (c *compiler) reduceMax(n *graph.Node, outer, red, inner int) ([]phase, error) {
	src, dst, d := c.ref(n.In[0]), c.ref(n.Out[0]), n.In[0].DType()
	code := c.code
	c.need(0, tile*4)
	if inner > 1 {
		tasks, per := chunks(outer, max(1, grain/(red*inner)))
		return []phase{{tasks, func(task, w int) {
			reg := floats(code.worker(w), 0, tile)
			for o := task * per; o < min((task+1)*per, outer); o++ {
				for c0 := 0; c0 < inner; c0 += tile {
					c1 := min(c0+tile, inner)
					out := dst.f32()[o*inner+c0 : o*inner+c1]
					copy(out, rowPart(src, d, o*red*inner+c0, o*red*inner+c1, reg))
					for r := 1; r < red; r++ {
						at := (o*red+r)*inner + c0
						simd.Max(out, out, rowPart(src, d, at, at+len(out), reg))
					}
				}
			}
		}}}, nil
	}
	tasks, per := chunks(outer, max(1, grain/red))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, tile)
		for o := task * per; o < min((task+1)*per, outer); o++ {
			best := simd.MaxValue(rowPart(src, d, o*red, o*red+min(tile, red), reg))
			for k := tile; k < red; k += tile {
				best = max(best, simd.MaxValue(rowPart(src, d, o*red+k, o*red+min(k+tile, red), reg)))
			}
			dst.f32()[o] = best
		}
	}}}, nil
}
