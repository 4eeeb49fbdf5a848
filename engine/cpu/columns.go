package cpu

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// columns says how the columns of outer matrices are summed: the rows of each are cut
// into at most 32 fixed sets, whose sums are added in order. Within a set several rows,
// which make a wide one, are added side by side.
type columns struct{ outer, rows, cols, set, sets, wide int }

func newColumns(outer, rows, cols int) *columns {
	v := &columns{outer: outer, rows: rows, cols: cols}
	v.set = max((rows+31)/32, min(rows, max(64, 4*grain/cols)))
	v.sets = (rows + v.set - 1) / v.set
	v.wide = max(1, min(tile/2/cols, v.set))
	return v
}

// gather sums the rows of the wide row acc into its first, and returns that one.
func gather(acc []float32, cols int) []float32 {
	sum := acc[:cols]
	simd.AddRows(sum, acc[cols:], len(acc)/cols-1, cols)
	return sum
}

// total adds up sets vectors of parts, stride elements apart, in out.
func total(out, parts []float32, sets, stride int) {
	copy(out, parts)
	if sets > 1 {
		simd.AddRows(out, parts[stride:], sets-1, stride)
	}
}

// blockSums are the sums of the columns of a matrix, the transposed operand A of a
// matmul, over each block of K: computed while the block is in cache, added in order.
type blockSums struct {
	code         *Code
	a, out       ref
	dtype        graph.DType
	from         int // byte offset in the shared scratch
	blocks, cols int
}

func (c *compiler) blockSums(n *graph.Node, from, blocks, cols int) *blockSums {
	return &blockSums{c.code, c.ref(n.In[0]), c.ref(n.Out[len(n.Out)-1]), n.In[0].DType(), from, blocks, cols}
}

func (s *blockSums) end() int { return s.from + s.blocks*s.cols*4 }

// add sums rows [k0,k1) of columns [i0,i1), which are in block kb.
func (s *blockSums) add(kb, k0, k1, i0, i1 int) {
	acc := floats(s.code.m.shared, s.from+kb*s.cols*4, s.cols)[i0:i1]
	clear(acc)
	from, to := k0*s.cols+i0, (k1-1)*s.cols+i1
	switch s.dtype {
	case graph.F32:
		simd.AddRows(acc, s.a.f32()[from:to], k1-k0, s.cols)
	case graph.BF16:
		simd.AddRowsBF16(acc, s.a.u16()[from:to], k1-k0, s.cols)
	default:
		var reg [tile]float32
		for ; from < to; from += s.cols {
			for j := 0; j < len(acc); j += tile {
				n := min(tile, len(acc)-j)
				addPart(acc[j:j+n], s.a, s.dtype, from+j, reg[:])
			}
		}
	}
}

func (s *blockSums) total(_, _ int) {
	total(s.out.f32(), floats(s.code.m.shared, s.from, s.blocks*s.cols), s.blocks, s.cols)
}

// columnSums are the sums of one set while a loop runs over it.
type columnSums struct {
	acc   []float32 // a wide row for each sum
	wide  int       // elements of a wide row
	first int       // first element of the set
}

// add adds elements of the loop's result, from flat on, to sum k.
func (s *columnSums) add(k int, x []float32, flat int) {
	acc := s.acc[k*s.wide : (k+1)*s.wide]
	for at := (flat - s.first) % s.wide; len(x) > 0; at = 0 {
		n := min(len(x), s.wide-at)
		simd.Add(acc[at:at+n], acc[at:at+n], x[:n])
		x = x[n:]
	}
}

// summed runs a body whose last results are summed. A task handles one set of rows.
func (c *compiler) summed(n *graph.Node, op graph.Fused) ([]phase, error) {
	dims, count := n.Out[0].Shape(), len(op.Reductions)
	plain, totals := n.Out[:len(n.Out)-count], c.refs(n.Out[len(n.Out)-count:])
	p, err := c.tileProgram(op.Body, n.In, plain, dims)
	if err != nil {
		return nil, err
	}
	outer, rows, cols, _ := op.Reductions[0].Columns(dims)
	v := newColumns(outer, rows, cols)
	l := newLoop(p, p.collapse(dims, cols, rows*cols))
	wide := v.wide * cols
	code := c.code
	c.need(outer*v.sets*count*cols*4, p.scratchBytes()+count*wide*4)
	sums := func(o, g, k int) []float32 { // sums k of set g, followed by those of all others
		return floats(code.m.shared, 0, outer*v.sets*count*cols)[((o*v.sets+g)*count+k)*cols:]
	}
	return []phase{{outer * v.sets, func(task, w int) {
		o, g := task/v.sets, task%v.sets
		from, to := (o*rows+g*v.set)*cols, (o*rows+min((g+1)*v.set, rows))*cols
		s := columnSums{floats(code.worker(w), p.scratchBytes(), count*wide), wide, from}
		clear(s.acc)
		l.run(from, to, floats(code.worker(w), 0, p.regs*(p.size+gap)), &s)
		for k := range count {
			copy(sums(o, g, k), gather(s.acc[k*wide:(k+1)*wide], cols))
		}
	}}, {outer * count, func(task, _ int) {
		o, k := task/count, task%count
		out := totals[k].f32()[o*cols : (o+1)*cols]
		total(out, sums(o, 0, k), v.sets, count*cols)
	}}}, nil
}
