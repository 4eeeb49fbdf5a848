package cpu

import (
	"github.com/snug-ml/snug/engine/cpu/attention"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// headView is an operand of attention before its address is known.
type headView struct {
	ref
	view attention.View
}

func (v headView) at() attention.View {
	v.view.Data = v.ptr()
	return v.view
}

// heads returns x [B, T, ...] as heads that start at first, stride elements apart.
func (c *compiler) heads(x *graph.Value, first, stride int) headView {
	r := c.ref(x)
	r.off += uintptr(int64(first) * x.DType().Size())
	s := x.Shape()
	return headView{r, attention.View{Type: gemmType(x.DType()), Batch: s[1] * s[2], Row: s[2], Head: stride}}
}

// qkv returns queries, keys and values (or their gradients) among the operands vs.
func (c *compiler) qkv(op graph.Attention, vs []*graph.Value, k int) [3]headView {
	var v [3]headView
	for i := range v {
		switch op.Layout {
		case graph.PackedHeads:
			v[i] = c.heads(vs[0], i*k, 3*k)
		case graph.PackedQKV:
			v[i] = c.heads(vs[0], i*op.Heads*k, k)
		default:
			v[i] = c.heads(vs[i], 0, k)
		}
	}
	return v
}

// attentionCall is one attention with its operands.
type attentionCall struct {
	plan           *attention.Plan
	qkv, grads     [3]headView
	o, do          headView
	lse            ref
	lens, segments ref
	drop           *attentionDropout
}

// attentionDropout implements attention.Dropout with the engine's random numbers.
type attentionDropout struct {
	op      graph.Attention
	counter ref
}

// Keep implements attention.Dropout.
func (d *attentionDropout) Keep(first uint64, out []float32) {
	simd.DropoutMask(out, d.op.Seed, randomStream(d.op.Stream, d.counter), first, float32(1-d.op.Drop))
}

func (c *compiler) attentionCall(op graph.Attention, in []*graph.Value, o, lse *graph.Value) *attentionCall {
	types := make([]graph.Type, len(in))
	for i, v := range in {
		types[i] = v.Type
	}
	batch, tq, tk, k := op.Geometry(types)
	t := gemmType(in[0].DType())
	a := &attentionCall{
		plan: attention.NewPlan(attention.Config{
			Batch: batch, Heads: op.Heads, KVHeads: op.Groups(), Tq: tq, Tk: tk, Size: k, Scale: float32(op.Scale), Causal: op.Causal,
			Type: t, Compute: t, ISA: matmulISA, Workers: c.workers,
		}),
		qkv: c.qkv(op, in, k), o: c.heads(o, 0, k), lse: c.ref(lse),
	}
	lens, segments, rng := op.Optional()
	if lens >= 0 {
		a.lens = c.ref(in[lens])
	}
	if segments >= 0 {
		a.segments = c.ref(in[segments])
	}
	if rng >= 0 {
		a.drop = &attentionDropout{op, c.ref(in[rng])}
	}
	return a
}

// args are the operands of the forward half.
func (a *attentionCall) args() attention.Args {
	args := attention.Args{Q: a.qkv[0].at(), K: a.qkv[1].at(), V: a.qkv[2].at(), O: a.o.at(), LSE: a.lse.f32()}
	if a.lens.n > 0 {
		args.KeyLengths = a.lens.i32()
	}
	if a.segments.n > 0 {
		args.SegmentsQ, args.SegmentsK = a.segments.i32(), a.segments.i32()
	}
	if a.drop != nil {
		args.Dropout = a.drop
	}
	return args
}

func (c *compiler) attention(n *graph.Node, op graph.Attention) ([]phase, error) {
	a := c.attentionCall(op, n.In, n.Out[0], n.Out[1])
	c.need(0, a.plan.ForwardBytes())
	code := c.code
	return []phase{{a.plan.ForwardTasks(), func(task, w int) {
		args := a.args()
		a.plan.Forward(task, &args, code.worker(w))
	}}}, nil
}

func (c *compiler) attentionGrad(n *graph.Node, og graph.AttentionGrad) ([]phase, error) {
	op := graph.Attention(og)
	a := c.attentionCall(op, n.In[3:], n.In[1], n.In[2])
	k := n.In[0].Shape()[2] / op.Heads
	a.do, a.grads = c.heads(n.In[0], 0, k), c.qkv(op, n.Out, k)
	c.need(0, a.plan.BackwardBytes())
	code := c.code
	return []phase{{a.plan.BackwardTasks(), func(task, w int) {
		args := a.args()
		args.DO, args.DQ, args.DK, args.DV = a.do.at(), a.grads[0].at(), a.grads[1].at(), a.grads[2].at()
		a.plan.Backward(task, &args, code.worker(w))
	}}}, nil
}
