package nn

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// Router sends each token to the experts that it scores highest.
type Router struct {
	// Experts is how many there are, Choices how many of them a token goes to.
	Experts, Choices int
	// Capacity times the mean load is how many tokens of a sample an expert
	// takes, in order of time, so that neither a later token nor another sample
	// decides what is dropped; 0: all.
	Capacity float64
}

// Routed are tokens on their way to experts. There are three orders: tokens [N, ...], N =
// B*T; entries [N*K, ...], one for each choice of a token, in order of token; and rows
// [N*K, ...], sorted by expert, on which experts work. Dropped choices have a place in
// each but are not computed.
type Routed struct {
	// Choice I32 [N, K] is the expert that took each choice, Experts for none.
	Choice *graph.Value
	// Balance is the F32 scalar Experts * sum over experts of (share of the
	// choices) * (mean probability), 1 when both are even (Fedus et al. 2022,
	// equation 4). Its gradient goes through the probabilities.
	Balance *graph.Value
	// Entropy F32 [N] is the entropy of a token's probabilities, in nats; no gradient
	// should flow through it.
	Entropy *graph.Value
	// Wanted and Taken F32 [N, K, Experts] mark the expert that each choice
	// requested, and the one that took it.
	Wanted, Taken *graph.Value

	experts         int
	weights         *graph.Value // F32 [N, K]
	tokens, entries graph.Routing
}

// Route scores the tokens x [B, T, D] with the weight "weight" [Experts, D] in scope
// name. One choice is weighted by its probability (Fedus et al. 2022), several by their
// shares of the sum (Shazeer et al. 2017). A single expert takes everything: then there
// is nothing to learn, and no weight.
func (r Router) Route(b *graph.Builder, name string, x *graph.Value, init graph.Init) (out *Routed) {
	s := x.Shape()
	n := s[0] * s[1]
	if r.Experts == 1 {
		// The index of the largest of one is 0.
		zeros := b.ArgMax(b.Slice(b.Reshape(x, n, s[2]), 1, 0, 1))
		return &Routed{experts: 1, Choice: b.Reshape(zeros, n, 1)}
	}
	k := min(r.Choices, r.Experts)
	b.Scope(name, func() {
		w := b.Param("weight", init, r.Experts, s[2])
		logits := b.Emit(graph.MatMul{TransB: true, Out: graph.F32}, b.Reshape(x, n, s[2]), w)[0]
		p := b.Softmax(logits)
		best, choice := b.TopK(p, k)
		out = &Routed{experts: r.Experts, weights: best, Choice: choice}
		if k > 1 {
			out.weights = b.Div(best, b.SumKeep(best, -1))
		}
		out.Wanted = b.OneHot(choice, r.Experts)
		out.Taken = out.Wanted
		out.Entropy = b.Neg(b.Sum(b.Mul(p, b.Log(b.MaxC(p, 1e-30))), -1))
		out.Balance = b.MulC(b.Sum(b.Mul(b.Mean(out.Wanted, 0, 1), b.Mean(p, 0))), float64(r.Experts))
		groups := r.Experts
		if most := r.most(s[1], k); most > 0 {
			r.limit(b, out, s[0], most)
			groups++ // the last takes the dropped ones
		}
		out.tokens = b.Route(graph.Route{Experts: groups}, out.Choice)
		out.entries = out.tokens
		out.entries.Slot = b.Reshape(out.tokens.Slot, n*k, 1)
	})
	return out
}

// most is how many of a sample's t*k choices an expert takes; 0: no limit.
func (r Router) most(t, k int) int {
	c := int(math.Ceil(r.Capacity * float64(t*k) / float64(r.Experts)))
	if r.Capacity == 0 || c >= t { // a token chooses an expert at most once
		return 0
	}
	return c
}

// limit drops a sample's choices of an expert after the first most.
func (r Router) limit(b *graph.Builder, out *Routed, samples, most int) {
	s := out.Wanted.Shape()
	wants := b.Reshape(out.Wanted, samples, -1, r.Experts)
	place := b.SumKeep(b.Mul(CumulativeSum(b, wants), wants), -1)
	kept := b.Apply(graph.FnGreater, b.Scalar(float64(most)+0.5), place)
	taken := b.Mul(wants, kept)
	dropped := b.AddC(b.Neg(kept), 1)
	out.Choice = b.Reshape(b.ArgMax(b.Concat(2, taken, dropped)), s[0], s[1])
	out.Taken = b.Reshape(taken, s...)
}

// dense reports whether a single expert takes everything: the three orders are the same.
func (r *Routed) dense() bool { return r.experts == 1 }

// Choices is K.
func (r *Routed) Choices() int { return r.Choice.Shape()[1] }

// Rows copies tokens [N, D] to the rows of their experts.
func (r *Routed) Rows(b *graph.Builder, tokens *graph.Value) *graph.Value {
	if r.dense() {
		return tokens
	}
	return b.Dispatch(tokens, r.tokens)
}

// Tokens adds up, for each token, the rows of its experts by their weights.
func (r *Routed) Tokens(b *graph.Builder, rows *graph.Value) *graph.Value {
	if r.dense() {
		return rows
	}
	return b.Combine(rows, r.weights, r.tokens)
}

// Entries returns rows to the order of tokens, one for each choice.
func (r *Routed) Entries(b *graph.Builder, rows *graph.Value) *graph.Value {
	if r.dense() {
		return rows
	}
	return b.Emit(graph.Combine{}, rows, r.entries.Slot, r.entries.Source)[0]
}

// FromEntries is the inverse of Entries.
func (r *Routed) FromEntries(b *graph.Builder, entries *graph.Value) *graph.Value {
	if r.dense() {
		return entries
	}
	return b.Dispatch(entries, r.entries)
}

// Mask F32 [N*K, 1] marks the entries of experts from to to-1.
func (r *Routed) Mask(b *graph.Builder, from, to int) *graph.Value {
	n := int(r.Choice.Shape().Elems())
	if r.dense() {
		return full(b, 1, n, 1)
	}
	return b.SumKeep(b.Slice(b.Reshape(r.Taken, n, r.experts), 1, from, to-from), -1)
}

// Linear is x W[e]^T + bias[e] on the rows of each expert e from from to to-1,
// and 0 on all others, with weights "weight" [to-from, out, in] and, if bias is
// set, "bias" [to-from, out] in scope name.
func (r *Routed) Linear(b *graph.Builder, name string, rows *graph.Value, from, to, out int, bias bool, init graph.Init) (y *graph.Value) {
	in := rows.Shape()[1]
	b.Scope(name, func() {
		var w *graph.Value
		b.As(graph.Stacked, func() { w = b.Param("weight", init, to-from, out, in) })
		var c *graph.Value
		if bias {
			t := graph.T(graph.F32, to-from, out)
			c = b.State(&graph.State{Name: b.Path("bias"), Type: t, Role: graph.Weight})
		}
		group := r.tokens
		if !r.dense() {
			group.Offsets = b.Slice(group.Offsets, 0, from, to-from+1)
		}
		y = b.GroupedLinear(rows, w, c, group)
	})
	return y
}
