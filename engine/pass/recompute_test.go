package pass_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Whatever is recomputed, nodes that write states run exactly as often as in the source,
// and none is cloned.
func TestEffectsAreNotRepeated(t *testing.T) {
	count := func(f *graph.Func) (effects, clones int) {
		for _, n := range f.Nodes {
			if graph.HasEffect(n.Op, len(n.In)) {
				effects++
			}
			if n.Clone {
				clones++
			}
		}
		return effects, clones
	}
	cloned := 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		u := m.unit(true)
		if err := pass.Run(u, pass.Options{Stop: "tidy"}); err != nil {
			t.Fatal(err)
		}
		want, _ := count(u.F)
		for _, mode := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeFull} {
			u := m.unit(true)
			u.Recompute = mode
			if err := pass.Run(u, pass.Options{Stop: "recompute", Verify: true}); err != nil {
				t.Fatal(err)
			}
			effects, clones := count(u.F)
			if effects != want {
				t.Fatalf("%v: %d nodes write states, %d do without recomputation", mode, effects, want)
			}
			cloned += clones
		}
	})
	if cloned == 0 {
		t.Error("nothing was recomputed")
	}
}

// rebuilt is what a function recomputes: FLOPs of matmuls, and all nodes by name.
func rebuilt(f *graph.Func) (flops float64, ops map[string]int) {
	ops = map[string]int{}
	for _, n := range f.Nodes {
		if n.Clone && !graph.IsView(n.Op) {
			ops[n.Op.Name()]++
			flops += n.Cost().MatrixFLOPs
		}
	}
	return flops, ops
}

// Each recipe drops what it should: elementwise results only, nothing that needs a
// matmul, only the wide ones, a whole block.
func TestRecipes(t *testing.T) {
	s := reference()
	temps := map[pass.Recompute]int64{}
	skip := without("fuse", "accumulate") // so that clones keep their names
	for _, mode := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
		_, f := s.compile(t, engine.CompileOptions{Recompute: mode, Skip: skip, Verify: true})
		temps[mode] = f.Placement.Bytes
		flops, ops := rebuilt(f.F)
		t.Logf("%v: %.1f MB, rebuilds %v", mode, float64(f.Placement.Bytes)/1e6, ops)
		switch mode {
		case pass.RecomputeNone:
			if len(ops) > 0 {
				t.Errorf("none rebuilds %v", ops)
			}
		case pass.RecomputeActivation:
			if ops["gelu"] != s.model.Layers || ops["layer_norm"] > 0 || flops > 0 {
				t.Errorf("activation rebuilds %v", ops)
			}
		case pass.RecomputeSelective:
			if flops > 0 || ops["gelu"] != s.model.Layers || ops["layer_norm"] != 2*s.model.Layers {
				t.Errorf("selective rebuilds %v", ops)
			}
		case pass.RecomputeWide:
			// Queries, keys and values in one, and the first matmul of the feed-forward.
			if ops["attention"] > 0 || ops["matmul"] != 2*s.model.Layers {
				t.Errorf("wide rebuilds %v", ops)
			}
		case pass.RecomputeFull:
			// All matmuls of a block but its last two, whose results only the next block reads.
			if ops["attention"] != s.model.Layers || ops["matmul"] != 2*s.model.Layers {
				t.Errorf("full rebuilds %v", ops)
			}
		}
	}
	if !(temps[pass.RecomputeNone] > temps[pass.RecomputeActivation] && temps[pass.RecomputeActivation] > temps[pass.RecomputeSelective] &&
		temps[pass.RecomputeSelective] > temps[pass.RecomputeWide] && temps[pass.RecomputeWide] > temps[pass.RecomputeFull]) {
		t.Errorf("temporaries do not fall from recipe to recipe: %v", temps)
	}
}

// Auto fits every budget that some recipe fits, with the least recomputation that does,
// and follows the prices it is given.
func TestAutoFitsForLeast(t *testing.T) {
	for _, on := range []*engine.Traits{&engine.CPU, &engine.CUDA} {
		t.Run(on.Name, func(t *testing.T) { autoFitsForLeast(t, on) })
	}
}

func autoFitsForLeast(t *testing.T, on *engine.Traits) {
	s := reference()
	at := func(o engine.CompileOptions) (int64, float64, *engine.Func) {
		o.Traits = on
		_, f := s.compile(t, o)
		flops, _ := rebuilt(f.F)
		return f.Placement.Bytes, flops, f
	}
	most, _, _ := at(engine.CompileOptions{})
	least, all, _ := at(engine.CompileOptions{Recompute: pass.RecomputeFull})
	selective, _, _ := at(engine.CompileOptions{Recompute: pass.RecomputeSelective})
	before := all + 1
	for i := range 9 {
		budget := least + (most-least)*int64(i)/8
		bytes, flops, f := at(engine.CompileOptions{Recompute: pass.RecomputeAuto, Budget: budget})
		t.Logf("budget %.1f MB: %.1f MB, %.2f GFLOP again, %v", float64(budget)/1e6, float64(bytes)/1e6, flops/1e9, f.Blocks[1:])
		if bytes > budget {
			t.Errorf("budget %d: takes %d", budget, bytes)
		}
		if flops > before {
			t.Errorf("budget %d: repeats %.3g FLOPs, a smaller budget %.3g", budget, flops, before)
		}
		before = flops
		if budget >= selective && flops > 0 {
			t.Errorf("budget %d: repeats matmuls, selective recomputation alone takes %d", budget, selective)
		}
	}
	if before > 0 {
		t.Errorf("the largest budget repeats %.3g FLOPs", before)
	}
}

// Auto gives up where all that fits is slower than its rival, and otherwise chooses as if there was none.
func TestAutoGivesUp(t *testing.T) {
	s := reference()
	compile := func(budget int64, rival *pass.Rival) (*engine.Program, error) {
		o := engine.CompileOptions{Recompute: pass.RecomputeAuto, Budget: budget}
		if rival != nil {
			o.Rival = func(string) *pass.Rival { return rival }
		}
		return engine.CompileTraining(s.training(), o)
	}
	whole, err := engine.CompileTraining(s.training(), engine.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	most := whole.Layout.Temps.Bytes
	allows := func(flops float64) *pass.Rival {
		return &pass.Rival{Spare: flops, Slower: func(f *graph.Func) float64 {
			again, _ := rebuilt(f)
			return again - flops
		}}
	}
	want, err := compile(most*3/4, nil)
	if err != nil {
		t.Fatal(err)
	}
	takes, _ := rebuilt(want.Funcs[0].F)
	if takes == 0 {
		t.Fatal("nothing is repeated")
	}
	for _, c := range []struct {
		budget int64
		flops  float64
		lost   bool
	}{{most * 3 / 4, 0, true}, {most * 3 / 4, takes / 100, true}, {most * 3 / 4, takes, false}, {most * 3 / 4, 2 * takes, false}, {most, 0, false}} {
		p, err := compile(c.budget, allows(c.flops))
		if c.lost != errors.Is(err, pass.ErrSlower) || !c.lost && err != nil {
			t.Errorf("budget %d, %g FLOPs of %g: %v", c.budget, c.flops, takes, err)
		}
		if err == nil && c.budget < most && !slices.Equal(p.Funcs[0].Blocks, want.Funcs[0].Blocks) {
			t.Errorf("%g FLOPs: chose %v, want %v", c.flops, p.Funcs[0].Blocks, want.Funcs[0].Blocks)
		}
	}
}

// With matmuls free and norms prohibitive, blocks are rebuilt as a
// whole; with the opposite, no matmul is repeated.
func TestAutoGoesByPrice(t *testing.T) {
	for _, free := range []bool{true, false} {
		s := reference()
		b := graph.NewBuilder("step")
		o := s.training().Model(b, engine.Mode{Train: true})
		b.Output("loss", o.Sum)
		u := &pass.Unit{F: b.F, Loss: "loss", Recompute: pass.RecomputeAuto, Budget: 108 << 20,
			Price: func(n *graph.Node) float64 {
				switch n.Op.(type) {
				case graph.MatMul, graph.Attention:
					if free {
						return 0
					}
					return 1
				}
				if free {
					return 1
				}
				return 0
			},
			Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
				for i, p := range params {
					b.Accumulate(b.State(&graph.State{Name: "gradient." + p.Name, Type: p.Type, Role: graph.Gradient}), grads[i])
				}
			}}
		if err := pass.Run(u, pass.Options{Verify: true}); err != nil {
			t.Fatal(err)
		}
		flops, _ := rebuilt(u.F)
		t.Logf("matmuls free %v: %v, %d bytes", free, u.Blocks[1:], u.Placement.Bytes)
		if u.Placement.Bytes > u.Budget || (flops > 0) != free {
			t.Errorf("matmuls free %v: %d bytes of %d, repeats %.3g FLOPs of matmuls", free, u.Placement.Bytes, u.Budget, flops)
		}
	}
}

// A rebuilt value comes just before its first reader: between the two are only
// other clones, and what they are rebuilt from.
func TestClonesAreLazy(t *testing.T) {
	s := reference()
	u := func() *pass.Unit {
		b := graph.NewBuilder("step")
		o := s.training().Model(b, engine.Mode{Train: true})
		b.Output("loss", o.Sum)
		return &pass.Unit{F: b.F, Loss: "loss", Recompute: pass.RecomputeFull, Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
			for i, p := range params {
				b.Output("gradient."+p.Name, grads[i])
			}
		}}
	}()
	if err := pass.Run(u, pass.Options{Stop: "recompute", Verify: true}); err != nil {
		t.Fatal(err)
	}
	at := map[*graph.Node]int{}
	first := map[*graph.Node]*graph.Node{}
	for i, n := range u.F.Nodes {
		at[n] = i
		for _, v := range n.In {
			if v.Node != nil && first[v.Node] == nil {
				first[v.Node] = n
			}
		}
	}
	clones := 0
	for n, reader := range first {
		if !n.Clone {
			continue
		}
		clones++
		for _, m := range u.F.Nodes[at[n]+1 : at[reader]] {
			if !m.Clone {
				t.Errorf("%s of %s is rebuilt before %s of %s, which does not need it", n.Op.Name(), n.Layer, m.Op.Name(), m.Layer)
			}
		}
	}
	if clones == 0 {
		t.Error("nothing was recomputed")
	}
}
