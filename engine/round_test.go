package engine_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Weights that steps keep in 16 bits change no bit of any state, also after something else has written a weight,
// and are what the weights round to.
func TestRoundedWeights(t *testing.T) {
	rounded := engine.CPU
	rounded.Rounded = true
	for _, low := range []graph.DType{graph.BF16, graph.F16} {
		for name, tr := range map[string]engine.Training{
			"all at once":        clipped(engine.AdamW, graph.Exact, engine.ClipExact, .1),
			"each by itself":     clipped(engine.AdamW, graph.Exact, engine.ClipPrevious, .1),
			"in two passes":      clipped(engine.AdamW, graph.Exact, engine.ClipTwoPasses, .1),
			"two micro-batches":  formatted(engine.AdamW, graph.Exact, 2),
			"pictures and scans": pictures(),
		} {
			name = fmt.Sprintf("%v, %s", low, name)
			want, got := load(t, tr, low, 2), loadFor(t, rounded, tr, low, 2)
			for range 2 {
				for _, r := range []*engine.Executable{want, got} {
					train(t, r, 2)
					for _, s := range r.Program().States {
						if s.Role == graph.Weight {
							if err := r.ChangeState(s.Name, func(x []float32) error { x[0] += .5; return nil }); err != nil {
								t.Fatal(err)
							}
						}
					}
					train(t, r, 1)
				}
			}
			sameWeights(t, name, want, got)
		}
	}
}

func sameWeights(t *testing.T, name string, want, got *engine.Executable) {
	t.Helper()
	count := 0
	for _, s := range got.Program().States {
		is, err := got.State(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(s.Name, pass.RoundedName(""))
		should, err := want.State(from)
		if err != nil {
			t.Fatal(err)
		}
		if s.Role == graph.Rounded {
			count++
			x := engine.Tensor{Type: s.Type, Data: make([]byte, s.Type.Bytes())}
			x.SetFloats(should.Floats())
			should = x
		}
		if !bytes.Equal(is.Data, should.Data) {
			t.Errorf("%s: state %s differs", name, s.Name)
		}
	}
	for _, f := range got.Program().Funcs {
		for _, n := range f.F.Nodes {
			if e, ok := n.Op.(graph.Elementwise); ok && e.Fn == graph.FnCopy && n.In[0].State != nil && n.In[0].State.Role == graph.Weight && n.Out[0].DType().Half() && f.Name != engine.FuncRound {
				t.Errorf("%s: %s still rounds %s", name, f.Name, n.In[0].Name)
			}
		}
	}
	if count == 0 {
		t.Errorf("%s: no weight is kept in 16 bits", name)
	}
}

// Optimizers whose steps do not round weights leave that to each micro-batch.
func TestUnroundedWeights(t *testing.T) {
	rounded := engine.CPU
	rounded.Rounded = true
	for name, change := range map[string]func(tr *engine.Training){
		"lion":       func(tr *engine.Training) { tr.Optimizer.Rule = engine.Lion },
		"8 bits":     func(tr *engine.Training) { tr.Optimizer.Rule = engine.AdamW8bit },
		"stochastic": func(tr *engine.Training) { tr.Optimizer.Round.Mode = graph.Stochastic },
		"offloaded":  func(tr *engine.Training) { tr.Optimizer.Offload = true },
	} {
		tr := formatted(engine.AdamW, graph.Exact, 1)
		change(&tr)
		p, err := engine.CompileTraining(tr, engine.CompileOptions{Traits: &rounded, ComputeDType: graph.BF16})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.States {
			if s.Role == graph.Rounded {
				t.Errorf("%s: there is a state %s", name, s.Name)
			}
		}
	}
}
