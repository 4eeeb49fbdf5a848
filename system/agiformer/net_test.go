package agiformer

import (
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/system"
)

// tiny returns a small net with experts of the given kinds.
func tiny(choices int, capacity float64, kinds ...string) Net {
	n := Net{
		Vocab: 40, D: 16, Layers: 2, Heads: 2, FF: 24, MaxPositions: 64, Kernel: 3, Rotary: true, RotaryBase: 10000,
		Experts:       Experts{Kinds: sorted(kinds, len(kinds)), Choices: choices, Capacity: capacity, Relation: 12},
		Memory:        &nn.Memory{Slots: 7, Segment: 6, Writes: 2, Heads: 2, Eps: 1e-5},
		Introspection: &Introspection{Steps: 2},
		Eps:           1e-5,
	}
	if n.Experts.Has(LanguageKind) {
		n.Language = &Language{Width: 12, Layers: 1, Heads: 2, FF: 20}
	}
	return n
}

// mixtures returns the nets that every test of behavior runs on.
func mixtures() map[string]Net {
	nets := map[string]Net{
		"all":               tiny(2, 1, "standard", "spatial", "logic", "causal", "language"),
		"all unlimited":     tiny(2, 0, "standard", "spatial", "logic", "causal", "language"),
		"two of a kind":     tiny(2, 0.8, "spatial", "spatial", "causal", "causal"),
		"learned positions": tiny(1, 1.25, "standard", "logic"),
	}
	for _, k := range order {
		nets[string(k)+" alone"] = tiny(1, 1.25, string(k))
		nets[string(k)+" of two"] = tiny(1, 0.7, string(k), string(k))
	}
	n := nets["learned positions"]
	n.Rotary = false
	nets["learned positions"] = n
	n = nets["standard alone"]
	n.Memory, n.Introspection = nil, nil
	nets["nothing but a transformer"] = n
	return nets
}

func each(t *testing.T, fn func(t *testing.T, n Net)) {
	for name, n := range mixtures() {
		t.Run(name, func(t *testing.T) { fn(t, n) })
	}
}

// armed compiles and loads a forward function "f" and gives its weights random values.
func armed(t *testing.T, build func(b *graph.Builder)) *engine.Executable {
	t.Helper()
	b := graph.NewBuilder("f")
	if err := graph.Catch(func() { build(b) }); err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, p)
}

func start(t *testing.T, p *engine.Program) *engine.Executable {
	t.Helper()
	r, err := p.Load(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Initialize(3); err != nil {
		t.Fatal(err)
	}
	return r
}

// logits returns a function that runs n on ids [batch, time].
func logits(t *testing.T, n Net, batch, time int) func(ids []int32) []float32 {
	r := armed(t, func(b *graph.Builder) {
		out := n.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, batch, time))})
		b.Output("logits", n.Logits(b, out.Hidden))
	})
	return func(ids []int32) []float32 {
		in, _ := r.Input(0, "ids")
		copy(in.I32(), ids)
		if err := r.Run("f", 0); err != nil {
			t.Fatal(err)
		}
		out, _ := r.Output("f", "logits")
		return slices.Clone(out.F32())
	}
}

func text(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*3 + 1) % vocab)
	}
	return ids
}

// TestCausality: changing a byte changes no bit of any earlier logit, or of another sample, but does change
// its own.
func TestCausality(t *testing.T) {
	each(t, func(t *testing.T, n Net) {
		const batch, time = 3, 29
		run := logits(t, n, batch, time)
		ids := text(batch*time, n.Vocab)
		before := run(ids)
		for _, at := range []int{28, 27, 17, 12, 6, 5, 0} {
			for row := range batch {
				i := row*time + at
				ids[i] = (ids[i] + 5) % int32(n.Vocab)
				after := run(ids)
				ids[i] = (ids[i] + int32(n.Vocab) - 5) % int32(n.Vocab)
				lo, hi := i*n.Vocab, (row+1)*time*n.Vocab
				if !slices.Equal(before[:lo], after[:lo]) || !slices.Equal(before[hi:], after[hi:]) {
					t.Errorf("a change of byte %d of sample %d reaches back or across", at, row)
				}
				if slices.Equal(before[lo:lo+n.Vocab], after[lo:lo+n.Vocab]) {
					t.Errorf("a change of byte %d of sample %d does not show there", at, row)
				}
			}
		}
	})
}

// training compiles a training step of n.
func training(t *testing.T, n Net, s system.Shape, length int, o engine.CompileOptions) *engine.Program {
	t.Helper()
	o.Verify = true
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: s.Accumulation,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
		Eval:         true,
		Model: func(b *graph.Builder, m engine.Mode) engine.Objective {
			return n.objective(b, s, length, 0.01, 0.1, m.Train, false)
		},
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEveryWeightLearns: every weight gets a gradient that is not all zeros.
func TestEveryWeightLearns(t *testing.T) {
	each(t, func(t *testing.T, n Net) {
		const batch, time = 4, 30
		p := training(t, n, system.Shape{MicroBatch: batch, Accumulation: 1}, time, engine.CompileOptions{})
		if len(p.Untrained) > 0 {
			t.Errorf("no gradient reaches %v", p.Untrained)
		}
		r := start(t, p)
		feed(r, text(batch*(time+1), n.Vocab), batch, time)
		if err := r.Run(engine.FuncStep, 0); err != nil {
			t.Fatal(err)
		}
		for _, s := range p.States {
			if s.Role != graph.Weight {
				continue
			}
			v, _ := r.State(engine.Moment2 + s.Name)
			if !slices.ContainsFunc(v.F32(), func(x float32) bool { return x > 0 }) {
				t.Errorf("%s got a gradient of zeros", s.Name)
			}
		}
	})
}

// feed fills slot 0 with rows of time+1 tokens and a learning rate.
func feed(r *engine.Executable, tokens []int32, batch, time int) {
	f32 := func(name string, v float32) {
		x, _ := r.Input(0, name)
		for i := range x.F32() {
			x.F32()[i] = v
		}
	}
	f32(engine.InputLR, 1e-3)
	f32(engine.InputInvWeight, 1/float32(batch*time))
	f32("weights", 1)
	ids, _ := r.Input(0, "ids")
	labels, _ := r.Input(0, "labels")
	for i := range batch {
		row := tokens[i*(time+1):]
		copy(ids.I32()[i*time:(i+1)*time], row)
		copy(labels.I32()[i*time:(i+1)*time], row[1:])
	}
}
