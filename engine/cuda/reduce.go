package cuda

import (
	"github.com/snug-ml/snug/engine/graph"
)

func (l *lowering) reduce(n *graph.Node, op graph.Reduce) {
	l.reduceInto(op, n.In[0].Type, l.at(n.In[0]), l.at(n.Out[0]))
}

// reduceInto reduces x into out.
func (l *lowering) reduceInto(op graph.Reduce, t graph.Type, x, out address) {
	scale := 1.0
	if op.Kind == graph.ReduceMean {
		scale = 1 / float64(op.Count(t.Shape))
	}
	name := "sum_"
	if op.Kind == graph.ReduceMax {
		name = "max_"
	}
	outer, rows, cols, ok := op.Matrices(t.Shape)
	switch {
	case !ok: // move the reduced dimensions last
		rows, cols = op.Count(t.Shape), 1
		outer = int(t.Shape.Elems()) / rows
		x = l.reducedLast(op, t, x)
	case rows == 1: // nothing is joined: every element is its own row
		outer, cols = outer*cols, 1
	}
	if cols == 1 {
		l.reduceRows(name, t.DType, x, out, outer, rows, scale)
		return
	}
	l.reduceColumns(name, t.DType, x, out, outer, rows, cols, scale)
}

// reducedLast copies a tensor into the workspace with its reduced dimensions last.
func (l *lowering) reducedLast(op graph.Reduce, t graph.Type, x address) address {
	var perm []int
	for _, reduced := range []bool{false, true} {
		for d := range t.Shape {
			if op.Has(d) == reduced {
				perm = append(perm, d)
			}
		}
	}
	to := graph.Type{DType: t.DType}
	for _, d := range perm {
		to.Shape = append(to.Shape, t.Shape[d])
	}
	at := l.take(to.Bytes())
	l.permute(t, x, to, at, perm)
	return at
}

const (
	// rowPart is how many elements of a row a block joins, columnPart how many rows it joins.
	rowPart    = 1 << 14
	columnPart = 512
	// mostBlocks is how many a grid may have along y, and along z.
	mostBlocks = 65535
)

func (l *lowering) reduceRows(name string, d graph.DType, x, out address, rows, cols int, scale float64) {
	if cols <= 512 {
		l.run(name+"short_"+d.String(), ceil(rows, 8), 256, new(params).ptr(x).ptr(out).u32(rows, cols).f32(scale)).does("row", rows).does("line", rows*warps(cols))
		return
	}
	parts := ceil(cols, rowPart)
	if parts == 1 {
		l.run(name+"rows_"+d.String(), rows, 256, new(params).ptr(x).ptr(out).u32(cols, 1, cols).f32(scale)).does("block", rows).does("line", rows*warps(cols))
		return
	}
	partial := l.take(4 * int64(rows) * int64(parts))
	l.run(name+"rows_"+d.String(), rows*parts, 256, new(params).ptr(x).ptr(partial).u32(cols, parts, rowPart).f32(1)).
		does("block", rows*parts).does("line", rows*warps(cols))
	l.reduceRows(name, graph.F32, partial, out, rows, parts, scale)
}

// partsOf returns in how many parts rows are added up, and the rows of a part.
func partsOf(rows int) (parts, size int) {
	size = ceil(rows, min(ceil(rows, columnPart), mostBlocks))
	return ceil(rows, size), size
}

func (l *lowering) reduceColumns(name string, d graph.DType, x, out address, outer, rows, cols int, scale float64) {
	parts, size := partsOf(rows)
	to, first := out, scale
	if parts > 1 {
		to, first = l.take(4*int64(outer)*int64(parts)*int64(cols)), 1
	}
	for from := 0; from < outer; from += mostBlocks {
		n := min(mostBlocks, outer-from)
		p := new(params).ptr(x.plus(int64(from) * int64(rows) * int64(cols) * d.Size())).ptr(to.plus(4 * int64(from) * int64(parts) * int64(cols)))
		l.runGrid(name+"columns_"+d.String(), [3]int{ceil(cols, 32), parts, n}, 256, p.u32(rows, cols, size).f32(first)).
			does("block", warps(cols)*parts*n).does("line", warps(cols)*rows*n)
	}
	if parts > 1 {
		l.reduceColumns(name, graph.F32, to, out, outer, parts, cols, scale)
	}
}
