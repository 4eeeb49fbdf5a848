package cuda

import "github.com/snug-ml/snug/engine/graph"

func (l *lowering) crossEntropy(n *graph.Node) {
	x := n.In[0]
	rows := x.Shape()[0]
	losses := l.take(4 * int64(rows))
	l.lossOfRows(x.Type, l.at(x), l.at(n.In[1]), l.at(n.In[2]), l.at(n.Out[1]), losses)
	l.reduceRows("sum_", graph.F32, losses, l.at(n.Out[0]), 1, rows, 1)
}

// lossOfRows computes the log-sum-exp and the weighted loss of each row of logits.
func (l *lowering) lossOfRows(t graph.Type, x, labels, weights, lse, losses address) {
	p := new(params).ptr(x).ptr(labels).ptr(weights).ptr(lse).ptr(losses).u32(t.Shape[1])
	l.run("cross_entropy_"+t.DType.String(), t.Shape[0], 256, p).does("row", t.Shape[0]).does("line", t.Shape[0]*warps(t.Shape[1])).overRows()
}

func (l *lowering) crossEntropyGrad(n *graph.Node) {
	x := n.In[0]
	l.lossGrad(x.Type, l.at(x), l.at(n.In[1]), l.at(n.In[2]), l.at(n.In[3]), l.at(n.In[4]), x.DType(), l.at(n.Out[0]), x.Shape()[1])
}

// lossGrad computes the gradient of the logits in a format; it may overwrite the logits if it has their
// format.
func (l *lowering) lossGrad(t graph.Type, x, labels, weights, lse, dloss address, d graph.DType, dx address, pitch int) {
	name := "cross_entropy_grad_" + t.DType.String()
	if d != t.DType {
		name += "_" + d.String()
	}
	p := new(params).ptr(x).ptr(labels).ptr(weights).ptr(lse).ptr(dloss).ptr(dx).u32(t.Shape[1], pitch)
	l.runGrid(name, [3]int{t.Shape[0], ceil(pitch, 1024), 1}, 256, p).
		does("block", t.Shape[0]*ceil(pitch, 1024)).does("line", t.Shape[0]*warps(pitch)).overRows()
}

func (l *lowering) linearCrossEntropy(n *graph.Node, op graph.LinearCrossEntropy) {
	rows := n.In[0].Shape()[0]
	losses := l.take(4 * int64(rows))
	c := l.chunks(n, op.Chunk, l.at(n.Out[2]), op.TF32)
	c.each(func(from, rows int) {
		c.logits(from, rows)
		c.loss(from, rows, l.at(n.Out[1]), losses)
	})
	l.reduceRows("sum_", graph.F32, losses, l.at(n.Out[0]), 1, rows, 1)
}

func (l *lowering) linearCrossEntropyGrad(n *graph.Node, op graph.LinearCrossEntropyGrad) {
	rows := n.In[0].Shape()[0]
	losses, lse := l.take(4*int64(rows)), l.take(4*int64(rows))
	dloss, dh := l.at(n.In[4]), l.at(n.Out[1])
	c := l.chunks(n, op.Chunk, l.at(n.Out[len(n.Out)-1]), op.TF32)
	// Products take the gradient of the logits in their own format. It overwrites the logits if that is their
	// format too and its rows begin where products need them.
	gradient, pitch := c.buffer, c.vocab
	if l.onTensorCores(c.dtype, c.tf32) {
		piece := perPiece(c.dtype)
		pitch = ceil(c.vocab, piece) * piece // so that rows begin at multiples of 16 bytes
	}
	if c.dtype != graph.F32 || pitch != c.vocab {
		gradient = l.take(c.dtype.Size() * int64(op.Chunk) * int64(pitch))
	}
	c.each(func(from, rows int) {
		c.logits(from, rows)
		c.loss(from, rows, lse, losses)
		t := graph.Type{DType: graph.F32, Shape: graph.Shape{rows, c.vocab}}
		at := int64(4 * from)
		l.lossGrad(t, c.buffer, c.labels.plus(at), c.weights.plus(at), lse.plus(at), dloss, c.dtype, gradient, pitch)
		d := factor{dtype: c.dtype, at: gradient}
		l.product(product{a: d, b: c.w, batch: 1, m: rows, n: c.width, k: c.vocab, pitch: pitch, tf32: c.tf32},
			plain(n.Out[1].DType(), c.width, dh.plus(int64(from)*int64(c.width)*n.Out[1].DType().Size())))
		if op.Frozen {
			return
		}
		dw := l.at(n.Out[2])
		e := plain(graph.F32, c.width, dw)
		if from > 0 || len(n.In) == 6 {
			e = accumulating(c.width, dw)
		}
		d.trans = true
		l.product(product{a: d, b: c.rowsOf(from), batch: 1, m: c.vocab, n: c.width, k: rows, pitch: pitch, tf32: c.tf32}, e)
	})
	l.reduceRows("sum_", graph.F32, losses, l.at(n.Out[0]), 1, rows, 1)
}

// chunks computes the loss of linear logits for some rows at a time.
type chunks struct {
	*lowering
	h, w                    factor // in one format
	dtype                   graph.DType
	labels, weights         address
	rows, width, vocab, max int
	buffer                  address // of the logits of a chunk
	tf32                    bool
}

func (l *lowering) chunks(n *graph.Node, most int, buffer address, tf32 bool) *chunks {
	c := &chunks{lowering: l, labels: l.at(n.In[2]), weights: l.at(n.In[3]), max: most, buffer: buffer}
	c.h, c.w = l.factors(n.In[0], n.In[1])
	c.dtype = c.h.dtype
	c.tf32 = tf32 && c.dtype == graph.F32
	c.rows, c.width, c.vocab = n.In[0].Shape()[0], n.In[0].Shape()[1], n.In[1].Shape()[0]
	return c
}

// each calls f for each chunk; workspace that f takes is free again afterwards.
func (c *chunks) each(f func(from, rows int)) {
	taken := c.scratch
	for from := 0; from < c.rows; from += c.max {
		f(from, min(c.max, c.rows-from))
		c.scratch = taken
	}
}

// rowsOf are the rows of h that start at from.
func (c *chunks) rowsOf(from int) factor {
	return factor{dtype: c.dtype, at: c.h.at.plus(int64(from) * int64(c.width) * c.dtype.Size())}
}

func (c *chunks) logits(from, rows int) {
	w := c.w
	w.trans = true
	c.product(product{a: c.rowsOf(from), b: w, batch: 1, m: rows, n: c.vocab, k: c.width, tf32: c.tf32}, plain(graph.F32, c.vocab, c.buffer))
}

func (c *chunks) loss(from, rows int, lse, losses address) {
	at := int64(4 * from)
	t := graph.Type{DType: graph.F32, Shape: graph.Shape{rows, c.vocab}}
	c.lossOfRows(t, c.buffer, c.labels.plus(at), c.weights.plus(at), lse.plus(at), losses.plus(at))
}
