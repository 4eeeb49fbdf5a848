package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// attentionCall is an attention operation as its kernels take it.
type attentionCall struct {
	op               graph.Attention
	d                graph.DType
	batch, tq, tk, k int
	qkv              [3]address
	lens, segs, run  *address // nil where not enabled
}

// attentionTile is how many queries and keys a block works on at a time, attentionColumns how many elements
// of each result it computes.
const (
	attentionTile    = 64
	attentionColumns = 128
)

func (l *lowering) attentionCall(op graph.Attention, in []*graph.Value) *attentionCall {
	types := make([]graph.Type, len(in))
	for i, v := range in {
		types[i] = v.Type
	}
	a := &attentionCall{op: op, d: in[0].DType()}
	a.batch, a.tq, a.tk, a.k = op.Geometry(types)
	operands := make([]address, op.Arity())
	for i := range operands {
		operands[i] = l.in(a.d, in[i])
	}
	a.qkv = a.parts(operands)
	lens, segments, rng := op.Optional()
	for _, o := range []struct {
		at *(*address)
		i  int
	}{{&a.lens, lens}, {&a.segs, segments}, {&a.run, rng}} {
		if o.i >= 0 {
			at := l.at(in[o.i])
			*o.at = &at
		}
	}
	return a
}

// parts gives the addresses of q, k and v, or of their gradients, in the operands.
func (a *attentionCall) parts(at []address) [3]address {
	size := int64(a.k) * a.d.Size()
	switch a.op.Layout {
	case graph.PackedHeads:
		return [3]address{at[0], at[0].plus(size), at[0].plus(2 * size)}
	case graph.PackedQKV:
		size *= int64(a.op.Heads)
		return [3]address{at[0], at[0].plus(size), at[0].plus(2 * size)}
	}
	return [3]address{at[0], at[1], at[2]}
}

// in gives the address of a value in a format: the value itself, or a copy in the workspace.
func (l *lowering) in(d graph.DType, v *graph.Value) address {
	if v.DType() == d {
		return l.at(v)
	}
	to := v.Type.With(d)
	at, s := l.take(to.Bytes()), v.Shape().Strides(v.Shape())
	l.copyLoop(v.Shape(), strided{dtype: v.DType(), at: l.at(v), stride: s}, strided{dtype: d, at: at, stride: s})
	return at
}

// attentionFormats lists the formats; the kernels know a format by its index here.
var attentionFormats = []graph.DType{graph.F32, graph.F16, graph.BF16}

// heads is the number of query heads over the whole batch, groups the number of heads of keys and values.
func (a *attentionCall) heads() int  { return a.batch * a.op.Heads }
func (a *attentionCall) groups() int { return a.batch * a.op.Groups() }

// describe appends the parameters that make up the kernels' struct Attention.
func (a *attentionCall) describe(p *params) *params {
	op := a.op
	row, keyRow, head := op.Heads*a.k, op.Groups()*a.k, a.k
	switch op.Layout {
	case graph.PackedHeads:
		row, keyRow, head = 3*row, 3*keyRow, 3*head
	case graph.PackedQKV:
		row, keyRow = 3*row, 3*keyRow
	}
	causal := 0
	if op.Causal {
		causal = 1
	}
	keep := float64(float32(1 - op.Drop))
	p.align(8)
	group := op.Heads / op.Groups()
	p.u32(op.Heads, group, ceil(1<<31, group), a.tq, a.tk, a.k, row, keyRow, head, slices.Index(attentionFormats, a.d), causal, int(uint32(op.Seed)), int(op.Seed>>32), int(op.Stream))
	p.u32(int(math.Ceil(keep*(1<<24)))).f32(op.Scale, 1/(1-op.Drop))
	for _, at := range []*address{a.lens, a.segs, a.run} {
		if at == nil {
			p.null()
		} else {
			p.ptr(*at)
		}
	}
	return p
}

// mmaSizes are the head sizes for which there are kernels on tensor cores; other sizes take the next larger.
var mmaSizes = []int{16, 32, 64, 80, 96, 128}

// attentionKernel is the kernel for one part of an attention. Tensor cores take 16-bit formats that the
// target multiplies, heads of up to 128 elements, a multiple of 8, and a positive scale, under which the
// largest product is the largest score. Everything else is computed in float32.
func (l *lowering) attentionKernel(part string, a *attentionCall) string {
	i, _ := slices.BinarySearch(mmaSizes, a.k)
	if a.d == graph.F32 || a.d == graph.BF16 && l.target < 80 || i == len(mmaSizes) || a.k%8 != 0 || a.op.Scale <= 0 {
		return part
	}
	return fmt.Sprintf("%s_%v_%d", part, a.d, mmaSizes[i])
}

// runTiles launches the kernel for one part, with a block for each tile of n queries or keys of each head.
//
// moved is its traffic, products the number of matmuls for a pair of tiles, and hidden how many rows of them all
// tensor cores leave out of a pair on the diagonal of a causal mask, where a warp's 16 rows do not see all columns.
func (l *lowering) runTiles(part string, a *attentionCall, n, heads, products, hidden int, moved int64, p *params) {
	kernel := l.attentionKernel(part, a)
	grid := [3]int{ceil(n, attentionTile) * heads, 1, 1}
	if kernel == part {
		grid[1] = ceil(a.k, attentionColumns)
	}
	x := l.runGrid(kernel, grid, 128, a.describe(p))
	x.does("tile", grid[0]*grid[1]).moves(moved)

	// Pairs of a query tile and a key tile that see each other, and how many of them need a mask. Lengths and
	// segments are not known here, so all rows count as full length and one segment.
	queries, keys := ceil(a.tq, attentionTile), ceil(a.tk, attentionTile)
	pairs, masked, diagonal := queries*keys, 0, 0
	switch {
	case a.op.Causal && a.tq == a.tk:
		pairs, masked, diagonal = queries*(queries+1)/2, queries, queries
	case a.tk%attentionTile != 0:
		masked = queries
	}
	if a.segs != nil {
		x.does("segmented", a.heads()*pairs*grid[1])
	}
	if a.run != nil {
		x.does("dropped", a.heads()*pairs*grid[1])
	}
	x.does("pair", a.heads()*pairs*grid[1]).does("masked", a.heads()*masked*grid[1])
	if kernel == part {
		x.does("channel", a.heads()*pairs*grid[1]*ceil(a.k, 16))
		hidden = 0
	}
	x.multiplies(a.heads()*(products*pairs*attentionTile-hidden*diagonal), attentionTile, a.k)
}

func (l *lowering) attention(n *graph.Node, op graph.Attention) {
	a := l.attentionCall(op, n.In)
	o, lse := l.at(n.Out[0]), l.at(n.Out[1])
	p := new(params).ptr(a.qkv[0]).ptr(a.qkv[1]).ptr(a.qkv[2]).ptr(o).ptr(lse)
	// Kernels with a block for each query, made for generation, handle only a few queries.
	const fewQueries, largestHead = 4, 512
	if a.tq > fewQueries || a.k > largestHead || op.Drop > 0 {
		l.runTiles("attention", a, a.tq, a.heads(), 2, 16+24, traffic(n.In[:op.Arity()]...)+traffic(n.Out[0]), p)
		return
	}
	// Split the keys so that the card gets about 512 blocks, of 128 keys or more each.
	queries := a.heads() * a.tq
	parts := min(ceil(512, queries), ceil(a.tk, 128))
	per := ceil(ceil(a.tk, parts), 128) * 128
	parts = ceil(a.tk, per)
	if parts == 1 {
		p.null()
		a.few(l.runGrid("attention_few", [3]int{queries, 1, 1}, 128, a.describe(p.u32(1, per))))
		return
	}
	partial := l.take(4 * int64(queries) * int64(parts) * int64(a.k+2))
	a.few(l.runGrid("attention_few", [3]int{queries, parts, 1}, 128, a.describe(p.ptr(partial).u32(parts, per))))
	l.run("attention_join", queries, 128, a.describe(new(params).ptr(partial).ptr(o).ptr(lse).u32(parts))).
		does("block", queries).does("part", queries*parts).does("line", queries*parts*warps(a.k))
}

// few counts the work of the kernel for a few queries as if each query saw all keys.
func (a *attentionCall) few(x *launch) {
	keys := a.heads() * a.tq * a.tk
	x.does("block", int(x.grid[0]*x.grid[1])).does("key", keys).does("line "+a.d.String(), keys*warps(a.k)).moves(2 * int64(a.groups()) * int64(a.tk) * int64(a.k) * a.d.Size())
}

func (l *lowering) attentionGrad(n *graph.Node, op graph.AttentionGrad) {
	a := l.attentionCall(graph.Attention(op), n.In[3:])
	do, o, lse := l.in(a.d, n.In[0]), l.in(a.d, n.In[1]), l.at(n.In[2])
	grads := make([]address, len(n.Out))
	for i, v := range n.Out {
		if v.DType() != a.d {
			l.fail("the gradients are %v and %v, which no kernel writes together", a.d, v.DType())
		}
		grads[i] = l.at(v)
	}
	out := a.parts(grads)
	delta := l.take(4 * int64(a.heads()) * int64(a.tq))
	operands := func() *params { return new(params).ptr(a.qkv[0]).ptr(a.qkv[1]).ptr(a.qkv[2]).ptr(do) }
	in := traffic(n.In[3:3+graph.Attention(op).Arity()]...) + traffic(n.In[0])
	l.runTiles("attention_dq", a, a.tq, a.heads(), 3, 3*24, in+traffic(n.In[1])+traffic(n.Out...)/3, operands().ptr(o).ptr(lse).ptr(delta).ptr(out[0]))
	l.runTiles("attention_dkv", a, a.tk, a.groups(), 4, 4*24, in+2*traffic(n.Out...)/3, operands().ptr(lse).ptr(delta).ptr(out[1]).ptr(out[2]))
}
