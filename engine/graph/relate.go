package graph

import "fmt"

// Relate is the mean relation of each position to those before it, a relation network (Santoro et
// al. 2017) with its first layer split, g(x_i, x_j) = relu(P x_i + Q x_j), so that no tensor of
// pairs exists:
//
//	y[b,i] = 1/n * sum of relu(p[b,i] + q[b,j]) over the n positions j <= i with segment[b,j] = segment[b,i]
//
// Positions whose segment is outside [From, To) give 0. Operands: p and q F32
// [B,T,D], segment I32 [B,T]. Result: F32 [B,T,D].
type Relate struct{ From, To int }

// Name is "relate".
func (Relate) Name() string { return "relate" }

// Infer returns the type of p.
func (r Relate) Infer(in []Type) ([]Type, error) {
	if err := want(in, 3); err != nil {
		return nil, err
	}
	s := in[0].Shape
	if len(s) != 3 || !in[0].Equal(in[1]) || !in[2].Equal(T(I32, s[0], s[1])) {
		return nil, fmt.Errorf("wants p and q of one type [B,T,D] and segments i32[B,T], got %v", in)
	}
	if r.To <= r.From {
		return nil, fmt.Errorf("relates segments from %d to %d: want at least one", r.From, r.To)
	}
	return []Type{{F32, s.Clone()}}, full(in[:2]...)
}

// Grad goes over the pairs again.
func (r Relate) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	g := b.Emit(RelateGrad(r), dout[0], n.In[0], n.In[1], n.In[2])
	return []*Value{g[0], g[1], nil}
}

// pairs is how many times elements are used if all positions are in one segment.
func (Relate) pairs(t Type) float64 { return float64(t.Shape.Elems()) * float64(t.Shape[1]+1) / 2 }

// Cost is three operations for each element of each pair.
func (r Relate) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = 3 * r.pairs(in[0])
	return c
}

// RelateGrad is the gradient of Relate. Operands: dy, p, q, segment. Results:
// dp and dq.
type RelateGrad Relate

// Name is "relate_grad".
func (RelateGrad) Name() string { return "relate_grad" }

// Infer returns the types of p and q.
func (r RelateGrad) Infer(in []Type) ([]Type, error) {
	if err := want(in, 4); err != nil {
		return nil, err
	}
	out, err := Relate(r).Infer(in[1:])
	if err != nil {
		return nil, err
	}
	if !in[0].Equal(out[0]) {
		return nil, fmt.Errorf("dy is %v, want %v", in[0], out[0])
	}
	return []Type{in[1], in[2]}, nil
}

// Grad: second derivatives are not provided.
func (r RelateGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, r) }

// Cost is five operations for each element of each pair.
func (r RelateGrad) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = 5 * Relate(r).pairs(in[1])
	return c
}

// Relate relates positions within the segments from to to-1; see [Relate].
func (b *Builder) Relate(p, q, segment *Value, from, to int) *Value {
	return b.emit1(Relate{from, to}, p, q, segment)
}
