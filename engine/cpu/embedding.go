package cpu

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

func (c *compiler) embedding(n *graph.Node) ([]phase, error) {
	table, ids, out := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	vocab, width := n.In[0].Shape()[0], n.In[0].Shape()[1]
	from, to := n.In[0].DType(), n.Out[0].DType()
	code, label := c.code, n.Layer
	c.need(0, 2*tile*4)
	tasks, per := chunks(ids.n, max(1, grain/width))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, tile)
		src, dst := operand{ref: table, dtype: from}, operand{ref: out, dtype: to}
		for i := task * per; i < min((task+1)*per, ids.n); i++ {
			id := int(ids.i32()[i])
			if id < 0 || id >= vocab {
				code.m.fail(fmt.Errorf("%s: id %d at position %d is outside the table's %d rows", label, id, i, vocab))
				id = 0
			}
			for k := 0; k < width; k += tile {
				m := min(tile, width-k)
				dst.store(src.load(reg[:m], id*width+k, 1), i*width+k)
			}
		}
	}}}, nil
}

// embeddingOwners is the number of fixed parts into which the rows of a table are
// divided for their sums.
const embeddingOwners = 32

// embeddingGrad divides the table's rows among tasks: every row's sum then has one owner
// and follows the order of the ids.
func (c *compiler) embeddingGrad(n *graph.Node, op graph.EmbeddingGrad) ([]phase, error) {
	dy, ids, out := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	width, d := n.Out[0].Shape()[1], n.In[0].DType()
	code := c.code
	c.need(0, tile*4)
	var ps []phase
	var start ref
	if len(n.In) > 2 {
		start = c.ref(n.In[2])
	}
	if start != out { // otherwise the sums start from what is there
		tasks, per := chunks(out.n, 4*grain)
		ps = append(ps, phase{tasks, func(task, _ int) {
			from, to := task*per, min((task+1)*per, out.n)
			if start.n == 0 {
				clear(out.f32()[from:to])
			} else {
				copy(out.f32()[from:to], start.f32()[from:to])
			}
		}})
	}
	return append(ps, phase{embeddingOwners, func(task, w int) {
		reg := floats(code.worker(w), 0, tile)
		table := out.f32()
		src := operand{ref: dy, dtype: d}
		for i, id := range ids.i32() {
			// An id outside the table is reported by the forward half.
			if int(id)%embeddingOwners != task || id < 0 || int(id) >= op.Vocab {
				continue
			}
			for c0 := 0; c0 < width; c0 += tile {
				m := min(tile, width-c0)
				row := table[int(id)*width+c0 : int(id)*width+c0+m]
				simd.Add(row, row, src.load(reg[:m], i*width+c0, 1))
			}
		}
	}}), nil
}

// row returns row i (of width elements) of r as floats, converted into reg if it is
// stored in 16 bits.
func row(r ref, d graph.DType, i, width int, reg []float32) []float32 {
	return rowPart(r, d, i*width, (i+1)*width, reg)
}

// row16 returns row i of r, stored in 16 bits.
func row16(r ref, i, width int) []uint16 { return r.u16()[i*width : (i+1)*width] }

// direct returns the row of r itself when it is float32, otherwise reg.
func direct(r ref, d graph.DType, i, width int, reg []float32) []float32 {
	return directPart(r, d, i*width, (i+1)*width, reg)
}

// put stores a row that direct returned.
func put(r ref, d graph.DType, i, width int, reg []float32) {
	putPart(r, d, i*width, reg)
}
