package pass_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// unit is the training step of the model as passes see it. Every other
// gradient accumulates; the rest go to the optimizer, or without one to outputs.
func (m randomModel) unit(optimizer bool) *pass.Unit {
	b := graph.NewBuilder("step")
	m.train = true
	o := m.build(b)
	b.Output("loss", o.Sum)
	b.F.Outputs = append(b.F.Outputs, o.Outputs...)
	return &pass.Unit{F: b.F, Loss: "loss", Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
		one, lr := b.Scalar(1), b.Scalar(.01)
		for i, w := range params {
			switch {
			case grads[i] == nil:
			case i%2 == 0:
				b.Accumulate(b.State(&graph.State{Name: "gradient." + w.Name, Type: w.Type, Role: graph.Gradient}), grads[i])
			case optimizer:
				m := b.State(&graph.State{Name: "m." + w.Name, Type: w.Type, Role: graph.Moment})
				v := b.State(&graph.State{Name: "v." + w.Name, Type: w.Type, Role: graph.Moment})
				b.Emit(graph.AdamW{Beta1: .9, Beta2: .99, Eps: 1e-8, LRScale: 1}, w, grads[i], m, v, lr, one, one, one)
			default:
				b.Output("gradient."+w.Name, b.MulC(grads[i], 2))
			}
		}
	}}
}

// shuffled is f in a random order that keeps every dependency: operands come
// first, and what reads a version of a state comes before what overwrites it.
func shuffled(f *graph.Func, rng *rand.Rand) *graph.Func {
	waits := map[*graph.Node]int{}
	wakes := map[*graph.Node][]*graph.Node{}
	edge := func(a, b *graph.Node) {
		if a != nil && a != b {
			waits[b]++
			wakes[a] = append(wakes[a], b)
		}
	}
	readers := map[*graph.Value][]*graph.Node{} // of storage
	for _, n := range f.Nodes {
		for _, v := range n.In {
			edge(v.Node, n)
			readers[graph.Storage(v)] = append(readers[graph.Storage(v)], n)
		}
	}
	for _, n := range f.Nodes {
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			for _, r := range readers[graph.Storage(n.In[a.In])] {
				edge(r, n)
			}
		}
	}
	g := *f
	g.Nodes = nil
	var ready []*graph.Node
	for _, n := range f.Nodes {
		if waits[n] == 0 {
			ready = append(ready, n)
		}
	}
	for len(ready) > 0 {
		i := rng.IntN(len(ready))
		n := ready[i]
		ready[i] = ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		g.Nodes = append(g.Nodes, n)
		for _, m := range wakes[n] {
			if waits[m]--; waits[m] == 0 {
				ready = append(ready, m)
			}
		}
	}
	return &g
}

// differentiated returns u with both halves, after the passes that decide what is
// computed rather than how.
func differentiated(t *rapid.T, u *pass.Unit) *pass.Unit {
	if err := pass.Run(u, pass.Options{Stop: "tidy", Verify: true}); err != nil {
		t.Fatal(err)
	}
	return u
}

// forward compiles f without the passes named, and runs it.
func forward(t *rapid.T, f *graph.Func, skip ...string) *run {
	return forwardOn(t, backend.CPU(1), engine.CompileOptions{Skip: without(skip...)}, f)
}

func forwardOn(t *rapid.T, b engine.Backend, o engine.CompileOptions, f *graph.Func) *run {
	o.Verify = true
	p, err := engine.CompileForward(o, f)
	if err != nil {
		t.Fatal(err)
	}
	checkPlacement(t, p.Funcs[0])
	r, err := executeOn(b, p, f.Name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// In whatever order a program is written, it computes the same bits.
func TestAnyOrderOfWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		u := differentiated(t, m.unit(true))
		compiled := func(f *graph.Func, skip ...string) *run { return forward(t, f, append(skip, "accumulate")...) }
		want := compiled(u.F, "fuse", "order")
		g := shuffled(u.F, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)))
		if len(g.Nodes) != len(u.F.Nodes) {
			t.Fatalf("%d of %d nodes can be ordered", len(g.Nodes), len(u.F.Nodes))
		}
		compiled(g, "fuse", "order").equal(t, want, "shuffled")
		compiled(g).equal(t, want, "shuffled, fused and ordered")
	})
}

// The forward half alone compiles to the same bits too.
func TestForwardOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		low := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(t, "low")
		var want *run
		for _, skip := range [][]string{{"simplify", "tidy", "fuse", "order"}, {}} {
			p, err := engine.CompileForward(engine.CompileOptions{ComputeDType: low, Verify: true, Skip: without(skip...)}, m.forward())
			if err != nil {
				t.Fatal(err)
			}
			checkPlacement(t, p.Funcs[0])
			r, err := execute(p, "forward")
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = r
			}
			r.equal(t, want, "all passes")
		}
	})
}

// gradientBytes is the size of all gradients together.
func gradientBytes(p *engine.Program) (n int64) {
	for _, s := range p.TrainedWeights() {
		n += s.Type.Bytes()
	}
	return n
}

// Without clipping the optimizer follows each gradient at once: the gradients
// of a step are never all alive, as they must be when their norm comes first.
func TestOptimizerFollowsGradients(t *testing.T) {
	s := reference()
	s.model.Layers, s.model.Vocab = 12, 512
	p, clipped := s.compile(t, engine.CompileOptions{Recompute: pass.RecomputeFull})
	s.clip = 0
	_, free := s.compile(t, engine.CompileOptions{Recompute: pass.RecomputeFull})
	all := gradientBytes(p)
	t.Logf("gradients %.1f MB; temporaries with clipping %.1f MB, without %.1f MB", float64(all)/1e6,
		float64(clipped.Placement.Bytes)/1e6, float64(free.Placement.Bytes)/1e6)
	if saved := clipped.Placement.Bytes - free.Placement.Bytes; saved < all/2 {
		t.Errorf("updating each weight at once saves %d bytes, the gradients take %d", saved, all)
	}
	// Each large update runs before the second matmul after it writes its result.
	made := map[*graph.Node]int{}
	products := 0
	for _, n := range free.F.Nodes {
		made[n] = products
		switch n.Op.(type) {
		case graph.MatMul:
			products++
		case graph.AdamW:
			g := graph.Storage(n.In[1]).Node
			if late := products - made[g]; late > 2 && n.Out[0].Shape().Elems() > 1000 {
				t.Errorf("%s is updated %d matmuls after its gradient is known", n.In[0].Name, late)
			}
		}
	}
}

// With several micro-batches no gradient has memory of its own.
func TestAccumulatedGradientsTakeNothing(t *testing.T) {
	for _, tied := range []bool{false, true} {
		s := reference()
		s.model.Tied, s.acc = tied, 2
		_, f := s.compile(t, engine.CompileOptions{})
		for _, n := range f.F.Nodes {
			if op, ok := n.Op.(graph.Assign); ok && op.Add && n.In[1].Type.Bytes() > 1<<16 {
				t.Errorf("tied %v: the gradient of %s, %v, is computed and then added", tied, n.In[0].Name, n.In[1].Type)
			}
		}
		// With one, a table that is used twice has one gradient in memory.
		s.acc = 1
		_, f = s.compile(t, engine.CompileOptions{})
		table := graph.T(graph.F32, s.model.Vocab, s.model.D)
		places := map[int64]bool{}
		for _, n := range f.F.Nodes {
			for _, v := range n.Out {
				if off := f.Placement.Offset[v.ID]; off >= 0 && v.Type.Equal(table) {
					places[off] = true
				}
			}
		}
		if want := map[bool]int{false: 2, true: 1}[tied]; len(places) != want {
			t.Errorf("tied %v: %d tensors of the table's size in memory, want %d", tied, len(places), want)
		}
	}
}
