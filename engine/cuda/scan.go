package cuda

import "github.com/snug-ml/snug/engine/graph"

// scanStates is how many states a launch of a scan handles, scanChannels how many channels a block handles.
const (
	scanStates   = 16
	scanChannels = 32
)

// scan launches a kernel for each 16 states; p holds the parameters before the shapes.
//
// again says that states within a chunk are computed again; moved is the traffic.
func (l *lowering) scan(kernel string, u, a *graph.Value, chunk int, again bool, moved int64, p *params) {
	s, states := u.Shape(), a.Shape()[1]
	for from := 0; from < states; from += scanStates {
		q := &params{bytes: append([]byte(nil), p.bytes...), pointers: p.pointers}
		blocks := s[0] * ceil(s[2], scanChannels)
		x := l.run(kernel, blocks, 128, q.u32(s[1], s[2], states, from, chunk)).does("block", blocks).does("time", blocks*s[1]).moves(moved)
		if again {
			const part = 8 // steps, as in kernels/scan.cu
			c := min(chunk, s[1])
			x.does("again", blocks*ceil(s[1], c)*stairs(c, part))
		}
	}
}

func (l *lowering) selectiveScan(n *graph.Node, op graph.SelectiveScan) {
	p := new(params)
	for _, v := range append(n.In[:6:6], n.Out...) {
		p.ptr(l.at(v))
	}
	l.scan("selective_scan", n.In[0], n.In[2], op.Chunk, false, traffic(n.In...)+traffic(n.Out...), p)
}

func (l *lowering) selectiveScanGrad(n *graph.Node, op graph.SelectiveScan) {
	p := new(params)
	for _, v := range n.In {
		p.ptr(l.at(v))
	}
	u, a := n.In[2], n.In[4]
	batch, t, d, states := u.Shape()[0], u.Shape()[1], u.Shape()[2], a.Shape()[1]
	blocks := ceil(d, scanChannels)
	// These sums are completed outside a block: [outer, rows, cols] over rows.
	sums := []struct{ out, outer, rows, cols int }{
		{out: 2, outer: 1, rows: batch, cols: d * states},
		{out: 3, outer: batch, rows: blocks, cols: t * states},
		{out: 4, outer: batch, rows: blocks, cols: t * states},
		{out: 5, outer: 1, rows: batch, cols: d},
	}
	partial := make([]address, len(n.Out))
	for i, v := range n.Out {
		partial[i] = l.at(v)
	}
	for _, s := range sums {
		if s.rows > 1 {
			partial[s.out] = l.take(4 * int64(s.outer) * int64(s.rows) * int64(s.cols))
		}
	}
	for _, at := range partial {
		p.ptr(at)
	}
	l.scan("selective_scan_grad", u, a, op.Chunk, true, traffic(n.In...)+traffic(n.Out...), p)
	for _, s := range sums {
		if s.rows > 1 {
			l.reduceColumns("sum_", graph.F32, partial[s.out], l.at(n.Out[s.out]), s.outer, s.rows, s.cols, 1)
		}
	}
}
