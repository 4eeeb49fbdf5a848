package graph

import (
	"fmt"
	"math"
)

// Layout is how queries, keys and values are stored.
type Layout uint8

// The layouts. H heads of size K.
const (
	// Separate: three operands q [B,Tq,H*K], k and v [B,Tk,G*K] of G heads, H or fewer.
	Separate Layout = iota
	// PackedHeads: one operand [B,T,H*3*K], for each head its q, k and v (GPT-NeoX).
	PackedHeads
	// PackedQKV: one operand [B,T,3*H*K], all q, then all k, then all v (GPT-2).
	PackedQKV
)

func (l Layout) String() string {
	return [...]string{"separate", "packed_heads", "packed_qkv"}[l]
}

// Attention is softmax(Scale q k^T + mask) v per head, computed over tiles so
// that no [Tq, Tk] tensor is kept (Dao et al. 2022). Results: o [B,Tq,H*K] and
// the F32 log-sum-exp of the scores [B,H,Tq] that the gradient needs.
//
// Operands after q, k, v (or the packed one), in this order where enabled: Lens I32 [B],
// which masks keys at or beyond it; Segments I32 [B,T], a key is seen only from its own
// segment (Tq = Tk); RNG I32 [2], the run counter, when Drop > 0. With len the number of
// valid keys (Tk without Lens), Causal lets query i see keys j <= i + max(len-Tq, 0): the
// queries are the last Tq of a cache's len positions, or the rows of a batch padded at
// the end (len <= Tq). A row that sees nothing gives 0 and a log-sum-exp of -Inf.
type Attention struct {
	Heads int
	// KVHeads, in the Separate layout, is the number G of heads of keys and values;
	// 0: Heads. Query head h reads head h/(H/G) (grouped queries, Ainslie et al. 2023).
	KVHeads  int
	Causal   bool
	Scale    float64
	Layout   Layout
	Lens     bool
	Segments bool
	// Drop is the probability with which a softmax weight is zeroed (the rest
	// is scaled by 1/(1-Drop)); Seed and Stream select its random numbers. The
	// weight of key j for query i of head h in row b is element
	// ((b*H+h)*Tq+i)*Tk+j as in [Dropout].
	Drop   float64
	Seed   uint64
	Stream uint32
}

// Name is "attention".
func (Attention) Name() string { return "attention" }

// Arity is the number of query, key and value operands: 1 or 3.
func (a Attention) Arity() int {
	if a.Layout == Separate {
		return 3
	}
	return 1
}

// Optional returns the operand indexes of lens, segments and rng, -1 where absent.
func (a Attention) Optional() (lens, segments, rng int) {
	at := a.Arity()
	next := func(on bool) int {
		if !on {
			return -1
		}
		at++
		return at - 1
	}
	return next(a.Lens), next(a.Segments), next(a.Drop > 0)
}

// Groups is the number of heads of keys and values.
func (a Attention) Groups() int {
	if a.KVHeads > 0 {
		return a.KVHeads
	}
	return a.Heads
}

// Geometry is B, Tq, Tk and the head size K.
func (a Attention) Geometry(in []Type) (batch, tq, tk, k int) {
	s := in[0].Shape
	batch, tq = s[0], s[1]
	if a.Layout == Separate {
		return batch, tq, in[1].Shape[1], s[2] / a.Heads
	}
	return batch, tq, tq, s[2] / 3 / a.Heads
}

// Infer checks the operands.
func (a Attention) Infer(in []Type) ([]Type, error) {
	lens, segments, rng := a.Optional()
	want := max(a.Arity(), lens+1, segments+1, rng+1)
	if len(in) != want || len(in[0].Shape) != 3 {
		return nil, fmt.Errorf("wants %d operands, the first of rank 3; got %v", want, in)
	}
	if a.Drop < 0 || a.Drop >= 1 {
		return nil, fmt.Errorf("drops with probability %v, want [0, 1)", a.Drop)
	}
	if err := reals(in[:a.Arity()]...); err != nil {
		return nil, err
	}
	width := in[0].Shape[2]
	if a.Layout != Separate {
		if width%3 != 0 {
			return nil, fmt.Errorf("packed width %d is not a multiple of 3", width)
		}
		width /= 3
	} else {
		q, k, v := in[0].Shape, in[1].Shape, in[2].Shape
		if len(k) != 3 || !k.Equal(v) || k[0] != q[0] || k[2]*a.Heads != q[2]*a.Groups() {
			return nil, fmt.Errorf("q %v, k %v and v %v do not fit", q, k, v)
		}
	}
	if a.Heads < 1 || width%a.Heads != 0 {
		return nil, fmt.Errorf("width %d does not divide into %d heads", width, a.Heads)
	}
	if a.KVHeads < 0 || a.Heads%a.Groups() != 0 || a.Groups() != a.Heads && a.Layout != Separate {
		return nil, fmt.Errorf("%d heads of queries cannot share %d of keys and values in layout %v", a.Heads, a.KVHeads, a.Layout)
	}
	batch, tq, tk, _ := a.Geometry(in)
	if lens >= 0 && !in[lens].Equal(T(I32, batch)) {
		return nil, fmt.Errorf("lens is %v, want i32[%d]", in[lens], batch)
	}
	if segments >= 0 && (tq != tk || !in[segments].Equal(T(I32, batch, tq))) {
		return nil, fmt.Errorf("segments is %v, want i32[%d,%d] with as many queries as keys", in[segments], batch, tq)
	}
	if rng >= 0 && !in[rng].Equal(T(I32, 2)) {
		return nil, fmt.Errorf("the run counter is %v, want i32[2]", in[rng])
	}
	return []Type{{in[0].DType, Shape{batch, tq, width}}, T(F32, batch, a.Heads, tq)}, nil
}

// Grad recomputes the weights tile by tile from the log-sum-exp.
func (a Attention) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	onlyFirst(b, a, dout)
	in := append([]*Value{dout[0], n.Out[0], n.Out[1]}, n.In...)
	return append(b.Emit(AttentionGrad(a), in...), make([]*Value, len(n.In)-a.Arity())...)
}

// flops of one matmul over all visible (query, key) pairs.
func (a Attention) product(in []Type) float64 {
	batch, tq, tk, k := a.Geometry(in)
	f := 2 * float64(batch) * float64(a.Heads) * float64(tq) * float64(tk) * float64(k)
	if a.Causal && tq == tk {
		f /= 2
	}
	return f
}

// Cost is two matmuls; the masked half is not computed.
func (a Attention) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.MatrixFLOPs = 2 * a.product(in)
	c.FLOPs = c.MatrixFLOPs
	return c
}

// Autocast multiplies in the 16-bit format.
func (a Attention) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	for i := range a.Arity() {
		want[i] = compute
	}
	return want, a
}

// AttentionGrad is the gradient of Attention. Operands: do, o, lse, then those
// of Attention. Results: the gradients of q, k, v or of the packed operand.
type AttentionGrad Attention

// Name is "attention_grad".
func (AttentionGrad) Name() string { return "attention_grad" }

// Infer returns the types of the operands that get a gradient.
func (a AttentionGrad) Infer(in []Type) ([]Type, error) {
	if len(in) < 4 {
		return nil, fmt.Errorf("wants do, o, lse and the operands of attention, got %v", in)
	}
	out, err := Attention(a).Infer(in[3:])
	if err != nil {
		return nil, err
	}
	if !in[0].Shape.Equal(out[0].Shape) || !in[1].Shape.Equal(out[0].Shape) || !in[2].Equal(out[1]) {
		return nil, fmt.Errorf("do, o and lse are %v, want the shapes of %v, %v and %v", in[:3], out[0], out[0], out[1])
	}
	return append([]Type(nil), in[3:3+Attention(a).Arity()]...), nil
}

// Grad: second derivatives are not provided.
func (a AttentionGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, a) }

// Cost is five matmuls.
func (a AttentionGrad) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.MatrixFLOPs = 5 * Attention(a).product(in[3:])
	c.FLOPs = c.MatrixFLOPs
	return c
}

// Autocast multiplies in the 16-bit format; the log-sum-exp stays F32.
func (a AttentionGrad) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	want[0], want[1] = compute, compute
	for i := range Attention(a).Arity() {
		want[3+i] = compute
	}
	return want, a
}

// Attention of q, k, v (or one packed operand) and the optional operands of op.
func (b *Builder) Attention(op Attention, in ...*Value) *Value { return b.emit1(op, in...) }

// RotaryTable is the F32 table [T, Dims] of cos (first half) and sin (second
// half) of t * Base^(-2i/Dims), i < Dims/2 (Su et al. 2021), the frequencies
// changed by Scaling. Devices may round the frequency and the angle to F32, as the
// implementations do that published weights were trained with.
type RotaryTable struct {
	T, Dims int
	Base    float64
	Scaling RotaryScaling
}

// RotaryScaling stretches the angles of a [RotaryTable], so that a model reads longer
// texts than it was trained on at first: frequency f of pair i becomes
//
//	f * (keep + (1-keep)/Factor), keep = Offset + PerPair*i + PerFrequency*f within [0, 1],
//
// and cos and sin are multiplied by Magnitude. The zero value changes nothing.
type RotaryScaling struct {
	Factor                        float64 // 0: 1
	Offset, PerPair, PerFrequency float64
	Magnitude                     float64 // 0: 1
}

// Full is the scaling with every default filled in.
func (s RotaryScaling) Full() RotaryScaling {
	if s.Factor == 0 {
		s = RotaryScaling{Factor: 1, Offset: 1, Magnitude: s.Magnitude}
	}
	if s.Magnitude == 0 {
		s.Magnitude = 1
	}
	return s
}

// Scale is the factor of frequency f of pair i.
func (s RotaryScaling) Scale(i int, f float64) float64 {
	keep := min(1, max(0, s.Offset+s.PerPair*float64(i)+s.PerFrequency*f))
	return keep + (1-keep)/s.Factor
}

// Row writes row t.
func (r RotaryTable) Row(row []float32, t int) {
	half, scaling := r.Dims/2, r.Scaling.Full()
	for i := range half {
		// The reference implementations hold the frequency in float32.
		freq := 1 / math.Pow(r.Base, float64(2*i)/float64(r.Dims))
		angle := float32(t) * float32(freq*scaling.Scale(i, freq))
		sin, cos := math.Sincos(float64(angle))
		row[i], row[half+i] = float32(cos*scaling.Magnitude), float32(sin*scaling.Magnitude)
	}
}

// Name is "rotary_table".
func (RotaryTable) Name() string { return "rotary_table" }

// Infer returns [T, Dims].
func (r RotaryTable) Infer(in []Type) ([]Type, error) {
	if err := want(in, 0); err != nil {
		return nil, err
	}
	if r.T < 1 || r.Dims < 2 || r.Dims%2 != 0 {
		return nil, fmt.Errorf("rotates pairs of dimensions at each position, got %d dimensions and %d positions", r.Dims, r.T)
	}
	if s := r.Scaling; s.Factor < 0 || s.Magnitude < 0 {
		return nil, fmt.Errorf("scales frequencies by 1/%v and their functions by %v, want neither below 0", s.Factor, s.Magnitude)
	}
	return []Type{T(F32, r.T, r.Dims)}, nil
}

// Grad: no operands.
func (RotaryTable) Grad(*Builder, *Node, []*Value) []*Value { return nil }

// Cost is one write.
func (RotaryTable) Cost(in, out []Type) Cost { return traffic(in, out, 30) }

// Rotary rotates the first Dims elements of each query and key head by the angle of its
// position: pairs (i, i+Dims/2) as in GPT-NeoX. Operands: x, the [RotaryTable], and with
// Offset an I32 [B], the position of each row's first query. x is packed as in Layout, or
// with Separate it is q or k alone, [B,T,H*K]. With Inverse it rotates back, which is
// also the gradient.
type Rotary struct {
	Heads, Dims int
	Layout      Layout
	Offset      bool
	Inverse     bool
}

// Name is "rotary".
func (Rotary) Name() string { return "rotary" }

// HeadSize is K.
func (r Rotary) HeadSize(in []Type) int {
	k := in[0].Shape.Last() / r.Heads
	if r.Layout != Separate {
		k /= 3
	}
	return k
}

// Infer keeps the type.
func (r Rotary) Infer(in []Type) ([]Type, error) {
	n := 2
	if r.Offset {
		n = 3
	}
	if err := want(in, n); err != nil {
		return nil, err
	}
	parts := r.Heads
	if r.Layout != Separate {
		parts *= 3
	}
	if r.Heads < 1 || len(in[0].Shape) != 3 || in[0].Shape[2]%parts != 0 || r.HeadSize(in) < r.Dims || len(in[1].Shape) != 2 || in[1].Shape[1] != r.Dims {
		return nil, fmt.Errorf("cannot rotate %d dimensions of %d heads of %v by table %v", r.Dims, r.Heads, in[0], in[1])
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	if err := full(in[1]); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	if in[1].Shape[0] < in[0].Shape[1] {
		return nil, fmt.Errorf("the table has %d positions, x has %d", in[1].Shape[0], in[0].Shape[1])
	}
	if r.Offset && !in[2].Equal(T(I32, in[0].Shape[0])) {
		return nil, fmt.Errorf("the first positions are %v, want i32[%d]", in[2], in[0].Shape[0])
	}
	return []Type{in[0]}, nil
}

// Grad rotates back.
func (r Rotary) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	r.Inverse = !r.Inverse
	in := append([]*Value{dout[0]}, n.In[1:]...)
	return append([]*Value{b.emit1(r, in...)}, make([]*Value, len(n.In)-1)...)
}

// Cost is one pass over memory.
func (Rotary) Cost(in, out []Type) Cost { return traffic(in, out, 2) }

// Autocast rotates in float32; x may have any format.
func (r Rotary) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), r }

// InplaceOperands: the result may overwrite x.
func (Rotary) InplaceOperands(*Node) []int { return []int{0} }

// Rotary rotates x; see [Rotary].
func (b *Builder) Rotary(op Rotary, in ...*Value) *Value { return b.emit1(op, in...) }

// RotaryTable is the table for t positions; see [RotaryTable].
func (b *Builder) RotaryTable(t, dims int, base float64) *Value {
	return b.emit1(RotaryTable{T: t, Dims: dims, Base: base})
}

// CacheWrite copies x [B,Tq,C] into the state cache [B,Tk,C] at rows
// pos[b]..pos[b]+Tq in place. Operands: cache, x, pos I32 [B].
type CacheWrite struct{}

// Name is "cache_write".
func (CacheWrite) Name() string { return "cache_write" }

// Infer keeps the cache's type.
func (CacheWrite) Infer(in []Type) ([]Type, error) {
	if err := want(in, 3); err != nil {
		return nil, err
	}
	c, x := in[0].Shape, in[1].Shape
	if len(c) != 3 || len(x) != 3 || c[0] != x[0] || c[2] != x[2] || c[1] < x[1] || !in[2].Equal(T(I32, c[0])) {
		return nil, fmt.Errorf("cannot write %v into %v at positions %v", in[1], in[0], in[2])
	}
	return []Type{in[0]}, nil
}

// Aliases: the cache is written in place.
func (CacheWrite) Aliases(int) []Alias { return []Alias{{0, 0}} }

// Grad: caches serve generation only.
func (c CacheWrite) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, c) }

// Cost writes the rows.
func (CacheWrite) Cost(in, _ []Type) Cost { return Cost{Bytes: 2 * float64(in[1].Bytes())} }

// Autocast keeps the formats.
func (c CacheWrite) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), c }
