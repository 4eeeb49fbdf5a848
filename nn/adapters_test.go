package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// Experts with an update each compute the same as experts with the updates merged, and the
// gradients of the factors are the differences that a step of 1 makes: the result is linear in
// each of them.
func TestAdaptedExperts(t *testing.T) {
	for _, experts := range []int{1, 4} {
		t.Run(fmt.Sprint(experts), func(t *testing.T) {
			const batch, time, d, width = 3, 9, 5, 4
			model := func(b *graph.Builder) *graph.Value {
				x := b.Input("x", graph.T(graph.F32, batch, time, d))
				r := Router{experts, min(2, experts), 0.8}.Route(b, "router", x, graph.Zeros())
				rows := r.Rows(b, b.Reshape(x, batch*time, d))
				y := r.Linear(b, "all", rows, 0, experts, width, true, graph.Zeros())
				if experts > 2 {
					y = b.Add(y, r.Linear(b, "some", rows, 1, experts-1, width, false, graph.Zeros()))
				}
				return r.Tokens(b, y)
			}
			a := Adapters{LoRA: LoRA{Rank: 2, Alpha: 6}, Targets: []string{"all", "some"}[:min(2, experts)]}
			p, err := engine.CompileTraining(engine.Training{
				Accumulation: 2, // so that gradients are states
				Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8},
				Model: func(b *graph.Builder, mode engine.Mode) (o engine.Objective) {
					a.Build(b, mode.Train, func() {
						y := model(b)
						o.Sum = b.Sum(b.Mul(y, b.Input("slope", y.Type)))
						o.Outputs = []graph.Output{{Name: "y", Value: y}}
					})
					return o
				},
			}, engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			r := loaded(t, p)
			rng := rand.New(rand.NewPCG(1, uint64(experts)))
			draw := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				return x
			}
			input := func(r *engine.Executable, name string, values []float32) {
				x, _ := r.Input(0, name)
				copy(x.F32(), values)
			}
			states := map[string][]float32{}
			var adapted []string
			for _, s := range p.States {
				if s.Role == graph.Weight {
					adapted = append(adapted, s.Name)
				}
				if s.Role == graph.Weight || s.Role == graph.Frozen {
					states[s.Name] = draw(int(s.Type.Shape.Elems()))
					set(t, r, s.Name, states[s.Name])
				}
			}
			if want := 2 * len(a.Targets); len(adapted) != want {
				t.Fatalf("%v are trained, want %d factors", adapted, want)
			}
			x, slope := draw(batch*time*d), draw(batch*time*width)
			input(r, "x", x)
			input(r, "slope", slope)
			input(r, engine.InputInvWeight, []float32{1})
			input(r, engine.InputMicro, []float32{1})
			result := func(r *engine.Executable, f string) []float32 {
				if err := r.Run(f, 0); err != nil {
					t.Fatal(err)
				}
				y, _ := r.Output(f, "y")
				return slices.Clone(y.F32())
			}
			y := result(r, engine.FuncMicro)

			b := graph.NewBuilder("f")
			if err := graph.Catch(func() { b.Output("y", model(b)) }); err != nil {
				t.Fatal(err)
			}
			forward, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
			if err != nil {
				t.Fatal(err)
			}
			merged := loaded(t, forward)
			for _, s := range forward.States {
				w := slices.Clone(states[s.Name])
				if down, up, _ := AdapterNames(strings.TrimSuffix(s.Name, ".weight")); states[down] != nil {
					if err := a.MergeStack(w, Factors{Down: states[down], Up: states[up]}, s.Type.Shape[0]); err != nil {
						t.Fatal(err)
					}
				}
				set(t, merged, s.Name, w)
			}
			input(merged, "x", x)
			for i, v := range result(merged, "f") {
				if math.Abs(float64(v-y[i])) > 1e-4 {
					t.Fatalf("element %d is %v, with the updates merged %v", i, y[i], v)
				}
			}

			gradients := map[string][]float32{}
			for _, name := range adapted {
				g, err := r.State(engine.Gradient + name)
				if err != nil {
					t.Fatal(err)
				}
				gradients[name] = slices.Clone(g.F32())
			}
			for _, name := range adapted {
				for i, g := range gradients[name] {
					moved := func(by float32) (sum float64) {
						w := slices.Clone(states[name])
						w[i] += by
						set(t, r, name, w)
						for k, v := range result(r, engine.FuncMicro) {
							sum += float64(v) * float64(slope[k])
						}
						return sum
					}
					if want := (moved(1) - moved(-1)) / 2; math.Abs(float64(g)-want) > 1e-3 {
						t.Errorf("the gradient of element %d of %s is %v, want %v", i, name, g, want)
					}
				}
				set(t, r, name, states[name])
			}
		})
	}
}

func loaded(t *testing.T, p *engine.Program) *engine.Executable {
	t.Helper()
	r, err := p.Load(backend.CPU(2))
	if err == nil {
		err = r.Initialize(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func set(t *testing.T, r *engine.Executable, name string, values []float32) {
	t.Helper()
	if err := r.SetFloats(name, values); err != nil {
		t.Fatal(err)
	}
}

// Targets that cannot be adapted are refused, naming the key and the available targets.
func TestAdaptersRefuse(t *testing.T) {
	model := func(b *graph.Builder) {
		x := b.Input("x", graph.T(graph.F32, 2, 8, 4))
		r := Router{2, 1, 0}.Route(b, "router", x, graph.Zeros())
		b.Scope("experts", func() { r.Linear(b, "up", r.Rows(b, b.Reshape(x, 16, 4)), 0, 2, 4, false, graph.Zeros()) })
		b.Scope("film", func() { Linear(b, "0", x, 4, true, graph.Zeros()) })
		b.Scope("folder", func() { Linear(b, "in", x, 4, true, graph.Zeros()) })
	}
	for _, c := range []struct {
		a    Adapters
		want string
	}{
		{Adapters{Targets: []string{"down"}}, `lora.targets: no linear layer is called "down"; there are film.0, in, up`},
		{Adapters{Targets: []string{"router"}}, `lora.targets: no linear layer is called "router"`},
		{Adapters{Targets: []string{"up"}, LoRA: LoRA{Variant: Decomposed}}, "lora.variant: dora scales rows of one matrix, and experts.up has one for each of 2 experts"},
		{Adapters{Targets: []string{"folder.*"}, Fixed: func(l string) bool { return l == "folder.in" }}, `lora.targets: "folder.*" chooses folder.in`},
		{Adapters{Targets: []string{"up"}, Trained: []string{"norm"}}, `lora.modules_to_save: nothing to train as a whole is called "norm"; there are `},
		{Adapters{Targets: []string{"(up"}}, `lora.targets: "(up" is neither a name nor a regular expression: `},
		{Adapters{Targets: []string{"up"}, Trained: []string{"film|("}}, `lora.modules_to_save: "film|(" is neither a name nor a regular expression: `},
		{Adapters{Targets: []string{"up", "0"}, LoRA: LoRA{Rank: 5}}, "lora.rank: 5 is more than the matrix of any adapted layer can have, the largest being experts.up with 4 x 4: want at most 4"},
	} {
		if c.a.Alpha = 1; c.a.Rank == 0 {
			c.a.Rank = 1
		}
		b := graph.NewBuilder("f")
		err := graph.Catch(func() { c.a.Build(b, true, func() { model(b) }) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	b := graph.NewBuilder("f")
	a := Adapters{LoRA: LoRA{Rank: 1, Alpha: 1}, Targets: []string{AllLinear}, Fixed: func(l string) bool { return l == "folder.in" }}
	if err := graph.Catch(func() { a.Build(b, true, func() { model(b) }) }); err != nil {
		t.Fatal(err)
	}
	if b.F.StateValue("experts.up.lora.up") == nil || b.F.StateValue("folder.in.lora.up") != nil {
		t.Error("all-linear is not every layer whose weights a run has")
	}
}

// A regular expression must match the whole name, as with re.fullmatch in PEFT; names and shell patterns keep
// their meaning.
func TestTargets(t *testing.T) {
	layers := []string{"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.10.self_attn.q_proj", "model.layers.10.mlp.up_proj", "score"}
	for target, want := range map[string][]int{
		"q_proj":                 {0, 2},
		"self_attn.k_proj":       {1},
		"proj":                   nil,
		"*.mlp.*":                {3},
		"model.layers.1*.q_proj": {2},
		AllLinear:                {0, 1, 2, 3, 4},
		".*q_proj":               {0, 2},
		".*proj":                 {0, 1, 2, 3},
		`(q_proj|k_proj)`:        nil,
		`.*\.(q|k)_proj`:         {0, 1, 2},
		`model\.layers\.\d+\.self_attn\.[qk]_proj`: {0, 1, 2},
		`model\.layers\.\d\..*`:                    {0, 1},
		`^.*(?<!q)_proj$`:                          {1, 3},
		`.*layers\.(?!0\b).*proj`:                  {2, 3},
	} {
		for i, l := range layers {
			if chooses(target, l) != slices.Contains(want, i) {
				t.Errorf("%s chooses %s: %v", target, l, chooses(target, l))
			}
		}
	}
	for target, want := range map[string]bool{"q_proj": false, "self_attn.q_proj": false, AllLinear: true, "*.mlp.*": true, `a\.b`: true, ".*b": true} {
		if IsPattern(target) != want {
			t.Errorf("%s is a pattern: %v", target, !want)
		}
	}
}
