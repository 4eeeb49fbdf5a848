package cuda

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// adafactor appends one weight's launches: the sums of tiles, the means, the size of the step, and the step
// itself.
func (l *lowering) adafactor(n *graph.Node, op graph.Adafactor) {
	const tileRows, tileColumns, most = 64, 128, 65535 // as in kernels/optimizer.cu; most blocks along z
	batch, rows, columns := op.Matrices(n.In[0].Shape())
	grid := [3]int{ceil(columns, tileColumns), ceil(rows, tileRows), min(batch, most)}
	if grid[0]*grid[1] == 1 { // many small matrices, as in convolutions: sixteen a block
		grid[2] = min(ceil(batch, 16), most)
	}
	tiles := grid[0] * grid[1] * grid[2]
	scalars := n.In[2+op.States():]
	g, lr, gscale, t, ok := l.at(n.In[1]), l.at(scalars[0]), l.at(scalars[1]), l.at(scalars[2]), l.at(scalars[3])
	grads := ofGradient(n.In[1].DType())
	optional := func(p *params, at address) *params {
		if op.Factored {
			return p.ptr(at)
		}
		p.null()
		return p
	}
	var row, mean address
	column := l.at(n.In[2])
	if op.Factored {
		row, column, mean = column, l.at(n.In[3]), l.take(4*int64(batch))
	}
	rowSums, columnSums := l.take(4*int64(batch)*int64(rows)*int64(grid[0])), l.take(4*int64(batch)*int64(grid[1])*int64(columns))
	squares, norm := l.take(8*int64(tiles)), l.take(4)

	// tiled counts the work of a kernel that goes over tiles: rows of 128 columns, eight to each warp.
	tiled := func(x *launch) {
		x.does("block", tiles).does("row", batch*rows*grid[0]).does("line", batch*rows*warps(columns))
	}
	tiled(l.runGrid("adafactor_sums"+grads, grid, 256, new(params).ptr(g).ptr(gscale).ptr(ok).ptr(rowSums).ptr(columnSums).u32(batch, rows, columns)))
	p := optional(new(params).ptr(rowSums).ptr(columnSums), row).ptr(column).ptr(t).ptr(ok)
	l.runGrid("adafactor_moments", [3]int{ceil(rows+columns, 256), 1, grid[2]}, 256, p.u32(batch, rows, columns).f32(op.Decay, op.Eps)).
		does("warp", batch*warps(rows+columns)).does("part", batch*(warps(rows)*grid[0]+warps(columns)*grid[1]))
	if op.Factored {
		l.reduceRows("sum_", graph.F32, row, mean, batch, rows, 1/float64(rows))
	}
	p = optional(optional(new(params).ptr(g), row).ptr(column), mean).ptr(gscale).ptr(ok).ptr(squares)
	tiled(l.runGrid("adafactor_squares"+grads, grid, 256, p.u32(batch, rows, columns)))
	l.rootOfSum(squares, norm, tiles)

	p = new(params).ptr(l.at(n.In[0]))
	if op.Round.Mode == graph.Compensated {
		p.ptr(l.at(n.In[1+op.States()]))
	} else {
		p.null()
	}
	p.u32(int(op.Round.Stream)).u64(op.Round.Seed)
	p = optional(optional(p.ptr(g), row).ptr(column), mean).ptr(norm).ptr(lr).ptr(gscale).ptr(t).ptr(ok)
	room := op.Clip * math.Sqrt(float64(batch)*float64(rows)*float64(columns))
	x := l.runGrid("adafactor"+roundings[op.Round.Mode]+grads, grid, 256, p.u32(batch, rows, columns).f32(room, op.WeightDecay, op.LRScale).u32(flag(op.ZeroGrad)))
	tiled(x)
	if op.ZeroGrad {
		x.does("clear", batch*rows*warps(columns))
	}
}
