package graph

import "fmt"

// Embedding picks rows: result[..., :] = table[ids[...], :]. Operands: table
// [V, D], ids I32 [...]. Ids outside [0, V) are the host's error; devices check
// them.
type Embedding struct{ Out DType }

// Name is "embedding".
func (Embedding) Name() string { return "embedding" }

// Infer appends the row length to the ids' shape.
func (e Embedding) Infer(in []Type) ([]Type, error) {
	if len(in) != 2 || len(in[0].Shape) != 2 || in[1].DType != I32 {
		return nil, fmt.Errorf("wants a table [V, D] and i32 ids, got %v", in)
	}
	out := e.Out
	if out == Invalid {
		out = in[0].DType
	}
	return []Type{{out, append(in[1].Shape.Clone(), in[0].Shape[1])}}, nil
}

// Grad adds up the gradient rows by id.
func (e Embedding) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(EmbeddingGrad{Vocab: n.In[0].Shape()[0]}, dout[0], n.In[1]), nil}
}

// Cost reads and writes the picked rows.
func (Embedding) Cost(in, out []Type) Cost {
	return Cost{Bytes: 2*float64(out[0].Bytes()) + float64(in[1].Bytes())}
}

// Autocast writes the 16-bit format; the table stays as it is.
func (e Embedding) Autocast(in []Type, compute DType) ([]DType, Op) {
	return make([]DType, len(in)), Embedding{Out: compute}
}

// Embedding picks the rows ids of table. Rows of a table that is merely stored in 16 bits
// ([Builder.StoreMatrices]) are returned in float32.
func (b *Builder) Embedding(table, ids *Value) *Value {
	op := Embedding{}
	if b.weights != Invalid && table.DType() == b.weights {
		op.Out = F32
	}
	return b.emit1(op, table, ids)
}

// EmbeddingGrad is the gradient of a table: row v of the F32 result [Vocab, D]
// is the sum of the operand rows whose id is v, in order. An optional third
// operand of the result's type is what the sums start from; with Accumulate it
// is a state, and the result its next version.
type EmbeddingGrad struct {
	Vocab      int
	Accumulate bool
}

// Name is "embedding_grad".
func (EmbeddingGrad) Name() string { return "embedding_grad" }

// Infer returns the table's shape.
func (e EmbeddingGrad) Infer(in []Type) ([]Type, error) {
	if n := len(in); n != 3 {
		if err := want(in, 2); err != nil || e.Accumulate {
			return nil, fmt.Errorf("takes rows, ids and what they are added to (always with Accumulate: %v), got %d operands", e.Accumulate, n)
		}
	}
	if in[1].DType != I32 || len(in[0].Shape) == 0 || in[0].Shape.Rows() != int(in[1].Shape.Elems()) {
		return nil, fmt.Errorf("wants one gradient row per id, got %v", in)
	}
	out := T(F32, e.Vocab, in[0].Shape.Last())
	if len(in) == 3 && !in[2].Equal(out) {
		return nil, fmt.Errorf("adds to %v, got %v", out, in[2])
	}
	return []Type{out}, nil
}

// Aliases: with Accumulate the result is operand 2.
func (e EmbeddingGrad) Aliases(int) []Alias {
	if e.Accumulate {
		return []Alias{{0, 2}}
	}
	return nil
}

// InplaceOperands: the sums may overwrite their initial values.
func (e EmbeddingGrad) InplaceOperands(n *Node) []int {
	if len(n.In) == 3 && !e.Accumulate {
		return []int{2}
	}
	return nil
}

// Grad picks the rows back: adding up by id is linear.
func (e EmbeddingGrad) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	if len(n.In) == 3 {
		return noSecond(b, e)
	}
	return []*Value{b.Reshape(b.Embedding(dout[0], n.In[1]), n.In[0].Shape()...), nil}
}

// Cost reads the rows and writes the table, or with Accumulate updates its rows.
func (e EmbeddingGrad) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	if e.Accumulate {
		c.Bytes = float64(in[0].Bytes()+in[1].Bytes()) + 8*float64(in[0].Shape.Elems())
	}
	c.FLOPs = float64(in[0].Shape.Elems())
	return c
}

// Autocast reads the gradient in its own format.
func (e EmbeddingGrad) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), e }
