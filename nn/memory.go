package nn

import "github.com/snug-ml/snug/engine/graph"

// Memory adds to each token what it reads from three memories:
//
//   - working memory, a running mean of the sample's states so far whose rate
//     is learned for each channel and decided by each token;
//   - a bank of Slots learned vectors that all samples read: what lasts from one
//     update to the next are weights;
//   - what was written: every Segment tokens a writer summarizes the segment in Writes
//     vectors, and later segments of the same sample read them.
//
// Each is read through a gate. Writer and readers are one differentiable function, so the
// writer learns from how later tokens use its writing. Nothing outlives the function: no
// sample sees another, no update the previous one, and a token sees only earlier ones.
type Memory struct {
	Slots, Segment, Writes int
	Heads                  int // of the reads
	Eps                    float64
}

// Remembered is what a memory read and wrote.
type Remembered struct {
	// Working, Bank and Written F32 [B*T] are the gates of the reads, in (0, 1).
	Working, Bank, Written *graph.Value
	// Strength F32 [...] are the gates of the writes; nil if nothing was written.
	Strength *graph.Value
}

// Read adds the memory to x [B, T, D].
func (m Memory) Read(b *graph.Builder, x *graph.Value) (*graph.Value, Remembered) {
	var r Remembered
	d := x.Shape()[2]
	h := LayerNorm(b, "norm", x, m.Eps)
	parts := []*graph.Value{h}
	read := func(name string, v *graph.Value) *graph.Value {
		gate := b.Sigmoid(linear(b, name+".gate", b.Concat(2, h, v), 1))
		parts = append(parts, b.Mul(v, gate))
		return b.Reshape(gate, -1)
	}
	r.Working = read("working", m.working(b, h))
	r.Bank = read("bank", m.bank(b, h))
	written, strength := m.written(b, h)
	r.Written, r.Strength = read("written", written), strength
	y := b.GELU(linear(b, "fuse", b.Concat(2, parts...), d))
	return b.Add(x, linear(b, "dense", y, d)), r
}

// linear is [Linear] with bias and Glorot's initial weights.
func linear(b *graph.Builder, name string, x *graph.Value, out int) *graph.Value {
	return Linear(b, name, x, out, true, graph.XavierUniform(x.Shape().Last(), out))
}

func (m Memory) working(b *graph.Builder, h *graph.Value) (y *graph.Value) {
	b.Scope("working", func() {
		write := b.Sigmoid(linear(b, "write", h, 1))
		// Initially, means over 1.6 to 150 steps.
		rate := b.Param("log_rate", graph.Init{Kind: graph.InitUniform, A: -5, B: -0.5}, h.Shape()[2])
		y = LeakySum(b, h, b.Mul(write, b.Exp(rate)))
	})
	return y
}

func (m Memory) bank(b *graph.Builder, h *graph.Value) (y *graph.Value) {
	s := h.Shape()
	b.Scope("bank", func() {
		slots := b.Reshape(Table(b, "slots", m.Slots, s[2], graph.Normal(0.5)), 1, m.Slots, s[2])
		y = m.attend(b, b.Reshape(h, 1, s[0]*s[1], s[2]), slots, slots)
	})
	return b.Reshape(y, s...)
}

func (m Memory) attend(b *graph.Builder, q, k, v *graph.Value) *graph.Value {
	return b.Attention(graph.Attention{Heads: m.Heads, Scale: AttentionScale(q.Shape()[2], m.Heads)}, q, k, v)
}

// written reads what the segments before each token's own wrote.
func (m Memory) written(b *graph.Builder, h *graph.Value) (y, strength *graph.Value) {
	s := h.Shape()
	batch, t, d := s[0], s[1], s[2]
	n := (t - 1) / m.Segment // the segments that are followed by tokens
	reads := []*graph.Value{full(b, 0, batch, min(t, m.Segment), d)}
	if n == 0 {
		return reads[0], nil
	}
	b.Scope("written", func() {
		past := b.Slice(h, 1, 0, n*m.Segment)
		weights := b.Reshape(linear(b, "address", past, m.Writes), batch*n, m.Segment, m.Writes)
		weights = b.Softmax(b.Transpose(weights, 0, 2, 1))
		sums := b.MatMul(weights, b.Reshape(past, batch*n, m.Segment, d), false, false)
		sums = b.Reshape(sums, batch, n*m.Writes, d)
		strength = b.Sigmoid(linear(b, "strength", sums, 1))
		values := b.Mul(linear(b, "value", b.GELU(linear(b, "key", sums, d)), d), strength)
		for i := range n {
			from := (i + 1) * m.Segment
			q := b.Slice(h, 1, from, min(m.Segment, t-from))
			known := (i + 1) * m.Writes
			reads = append(reads, m.attend(b, q, b.Slice(sums, 1, 0, known), b.Slice(values, 1, 0, known)))
		}
	})
	return b.Concat(1, reads...), b.Reshape(strength, -1)
}
