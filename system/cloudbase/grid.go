package cloudbase

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// neighbors lists where the messages to a place of the grid come from: the place itself, and those above,
// below, left and right of it.
var neighbors = [...][2]int{{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}}

// grid passes messages between the places of each feature map x [N,h,w,C], through two layers of graph
// attention (Velickovic et al. 2018) over the edges of the grid. The first concatenates its heads; the second
// has one. No graph is stored, because a neighbor is a shift of the whole map.
func (n *net) grid(b *graph.Builder, x *graph.Value) *graph.Value {
	c := n.size()
	b.Block("grid.0", func() { x = b.Elu(n.messages(b, x, n.Heads, c), 1) })
	b.Block("grid.1", func() { x = n.messages(b, x, 1, c) })
	return nn.LayerNorm(b, "grid.norm", x, normEps)
}

// messages is a layer of graph attention with heads of width c: [N,h,w,heads*c].
//
//	e_ij = LeakyReLU(a_dst.W x_i + a_src.W x_j), alpha = softmax over j, y_i = sum_j alpha_ij W x_j + bias
func (n *net) messages(b *graph.Builder, x *graph.Value, heads, c int) *graph.Value {
	s := x.Shape()
	size, h, w := s[0], s[1], s[2]
	wx := nn.Linear(b, "linear", x, heads*c, false, graph.XavierNormal(s[3], heads*c))
	byHead := b.Reshape(wx, size*h*w, heads, c)
	score := func(name string) *graph.Value {
		a := b.Param(name, graph.XavierNormal(c, 1), heads, c)
		return b.Reshape(b.Sum(b.Mul(byHead, a), -1), size, h, w, heads)
	}
	to, from := score("att_dst"), score("att_src")
	inside := b.BroadcastTo(b.Scalar(1), 1, h, w, 1)
	var edges []*graph.Value
	for _, d := range neighbors {
		const out = 1e4 // subtracted from a score to give it no weight in the softmax
		e := b.LeakyRelu(b.Add(to, shift(b, from, d)), 0.2)
		e = b.Add(e, b.MulC(b.AddC(shift(b, inside, d), -1), out))
		edges = append(edges, b.Reshape(e, size, h, w, heads, 1))
	}
	alpha := n.dropout(b, b.Softmax(b.Cast(b.Concat(4, edges...), graph.F32)), n.AttentionDropout)
	var y *graph.Value
	for k, d := range neighbors {
		part := b.Reshape(shift(b, wx, d), size, h, w, heads, c)
		part = b.Mul(part, b.Slice(alpha, 4, k, 1))
		if y == nil {
			y = part
		} else {
			y = b.Add(y, part)
		}
	}
	return b.Add(b.Reshape(y, size, h, w, heads*c), b.Param("bias", graph.Zeros(), heads*c))
}

// shift moves the neighbor in direction d of every place of x [N,h,w,C] to that place. Beyond the edge there
// are zeros.
func shift(b *graph.Builder, x *graph.Value, d [2]int) *graph.Value {
	for axis, by := range d {
		n := x.Shape()[axis+1]
		if n == 1 && by != 0 {
			return b.MulC(x, 0)
		}
		switch by {
		case -1:
			x = b.Pad(b.Slice(x, axis+1, 0, n-1), axis+1, 1, 0)
		case 1:
			x = b.Pad(b.Slice(x, axis+1, 1, n-1), axis+1, 0, 1)
		}
	}
	return x
}
