package engine_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

func clipped(rule engine.Rule, mode graph.RoundingMode, by engine.ClipNorm, norm float64) engine.Training {
	tr := formatted(rule, mode, 1)
	tr.Optimizer.Clip, tr.Optimizer.MaxGradNorm = by, norm
	return tr
}

// Two passes find the same norm as one: nothing differs if it does not clip, and little more than the norm's last
// bit if it does. Updates do not depend on the workers and allocate nothing.
func TestTwoPasses(t *testing.T) {
	for _, rule := range narrowRules {
		for _, mode := range modes {
			for _, norm := range []float64{1e6, .1} {
				name := fmt.Sprintf("%s, rounding %d, norm %g", rule, mode, norm)
				want := trained(t, clipped(rule, mode, engine.ClipExact, norm), graph.BF16, 1, 3)
				got := trained(t, clipped(rule, mode, engine.ClipTwoPasses, norm), graph.BF16, 3, 3)
				for _, s := range want.Program().States {
					a, _ := want.State(s.Name)
					b, err := got.State(s.Name)
					if err != nil {
						t.Fatal(err)
					}
					if norm > 1 && !bytes.Equal(a.Data, b.Data) {
						t.Errorf("%s: state %s differs", name, s.Name)
					}
					if rule != engine.AdamW || mode != graph.Exact {
						continue // rounding turns the last bit into a step
					}
					x, y := a.Floats(), b.Floats()
					for i := range x {
						if d := math.Abs(float64(x[i] - y[i])); d > 1e-6*math.Abs(float64(x[i]))+1e-9 {
							t.Fatalf("%s: element %d of %s is %v, want %v", name, i, s.Name, y[i], x[i])
						}
					}
				}
				if got, want := got.ArenaUsed(), got.Program().Layout.Bytes; got != want {
					t.Errorf("%s: %d bytes of the arena are used, the plan has %d", name, got, want)
				}
				if n := allocations(func() { run(t, got, engine.FuncStep) }); n != 0 {
					t.Errorf("%s: %v allocations an update", name, n)
				}
			}
		}
	}
}

// With a loss scale an overflow in any gradient skips the whole update, even in two passes.
func TestTwoPassesSkipsWhole(t *testing.T) {
	tr := clipped(engine.AdamW, graph.Exact, engine.ClipTwoPasses, 1)
	scaling := engine.DefaultLossScaling
	scaling.Initial = 1e30
	tr.LossScaling = &scaling
	r := load(t, tr, graph.F16, 2)
	before := map[string][]byte{}
	for _, s := range r.Program().States {
		v, _ := r.State(s.Name)
		before[s.Name] = v.Data
	}
	run(t, r, engine.FuncStep)
	if ok := output(t, r, engine.OutputOK); ok != 0 {
		t.Fatalf("a scale of 1e30 overflows nothing: ok is %v", ok)
	}
	for _, s := range r.Program().States {
		v, _ := r.State(s.Name)
		if same := bytes.Equal(v.Data, before[s.Name]); same == (s.Name == engine.StateScale) {
			t.Errorf("state %s is the same: %v", s.Name, same)
		}
	}
}

// Each update is clipped by the norm of the previous one or of the weight's own gradient, whichever is larger:
// the first moments of the first two updates show by how much.
func TestClipPrevious(t *testing.T) {
	const most = .05
	free := clipped(engine.AdamW, graph.Exact, engine.ClipExact, 0)
	tr := clipped(engine.AdamW, graph.Exact, engine.ClipPrevious, most)
	unclipped, r := load(t, free, graph.F32, 1), load(t, tr, graph.F32, 3)
	run(t, unclipped, engine.FuncStep)
	run(t, r, engine.FuncStep)
	moment := func(r interface {
		State(string) (engine.Tensor, error)
	}, s *graph.State) []float32 {
		v, err := r.State(engine.Moment1 + s.Name)
		if err != nil {
			t.Fatal(err)
		}
		return v.Floats()
	}
	// check compares moments with those of gradients, which are a tenth of them, clipped by norms of at least `before`.
	check := func(before float64, decayed map[string][]float32) (norm float64) {
		clips := 0
		for _, s := range unclipped.Program().TrainedWeights() {
			g, m := moment(unclipped, s), moment(r, s)
			own := 0.0
			for i := range g {
				x := 10 * float64(g[i])
				own += x * x
			}
			norm += own
			clip := min(1, most/(max(before, math.Sqrt(own))+1e-6))
			if clip < 1 {
				clips++
			}
			for i := range g {
				want := clip * float64(g[i])
				if decayed != nil {
					want += .9 * float64(decayed[s.Name][i])
				}
				if d := math.Abs(float64(m[i]) - want); d > 1e-5*math.Abs(want)+1e-9 {
					t.Fatalf("moment %d of %s is %v, want %v", i, s.Name, m[i], want)
				}
			}
		}
		if clips == 0 {
			t.Error("no gradient is clipped")
		}
		return math.Sqrt(norm)
	}
	norm := check(0, nil)
	state, err := r.State(engine.StateClip)
	if err != nil || math.Abs(float64(state.Floats()[0])/norm-1) > 1e-5 {
		t.Errorf("the norm that is kept is %v (%v), want %g", state.Floats(), err, norm)
	}
	if got := output(t, r, engine.OutputGradNorm); math.Abs(float64(got)/norm-1) > 1e-5 {
		t.Errorf("the norm is said to be %v, want %g", got, norm)
	}
	// The second update, from the same weights: new gradients, moments at 0.9 of their values.
	kept := map[string][]float32{}
	for _, s := range unclipped.Program().TrainedWeights() {
		kept[s.Name] = moment(r, s)
		w, err := r.State(s.Name)
		if err == nil {
			err = unclipped.SetState(w)
		}
		if err == nil {
			err = unclipped.ClearState(engine.Moment1 + s.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, unclipped, engine.FuncStep)
	run(t, r, engine.FuncStep)
	check(norm, kept)
	if n := allocations(func() { run(t, r, engine.FuncStep) }); n != 0 {
		t.Errorf("%v allocations an update", n)
	}
	tr.LossScaling = &engine.DefaultLossScaling
	if _, err := engine.CompileTraining(tr, engine.CompileOptions{}); err == nil || !strings.Contains(err.Error(), "has to be known before any weight is updated") {
		t.Errorf("with a loss scale: %v", err)
	}
}

// Neither keeps gradients: temporaries hold one at a time instead of six.
func TestClippingKeepsNoGradients(t *testing.T) {
	const n = 512
	temporaries := func(by engine.ClipNorm) int64 {
		p, err := engine.CompileTraining(engine.Training{
			Optimizer: engine.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, MaxGradNorm: 1, Clip: by},
			Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
				h := b.Input("x", graph.T(graph.F32, 2, n))
				for i := range 6 {
					h = b.Tanh(b.Linear(h, b.Param(fmt.Sprint("w", i), graph.Normal(.05), n, n), nil))
				}
				return engine.Objective{Sum: b.Sum(b.Mul(h, h), 0, 1)}
			},
		}, engine.CompileOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		return p.Layout.Temps.Bytes
	}
	const one = n * n * 4
	if exact := temporaries(engine.ClipExact); exact < 6*one {
		t.Errorf("the norm of all takes %d bytes, which are not six gradients of %d", exact, one)
	}
	for _, by := range []engine.ClipNorm{engine.ClipTwoPasses, engine.ClipPrevious} {
		if got := temporaries(by); got > one+one/2 {
			t.Errorf("%s takes %d bytes, a gradient %d", by, got, one)
		}
	}
}

func output(t *testing.T, r *engine.Executable, name string) float32 {
	t.Helper()
	v, err := r.Output(engine.FuncStep, name)
	if err != nil {
		t.Fatal(err)
	}
	return v.F32()[0]
}
