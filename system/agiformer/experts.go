package agiformer

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Kind is the kind of an expert.
type Kind string

// These are the kinds in the order of a layer's experts. Kinds that share a part are adjacent, so that the
// part is one grouped matmul.
const (
	// Standard is a feed-forward layer.
	Standard Kind = "standard"
	// Spatial attends, and measures distances between a token and earlier ones in learned spaces.
	Spatial Kind = "spatial"
	// Logic attends, and relates each pair of its tokens.
	Logic Kind = "logic"
	// Causal is Logic with the time of each token.
	Causal Kind = "causal"
	// LanguageKind reads a language model's states of the text.
	LanguageKind Kind = "language"
)

var order = []Kind{Standard, Spatial, Logic, Causal, LanguageKind}

// Experts describes the experts of each block.
type Experts struct {
	Kinds []Kind // in the order above; see [sorted]
	// Choices is the number of experts that a token is sent to, and Capacity the factor of [nn.Router].
	Choices  int
	Capacity float64
	// Relation is the width of pairwise relations.
	Relation int
}

// sorted returns n experts that cycle through the listed kinds, in the order of kinds.
func sorted(kinds []string, n int) []Kind {
	out := make([]Kind, n)
	for i := range out {
		out[i] = Kind(kinds[i%len(kinds)])
	}
	slices.SortStableFunc(out, func(a, b Kind) int { return slices.Index(order, a) - slices.Index(order, b) })
	return out
}

// span returns the range of the experts whose kinds are from first to last.
func (e Experts) span(first, last Kind) (from, to int) {
	lo, hi := slices.Index(order, first), slices.Index(order, last)
	for i, k := range e.Kinds {
		at := slices.Index(order, k)
		if at < lo {
			from = i + 1
		}
		if at <= hi {
			to = i + 1
		}
	}
	return from, max(from, to)
}

// Has reports whether there is an expert of the kind.
func (e Experts) Has(k Kind) bool { return slices.Contains(e.Kinds, k) }

// mixture is one layer of experts under construction.
type mixture struct {
	*forward
	r *nn.Routed
	// rows are the tokens, sorted by expert.
	rows *graph.Value
}

// mixture sends the tokens of h [B, T, D] to their experts and back.
func (p *forward) mixture(h *graph.Value) (y *graph.Value, routed *nn.Routed) {
	p.Scope("experts", func() {
		e := p.Experts
		router := nn.Router{Experts: len(e.Kinds), Choices: e.Choices, Capacity: e.Capacity}
		routed = router.Route(p.Builder, "router", h, graph.XavierUniform(p.D, len(e.Kinds)))
		m := &mixture{forward: p, r: routed}
		m.rows = routed.Rows(p.Builder, p.Reshape(h, p.batch*p.time, p.D))
		y = p.Reshape(routed.Tokens(p.Builder, m.work()), p.batch, p.time, p.D)
	})
	return y, routed
}

// work returns the experts' output for the rows.
func (m *mixture) work() (y *graph.Value) {
	if from, to := m.Experts.span(Standard, Causal); to > from {
		mixed := m.mix()
		in := m.rows
		if mixed != nil {
			in = m.norm("mix_norm", m.Add(m.rows, mixed))
		}
		y = m.GELU(m.linear("up", in, from, to, m.FF, true))
		y = m.linear("down", y, from, to, m.D, true)
		if mixed != nil {
			y = m.Add(mixed, y)
		}
	}
	if from, to := m.Experts.span(LanguageKind, LanguageKind); to > from {
		told := m.tell(from, to)
		if y == nil {
			return told
		}
		y = m.Add(y, told)
	}
	return y
}

// mix returns what experts collect from other tokens, or nil if no expert looks at them.
func (m *mixture) mix() *graph.Value {
	from, to := m.Experts.span(Spatial, Causal)
	if to == from {
		return nil
	}
	in := m.rows
	if from, to := m.Experts.span(Causal, Causal); to > from {
		in = m.Add(in, m.temporal(from, to))
	}
	y := m.attention(in, from, to)
	if from, to := m.Experts.span(Spatial, Spatial); to > from {
		y = m.Add(y, m.distances(from, to))
	}
	if from, to := m.Experts.span(Logic, Causal); to > from {
		y = m.Add(y, m.relations(m.Add(in, y), from, to))
	}
	return y
}

// attention lets each token attend to earlier tokens that were sent to the same expert.
func (m *mixture) attention(rows *graph.Value, from, to int) (y *graph.Value) {
	k := m.r.Choices()
	m.Scope("attention", func() {
		qkv := m.r.Entries(m.Builder, m.linear("query_key_value", rows, from, to, 3*m.D, false))
		part := func(i int, turn bool) *graph.Value {
			// All choices of a token have the same time, so they are rotated alike.
			x := m.Reshape(m.Slice(qkv, 1, i*m.D, m.D), m.batch, m.time, k*m.D)
			if turn && m.table != nil {
				x = m.Builder.Rotary(graph.Rotary{Heads: k * m.Heads, Dims: m.D / m.Heads}, x, m.table)
			}
			return m.Reshape(x, m.batch, m.time*k, m.D)
		}
		op := graph.Attention{Segments: true}
		o := m.attend(op, part(0, true), part(1, true), part(2, false), m.segments())
		y = m.linear("dense", m.r.FromEntries(m.Builder, m.Reshape(o, -1, m.D)), from, to, m.D, false)
	})
	return y
}

// segments returns the expert of each entry, I32 [B, T*K].
func (m *mixture) segments() *graph.Value {
	return m.Reshape(m.r.Choice, m.batch, m.time*m.r.Choices())
}

// temporal returns the learned encoding of each row's time, for the experts from from to to-1.
func (m *mixture) temporal(from, to int) *graph.Value {
	table := nn.Embedding(m.Builder, "temporal", m.MaxPositions, m.D, graph.Normal(0.1))
	k := m.r.Choices()
	times := m.Reshape(m.Slice(table, 0, 0, m.time), 1, m.time, 1, m.D)
	mask := m.Reshape(m.r.Mask(m.Builder, from, to), m.batch, m.time, k, 1)
	return m.r.FromEntries(m.Builder, m.Reshape(m.Mul(times, mask), m.batch*m.time*k, m.D))
}

// relations summarizes each token's relations to the earlier tokens of its expert; see [graph.Relate].
func (m *mixture) relations(rows *graph.Value, from, to int) (y *graph.Value) {
	m.Scope("relation", func() {
		side := func(name string, bias bool) *graph.Value {
			x := m.r.Entries(m.Builder, m.linear(name, rows, from, to, m.Experts.Relation, bias))
			return m.Reshape(x, m.batch, -1, m.Experts.Relation)
		}
		pairs := m.Relate(side("first", true), side("second", false), m.segments(), from, to)
		rows := m.r.FromEntries(m.Builder, m.Reshape(pairs, -1, m.Experts.Relation))
		y = m.linear("dense", rows, from, to, m.D, true)
	})
	return y
}

// distances computes features from the root mean square distance between each token and the tokens of its
// expert up to itself, in a learned space for each head. The mean of |p_i - p_j|^2 over j is |p_i|^2 + mean
// |p_j|^2 - 2 p_i mean p_j, which running sums provide.
func (m *mixture) distances(from, to int) (y *graph.Value) {
	m.Scope("distance", func() {
		all := m.r.Entries(m.Builder, m.linear("project", m.rows, from, to, m.D, false))
		var sum *graph.Value
		for e := from; e < to; e++ {
			mask := m.Reshape(m.r.Mask(m.Builder, e, e+1), m.batch, -1, 1)
			p := m.Mul(m.Reshape(all, m.batch, -1, m.D), mask)
			square := m.Square(p)
			run := nn.CumulativeSum(m.Builder, m.Concat(2, p, square, mask))
			count := m.MaxC(m.Slice(run, 2, 2*m.D, 1), 1)
			mean := m.Div(m.Slice(run, 2, 0, m.D), count)
			meanSquare := m.Div(m.Slice(run, 2, m.D, m.D), count)
			d := m.Sub(m.Add(square, meanSquare), m.MulC(m.Mul(p, mean), 2))
			d = m.Mean(m.Reshape(d, m.batch, -1, m.Heads, m.D/m.Heads), -1)
			// Rounding may turn a distance of 0 negative, and the root needs a finite slope there.
			d = m.Mul(m.Sqrt(m.AddC(m.MaxC(d, 0), 1e-4)), mask)
			if sum == nil {
				sum = d
			} else {
				sum = m.Add(sum, d)
			}
		}
		rows := m.r.FromEntries(m.Builder, m.Reshape(sum, -1, m.Heads))
		y = m.linear("dense", m.GELU(m.linear("up", rows, from, to, m.D, true)), from, to, m.D, true)
	})
	return y
}

// tell gates the language model's states at each token's position.
func (m *mixture) tell(from, to int) (y *graph.Value) {
	width := m.language.Shape()[1]
	m.Scope("language", func() {
		gate := m.SiLU(m.linear("gate", m.rows, from, to, width, true))
		y = m.linear("dense", m.Mul(gate, m.r.Rows(m.Builder, m.language)), from, to, m.D, true)
	})
	return y
}

// linear is [nn.Routed.Linear] with Glorot's initial weights.
func (m *mixture) linear(name string, rows *graph.Value, from, to, out int, bias bool) *graph.Value {
	init := graph.XavierUniform(rows.Shape()[1], out)
	return m.r.Linear(m.Builder, name, rows, from, to, out, bias, init)
}
