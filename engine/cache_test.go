package engine_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// rows is a training step on micro-batches of the given number of rows, evaluated on
// five.
func rows(batch, accumulation int) engine.Training {
	const d = 32
	return engine.Training{
		Accumulation: accumulation, Eval: true, EvalInputs: true,
		Optimizer: engine.Optimizer{Rule: engine.AdamW8bit, Beta1: .9, Beta2: .999, Eps: 1e-8, MaxGradNorm: 1, Round: graph.Rounding{Mode: graph.Stochastic}},
		Model: func(b *graph.Builder, m engine.Mode) engine.Objective {
			n := batch
			if !m.Train {
				n = 5
			}
			x := b.Input("x", graph.T(graph.F32, n, d))
			for i := range 6 {
				b.Block(fmt.Sprint("block", i), func() {
					h := b.GELU(b.Linear(x, b.Param("up", graph.Normal(.1), 4*d, d), b.Param("c", graph.Zeros(), 4*d)))
					if m.Train {
						h = b.Dropout(h, .1, 0)
					}
					x = b.Add(x, b.Linear(h, b.Param("down", graph.Normal(.1), d, 4*d), nil))
				})
			}
			return engine.Objective{Sum: b.Sum(b.Square(x))}
		},
	}
}

// rung is a program of a ladder: its shape, its recomputation and its device.
type rung struct {
	batch, accumulation int
	recompute           pass.Recompute
	slices              int
	traits              engine.Traits
	away                bool // offload activations as far as the budget requires
}

var rungs = []rung{
	{8, 1, pass.RecomputeNone, 0, engine.CPU, false},
	{8, 1, pass.RecomputeSelective, 0, engine.CPU, false},
	{4, 2, pass.RecomputeSelective, 0, engine.CPU, false},
	{2, 4, pass.RecomputeAuto, 0, engine.CPU, false},
	{2, 4, pass.RecomputeFull, 0, engine.CPU, false},
	{8, 1, pass.RecomputeSlices, 4, engine.CPU, false},
	{8, 1, pass.RecomputeSelective, 0, engine.CUDA, false},
	{8, 1, pass.RecomputeSelective, 0, engine.CUDA, true}, // differs in what is offloaded
	{8, 1, pass.RecomputeNone, 0, engine.CUDA, true},
	{8, 1, pass.RecomputeSelective, 0, engine.CUDA, false}, // again
}

func (r rung) compile(t *testing.T, c *engine.Cache, ran func(name string)) *engine.Program {
	t.Helper()
	p, err := engine.CompileTraining(rows(r.batch, r.accumulation), engine.CompileOptions{
		Traits: &r.traits, ComputeDType: graph.BF16, Recompute: r.recompute, Slices: r.slices, OffloadActivations: r.away, Budget: 3000, Cache: c, Of: [2]int{r.batch, r.accumulation},
		Times: func(name string, _ time.Duration) { ran(name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The cache returns what compiling anew would, down to the number of every value.
func TestCacheChangesNothing(t *testing.T) {
	c := new(engine.Cache)
	for _, r := range rungs {
		got, want := r.compile(t, c, func(string) {}), r.compile(t, nil, func(string) {})
		if away := strings.Contains(got.Funcs[0].F.String(), "write_back"); away != r.away {
			t.Errorf("%+v: activations are away: %v", r, away)
		}
		if !reflect.DeepEqual(got.Layout, want.Layout) || len(got.Funcs) != len(want.Funcs) {
			t.Fatalf("%+v: %d functions are laid out as %+v, want %d as %+v", r, len(got.Funcs), got.Layout, len(want.Funcs), want.Layout)
		}
		for i, g := range got.Funcs {
			w := want.Funcs[i]
			if g.F.String() != w.F.String() || !reflect.DeepEqual(g.Placement.Offset, w.Placement.Offset) || !reflect.DeepEqual(g.Blocks, w.Blocks) {
				t.Errorf("%+v: %s is\n%v\nwant\n%v", r, g.Name, g.F, w.F)
			}
		}
	}
}

// A ladder runs the passes before recomputation once for each shape of a micro-batch, those up to order once for
// plans that differ in what they offload, and all
// passes once for functions that are equal in several programs.
func TestCacheSharesWhatIsEqual(t *testing.T) {
	c := new(engine.Cache)
	ran := map[string]int{}
	for _, r := range rungs {
		r.compile(t, c, func(name string) { ran[name]++ })
	}
	// Three shapes have a micro-batch each, and two of them their own updates. Evaluation is the
	// same for all, once for each device.
	const shapes, updates, evaluations = 3, 2, 2
	for _, name := range []string{"differentiate", "narrow", "optimize", "simplify", "cast", "tidy", "tf32"} {
		if want := shapes + updates + evaluations; ran[name] != want {
			t.Errorf("%s ran %d times, want %d", name, ran[name], want)
		}
	}
	made := len(rungs) - 1 + updates + evaluations // the last was made
	for _, name := range []string{"recompute", "slice", "accumulate", "fuse", "order"} {
		if want := made - 1; ran[name] != want { // one differs from that before only in what is offloaded
			t.Errorf("%s ran %d times, want %d", name, ran[name], want)
		}
	}
	for _, name := range []string{"offload", "place"} {
		if ran[name] != made {
			t.Errorf("%s ran %d times, want %d", name, ran[name], made)
		}
	}
}

// Programs that differ only in where the states of the optimizer are share all passes up to order, and each is what
// it would be if it was compiled alone.
func TestCacheSharesWhatIsOffloaded(t *testing.T) {
	for _, accumulation := range []int{1, 2} {
		training := rows(8, accumulation)
		training.Optimizer.Rule = engine.AdamW
		training.Model = func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, 8, 128))
			for range 3 {
				b.Block("block", func() { x = b.GELU(b.Linear(x, b.Param("w", graph.Normal(.1), 128, 128), nil)) })
			}
			return engine.Objective{Sum: b.Sum(b.Square(x))}
		}
		c := new(engine.Cache)
		ran := map[string]int{}
		for _, r := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeFull} {
			for _, training.Optimizer.Offload = range []bool{false, true, false} {
				o := engine.CompileOptions{Traits: &engine.CUDA, ComputeDType: graph.BF16, Recompute: r}
				want, err := engine.CompileTraining(training, o)
				if err != nil {
					t.Fatal(err)
				}
				o.Cache, o.Of, o.Times = c, "it", func(name string, _ time.Duration) { ran[name]++ }
				got, err := engine.CompileTraining(training, o)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got.Layout, want.Layout) || (got.Layout.Host.Bytes > 0) != training.Optimizer.Offload {
					t.Errorf("%v: laid out as %+v, want %+v", r, got.Layout, want.Layout)
				}
				for i, g := range got.Funcs {
					if w := want.Funcs[i]; g.F.String() != w.F.String() || !reflect.DeepEqual(g.Placement.Offset, w.Placement.Offset) {
						t.Errorf("%v: %s is\n%v\nwant\n%v", r, g.Name, g.F, w.F)
					}
				}
			}
		}
		// One micro-batch is recomputed in two ways. The update is not, and is known by its content: it passes
		// twice, once for each place of its states.
		updates := 2 * (accumulation - 1)
		for name, want := range map[string]int{"differentiate": 1 + updates + 1, "fuse": 2 + updates + 1, "order": 2 + updates + 1} {
			if ran[name] != want {
				t.Errorf("%d micro-batches: %s ran %d times, want %d", accumulation, name, ran[name], want)
			}
		}
	}
}

// Functions that pass at once are those that pass one after another, as they do while somebody looks on.
func TestFunctionsAtOnce(t *testing.T) {
	training := rows(8, 2)
	training.Variants = []string{"short", "middle", "long"}
	for _, recompute := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeSelective, pass.RecomputeAuto} {
		o := engine.CompileOptions{Traits: &engine.CPU, ComputeDType: graph.BF16, Recompute: recompute, Budget: 3000}
		at, err := engine.CompileTraining(training, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Times = func(string, time.Duration) {}
		one, err := engine.CompileTraining(training, o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(at.Layout, one.Layout) || len(at.Funcs) != len(one.Funcs) || len(one.Funcs) < 7 {
			t.Fatalf("%v: %d functions, want %d with the same layout", recompute, len(at.Funcs), len(one.Funcs))
		}
		for i, f := range at.Funcs {
			if w := one.Funcs[i]; f.F.String() != w.F.String() || !reflect.DeepEqual(f.Placement.Offset, w.Placement.Offset) {
				t.Errorf("%v: %s is\n%v\nwant\n%v", recompute, f.Name, f.F, w.F)
			}
		}
	}
}

// Functions that differ in anything have different fingerprints.
func TestFingerprint(t *testing.T) {
	build := func(change func(f *graph.Func)) [32]byte {
		b := graph.NewBuilder("f")
		x := b.Input("x", graph.T(graph.F32, 2, 3))
		b.Block("one", func() { b.Output("y", b.MulC(b.Linear(x, b.Param("w", graph.Ones(), 4, 3), nil), 2)) })
		change(b.F)
		return b.F.Fingerprint()
	}
	plain := build(func(*graph.Func) {})
	if plain != build(func(*graph.Func) {}) {
		t.Error("equal functions have two fingerprints")
	}
	for name, change := range map[string]func(f *graph.Func){
		"its name":    func(f *graph.Func) { f.Name = "g" },
		"an input":    func(f *graph.Func) { f.Inputs[0].Type.Shape[0] = 5 },
		"a state":     func(f *graph.Func) { f.States[0].State.Init = graph.Zeros() },
		"a role":      func(f *graph.Func) { f.States[0].State.Role = graph.Frozen },
		"an operand":  func(f *graph.Func) { f.Nodes[1].In[0] = f.Nodes[0].In[0] },
		"a factor":    func(f *graph.Func) { f.Nodes[1].Op = graph.Elementwise{Fn: graph.FnMulC, Alpha: 3} },
		"a result":    func(f *graph.Func) { f.Nodes[1].Out[0].Type.DType = graph.BF16 },
		"a layer":     func(f *graph.Func) { f.Nodes[1].Layer = "two" },
		"a block":     func(f *graph.Func) { f.Nodes[1].Block = 2 },
		"a half":      func(f *graph.Func) { f.Nodes[1].Backward = true },
		"a clone":     func(f *graph.Func) { f.Nodes[1].Clone = true },
		"an output":   func(f *graph.Func) { f.Outputs[0].Name = "z" },
		"what it is":  func(f *graph.Func) { f.Outputs[0].Value = f.Nodes[0].Out[0] },
		"a new value": func(f *graph.Func) { f.NewValue(graph.T(graph.F32)) },
	} {
		if build(change) == plain {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}
}
