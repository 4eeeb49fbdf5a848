package cuda

import (
	"math/bits"

	"github.com/snug-ml/snug/engine/graph"
)

func (l *lowering) linearCrossEntropy(n *graph.Node, op graph.LinearCrossEntropy) {
	c := l.logits(n, op.Chunk, op.TF32)
	c.lse = l.at(n.Out[1])
	c.each(func(from, rows int) {
		c.exponentials(from, rows, nil)
		c.loss(from, rows)
	})
	l.reduceRows("sum_", graph.F32, c.losses, l.at(n.Out[0]), 1, c.rows, 1)
}

func (l *lowering) linearCrossEntropyGrad(n *graph.Node, op graph.LinearCrossEntropyGrad) {
	c := l.logits(n, op.Chunk, op.TF32)
	c.lse = l.take(4 * int64(c.rows))
	scratch, size := n.Out[len(n.Out)-1], c.dtype.Size()*int64(c.max)*int64(c.pitch)
	kept := l.at(scratch)
	if scratch.Type.Bytes() < size { // it was made for logits, and rows are very short
		kept = l.take(size)
	}
	dloss, dh := l.at(n.In[4]), l.at(n.Out[1])
	d := factor{dtype: c.dtype, at: kept}
	c.each(func(from, rows int) {
		c.exponentials(from, rows, &kept)
		c.loss(from, rows)
		c.gradient(from, rows, kept, dloss)
		l.product(product{a: d, b: c.w, batch: 1, m: rows, n: c.width, k: c.vocab, pitch: c.pitch, tf32: c.tf32},
			plain(n.Out[1].DType(), c.width, dh.plus(int64(from)*int64(c.width)*n.Out[1].DType().Size())))
		if op.Frozen {
			return
		}
		dw := l.at(n.Out[2])
		e := plain(graph.F32, c.width, dw)
		if from > 0 || len(n.In) == 6 {
			e = accumulating(c.width, dw)
		}
		trans := d
		trans.trans = true
		l.product(product{a: trans, b: c.rowsOf(from), batch: 1, m: c.vocab, n: c.width, k: rows, pitch: c.pitch, tf32: c.tf32}, e)
	})
	l.reduceRows("sum_", graph.F32, c.losses, l.at(n.Out[0]), 1, c.rows, 1)
}

// logits computes the loss of linear logits for some rows at a time. None are stored: a kernel leaves parts of
// what the loss needs of them, and for the gradient their exponentials (kernels/logits.h).
type logits struct {
	*lowering
	h, w                    factor // in one format
	dtype                   graph.DType
	labels, weights         address
	rows, width, vocab, max int
	// pitch is the distance in elements between rows of exponentials, so that they begin at multiples of 16
	// bytes.
	pitch int
	tf32  bool
	// kernel has blocks of threads, whose steps are depth along the width.
	kernel         string
	threads, depth int
	// side is that of a tile, columns how many tiles a row has.
	side, columns int
	// parts are those of a chunk's tiles, own the logits of its labels.
	parts, own  address
	losses, lse address // of all rows
}

func (l *lowering) logits(n *graph.Node, most int, tf32 bool) *logits {
	c := &logits{lowering: l, labels: l.at(n.In[2]), weights: l.at(n.In[3]), max: most}
	c.h, c.w = l.factors(n.In[0], n.In[1])
	c.dtype = c.h.dtype
	c.tf32 = tf32 && c.dtype == graph.F32
	c.rows, c.width, c.vocab = n.In[0].Shape()[0], n.In[0].Shape()[1], n.In[1].Shape()[0]
	c.pitch = ceil(c.vocab, perPiece(c.dtype)) * perPiece(c.dtype)
	c.side = product{batch: 1, m: most, n: c.vocab, k: c.width}.tiled().Tile(l.sms)
	c.kernel, c.threads, c.depth = "logits_"+tileName(c.side)+"_"+formatOf(c.dtype), 128, 32
	switch {
	case !l.onTensorCores(c.dtype, c.tf32):
		l.steppable(c.vocab, c.width)
		c.kernel, c.threads, c.depth = "slogits_"+tileName(c.side)+"_"+c.dtype.String(), 256, 8
	case !aligned(c.h, c.width) || !aligned(c.w, c.width):
		c.kernel, c.side = "logits_any_"+formatOf(c.dtype), 64
	}
	c.columns = ceil(c.vocab, c.side)
	c.parts, c.own, c.losses = l.take(8*int64(most)*int64(c.columns)), l.take(4*int64(most)), l.take(4*int64(c.rows))
	return c
}

// each calls f for each chunk; workspace that f takes is free again afterwards.
func (c *logits) each(f func(from, rows int)) {
	taken := c.scratch
	for from := 0; from < c.rows; from += c.max {
		f(from, min(c.max, c.rows-from))
		c.scratch = taken
	}
}

// rowsOf are the rows of h that start at from.
func (c *logits) rowsOf(from int) factor {
	return factor{dtype: c.dtype, at: c.h.at.plus(int64(from) * int64(c.width) * c.dtype.Size())}
}

// exponentials computes the parts of a chunk, and the exponentials themselves if there is a place for them.
func (c *logits) exponentials(from, rows int, kept *address) {
	p := new(params).ptr(c.rowsOf(from).at).ptr(c.w.at).u32(rows, c.vocab, c.width).ptr(c.labels.plus(int64(4 * from))).ptr(c.own).ptr(c.parts)
	written := int64(8 * rows * c.columns)
	if kept == nil {
		p.null()
	} else {
		p.ptr(*kept)
		written += c.dtype.Size() * int64(rows) * int64(c.pitch)
	}
	p.u32(c.pitch).align(8)
	tiles := ceil(rows, c.side) * c.columns
	x := c.run(c.kernel, tiles, c.threads, p).does("step", tiles*ceil(c.width, c.depth)).does("tile", tiles)
	if kept != nil {
		x.does("kept", tiles)
	}
	x.multiplies(rows, c.vocab, c.width).moves(int64(rows+c.vocab)*int64(c.width)*c.dtype.Size(), written)
}

// loss computes the log-sum-exp and the weighted loss of each row of a chunk.
func (c *logits) loss(from, rows int) {
	at := int64(4 * from)
	p := new(params).ptr(c.parts).ptr(c.labels.plus(at)).ptr(c.weights.plus(at)).ptr(c.own).ptr(c.lse.plus(at)).ptr(c.losses.plus(at)).u32(rows, c.columns)
	c.run("logits_loss", ceil(rows, 8), 256, p).does("row", rows).does("line", rows*warps(c.columns)).does("part", rows*c.columns)
}

// gradient makes the exponentials of a chunk the gradient of its logits.
func (c *logits) gradient(from, rows int, kept, dloss address) {
	at, each := int64(4*from), c.pitch/perPiece(c.dtype)
	pieces := rows * each
	if pieces >= 1<<31 {
		c.fail("the loss of %d rows of %d classes at a time: want fewer", rows, c.vocab)
	}
	p := new(params).ptr(kept).ptr(c.parts).ptr(c.labels.plus(at)).ptr(c.weights.plus(at)).ptr(c.own).ptr(c.lse.plus(at)).ptr(dloss).
		u32(pieces).divisor(each).u32(c.columns, bits.Len(uint(c.side))-1)
	c.run("logits_grad_"+c.dtype.String(), ceil(pieces, 256), 256, p).does("warp", warps(pieces)).does("label", min(rows, warps(pieces)))
}

// tileName is the side of a tile in the names of kernels.
func tileName(side int) string { return map[int]string{64: "64", 128: "128"}[side] }
