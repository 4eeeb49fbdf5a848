package cpu

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// elementwise runs a body over the whole of its result.
func (c *compiler) elementwise(n *graph.Node) ([]phase, error) {
	dims := n.Out[0].Shape()
	if op, ok := n.Op.(graph.Fused); ok && len(op.Reductions) > 0 {
		return c.summed(n, op)
	}
	p, err := c.tileProgram(body(n), n.In, n.Out, dims)
	if err != nil {
		return nil, err
	}
	l := newLoop(p, p.collapse(dims))
	c.need(0, p.scratchBytes())
	// Tasks end where tiles do.
	unit := min(l.size, l.inner) * l.join
	all := int(dims.Elems())
	tasks, size := chunks((all+unit-1)/unit, max(1, grain/(1+len(p.code))/unit))
	code := c.code
	return []phase{{tasks, func(task, w int) {
		l.run(task*size*unit, min((task+1)*size*unit, all), floats(code.worker(w), 0, p.regs*(p.size+gap)), nil)
	}}}, nil
}

// loop walks through the elements of the results of a program.
type loop struct {
	*program
	outer       graph.Shape // of the rows
	inner       int         // elements of a row
	join        int         // rows of a tile, where rows are short
	series      int         // rows that are neighbors for all operands
	step, pitch []int       // of each operand, along a row and down the rows
}

// resident is how much of the first-level cache a tile may take, with its
// operands and results, before the next ones evict it.
const resident = 22 << 10

func newLoop(p *program, shape graph.Shape) *loop {
	k := len(p.in) + len(p.outRef)
	l := &loop{program: p, outer: shape[:len(shape)-1], inner: shape.Last(), join: 1, series: 1, step: make([]int, k), pitch: make([]int, k)}
	bytes := 4 * (p.regs + len(p.out) - len(p.outRef))
	for i := range k {
		if o := p.operand(i); o.dtype != graph.Invalid && !slices.Contains(o.stride, 0) {
			bytes += int(o.dtype.Size())
		}
	}
	if tile*bytes > resident {
		p.size = tile / 2 // with less, instructions would take longer to start than to run
	}
	for i := range k {
		l.step[i] = p.operand(i).stride[len(shape)-1]
		l.pitch[i] = l.step[i] * l.inner // irrelevant for a single row
		if len(l.outer) > 0 {
			l.pitch[i] = p.operand(i).stride[len(l.outer)-1]
		}
	}
	if len(l.outer) > 0 {
		l.series = l.outer.Last()
		l.join = max(1, min(l.size/l.inner, l.series))
	}
	return l
}

// run processes the elements from from to to: a tile is a part of a row if rows are long,
// or several short rows, as far as they are neighbors. Short rows are not split.
func (l *loop) run(from, to int, regs []float32, sums *columnSums) {
	var place [maxOperands]int
	var kept [graph.MaxRegisters]held
	at := place[:len(l.step)]
	for from < to {
		row, col := from/l.inner, from%l.inner
		rows := 1
		n := min(l.size, l.inner-col, to-from)
		if l.inner <= l.size {
			rows = min(l.join, l.series-row%l.series, (to-from)/l.inner)
			n = rows * l.inner
		}
		for i, s := range l.step {
			at[i] = col * s
		}
		rest := row
		for d := len(l.outer) - 1; d >= 0; d-- {
			k := rest % l.outer[d]
			rest /= l.outer[d]
			for i := range at {
				at[i] += k * l.operand(i).stride[d]
			}
		}
		l.tile(n, rows, from, at, l.step, l.pitch, regs, &kept, sums)
		from += n
	}
}
