package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/codebook"
)

// stepBatch is an optimizer's step for several parameters, consecutive nodes, that becomes one launch.
type stepBatch struct {
	shared  graph.Op // what they have in common
	grads   graph.DType
	rounded graph.DType // format of the weights that are rounded too; Invalid if none is so far
	scalars []*graph.Value
	nodes   []*graph.Node
	table   params
	blocks  int
	halves  int // blocks that round weights too
}

// optimizerStep says how a kernel of an optimizer is launched.
type optimizerStep struct {
	kernel      string
	elems       int // elements per block
	decay, rate float64
	round       graph.Rounding
	hyper       func(l *lowering, p *params) // hyperparameters, after the scalars
	zero        bool
	random      bool // random bits are drawn
}

// nowhere stands in a table for the place of a weight in 16 bits that there is not.
const nowhere = 0

// rounds reports whether the kernel of a step can leave the weight in 16 bits too, and in which
// format this one does, or Invalid.
func rounds(op graph.Op) (can bool, to graph.DType) {
	a, ok := op.(graph.AdamW)
	return ok && a.Round.Mode == graph.Exact, a.Rounded
}

// drawn appends what the random bits of a parameter depend on.
func (s *optimizerStep) drawn(table *params) {
	if s.random {
		table.u32(int(s.round.Stream), int(s.round.First/8))
	}
	table.align(8)
}

// roundings are the suffixes of kernels' names for the ways of rounding weights.
var roundings = [...]string{graph.Exact: "", graph.Stochastic: "_stochastic", graph.Compensated: "_compensated"}

// ofGradient is the suffix of kernels' names for a format of gradients.
func ofGradient(d graph.DType) string {
	if d == graph.BF16 {
		return "_bf16"
	}
	return ""
}

func stepOf(op graph.Op) optimizerStep {
	switch op := op.(type) {
	case graph.AdamW:
		return optimizerStep{"adamw", 1024, op.WeightDecay, op.LRScale, op.Round, func(_ *lowering, p *params) { adamHyper(p, op.Beta1, op.Beta2, op.Eps) }, op.ZeroGrad, op.Round.Mode == graph.Stochastic}
	case graph.AdamW8bit:
		return optimizerStep{"adamw8bit", 8 * graph.MomentBlock, op.WeightDecay, op.LRScale, op.Round, func(l *lowering, p *params) {
			adamHyper(p, op.Beta1, op.Beta2, op.Eps)
			p.ptr(l.moments())
		}, op.ZeroGrad, true}
	case graph.Lion:
		return optimizerStep{"lion", 1024, op.WeightDecay, op.LRScale, op.Round, func(_ *lowering, p *params) { p.f32(op.Beta1, op.Beta2, 1-op.Beta1, 1-op.Beta2) }, op.ZeroGrad, op.Round.Mode == graph.Stochastic}
	case graph.SGD:
		return optimizerStep{"sgd", 1024, op.WeightDecay, op.LRScale, op.Round, func(*lowering, *params) {}, op.ZeroGrad, op.Round.Mode == graph.Stochastic}
	}
	panic(fmt.Sprintf("cuda: no kernel for a step of %s", op.Name()))
}

func adamHyper(p *params, beta1, beta2, eps float64) {
	p.f32(beta1, beta2, 1-beta1, 1-beta2, math.Log(beta1), math.Log(beta2), eps)
}

// moments is where the program's codebooks are in its tables.
func (c *code) moments() address {
	if c.books == nil {
		at := c.table(books())
		c.books = &at
	}
	return *c.books
}

// bookBytes is the size of books.
const bookBytes = 2 * 2 * 256 * 4

// books are the values of the signed and the unsigned codes, with the upper bound of each code.
var books = sync.OnceValue(func() *params {
	p := new(params)
	for _, b := range []*codebook.Book{&codebook.Signed.Book, &codebook.Unsigned.Book} {
		for _, list := range [][256]float32{b.Values, b.Above} {
			for _, x := range list {
				p.f32(float64(x))
			}
		}
	}
	return p
})

// step adds a parameter to the batch that earlier nodes began, or begins another.
func (l *lowering) step(n *graph.Node, op graph.Optimizer) {
	s := stepOf(op)
	scalars := n.In[2+op.States():]
	grads := n.In[1].DType()
	canRound, to := rounds(op)
	if b := l.steps; b == nil || b.shared != op.Shared() || b.grads != grads || !slices.Equal(b.scalars, scalars) ||
		to != graph.Invalid && b.rounded != graph.Invalid && to != b.rounded {
		l.flush()
		l.steps = &stepBatch{shared: op.Shared(), grads: grads, scalars: scalars}
	}
	b := l.steps
	b.nodes = append(b.nodes, n)
	for _, v := range n.In[:2+op.States()] {
		b.table.ptr(l.at(v))
	}
	elems := n.In[0].Shape().Elems()
	blocks := int(ceil(elems, int64(s.elems)))
	switch {
	case to != graph.Invalid:
		b.rounded = to
		b.halves += blocks
	case canRound:
		b.table.u64(nowhere)
	}
	b.table.u64(uint64(elems)).u32(b.blocks).f32(s.decay, s.rate)
	s.drawn(&b.table)
	b.blocks += blocks
}

// flush launches the pending batch, if any.
func (l *lowering) flush() {
	b := l.steps
	if b == nil {
		return
	}
	l.steps = nil
	s := stepOf(b.shared)
	p := new(params).ptr(l.table(&b.table)).u32(len(b.nodes))
	for _, v := range b.scalars {
		p.ptr(l.at(v))
	}
	s.hyper(l, p)
	p.u32(flag(s.zero))
	if s.random {
		p.u64(s.round.Seed)
	}
	if can, _ := rounds(b.shared); can {
		p.u32(flag(b.rounded == graph.BF16))
	}
	l.n = b.nodes[0]
	x := l.run(s.kernel+roundings[s.round.Mode]+ofGradient(b.grads), b.blocks, 256, p)
	x.does("block", b.blocks).does("look", b.blocks*bits.Len(uint(len(b.nodes)-1)))
	if s.zero {
		x.does("clear", b.blocks)
	}
	if b.halves > 0 {
		x.does("round", b.halves)
	}
	for _, n := range b.nodes {
		x.moves(int64(n.Cost().Bytes))
	}
	x.also = b.nodes[1:]
}

func (l *lowering) globalNorm(n *graph.Node) {
	const part = 16384 // elements per block
	type sum struct {
		kernel        string
		table         params
		count, blocks int
		lines         int
	}
	sums, all := []sum{{kernel: "sum_squares"}, {kernel: "sum_squares_bf16"}}, 0
	for _, v := range n.In {
		k := &sums[0]
		if v.DType() == graph.BF16 {
			k = &sums[1]
		}
		elems := v.Shape().Elems()
		k.table.ptr(l.at(v)).u64(uint64(elems)).u32(k.blocks).align(8)
		blocks := int(ceil(elems, part))
		k.count, k.blocks, all = k.count+1, k.blocks+blocks, all+blocks
		k.lines += warps(int(elems))
	}
	partial, before := l.take(8*int64(all)), int64(0)
	for _, k := range sums {
		if k.count > 0 {
			l.run(k.kernel, k.blocks, 256, new(params).ptr(l.table(&k.table)).u32(k.count).ptr(partial.plus(8*before))).
				does("block", k.blocks).does("line", k.lines).does("look", k.blocks*bits.Len(uint(k.count-1)))
		}
		before += int64(k.blocks)
	}
	l.rootOfSum(partial, l.at(n.Out[0]), all)
}

// rootOfSum launches the kernel that adds up partial sums of squares and takes the root.
func (l *lowering) rootOfSum(partial, out address, parts int) {
	l.run("root_of_sum", 1, 256, new(params).ptr(partial).ptr(out).u32(parts)).does("block", 1).does("line", warps(parts))
}
