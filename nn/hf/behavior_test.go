package hf

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

var causal = []string{"neox", "neox-old", "gpt2", "llama", "llama-biases", "qwen3"}

// Text goes through the cache in pieces of 5, 4, 1, 1 and 1 tokens in two rows at
// different positions: the logits equal those of the whole text at once.
func TestCache(t *testing.T) {
	for _, name := range causal {
		t.Run(name, func(t *testing.T) {
			f := openFolder(t, name)
			const batch, time, room = 2, 12, 16
			pieces := []int{5, 4, 1, 1, 1}
			var funcs []*graph.Func
			for _, n := range []int{5, 4, 1} {
				b := graph.NewBuilder(fmt.Sprint(n))
				err := graph.Catch(func() {
					c := &nn.KVCache{Rows: batch, Positions: room, At: b.Input("at", graph.T(graph.I32, batch)), Lens: b.Input("lens", graph.T(graph.I32, batch))}
					in := Input{IDs: b.Input(fmt.Sprint("ids", n), graph.T(graph.I32, batch, n)), Cache: c}
					b.Output("logits", f.Forward(b, in).Logits)
				})
				if err != nil {
					t.Fatal(err)
				}
				funcs = append(funcs, b.F)
			}
			p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, funcs...)
			if err != nil {
				t.Fatal(err)
			}
			r := armed(t, p)
			load(t, f.Config, f.dir, r, LoadOptions{})
			ids, want := f.given("input_ids"), f.want("logits")
			vocab := len(want) / batch / time
			at := []int32{0, 0}
			step := func(n int) {
				fn := fmt.Sprint(n)
				var in, lens []int32
				for i := range batch {
					from := i*time + int(at[i])
					in = append(in, ids[from:from+n]...)
					lens = append(lens, at[i]+int32(n))
				}
				setI32(t, r, "ids"+fn, in)
				setI32(t, r, "at", at)
				setI32(t, r, "lens", lens)
				run(t, r, fn)
				got := output(t, r, fn, "logits")
				for i := range batch {
					from := (i*time + int(at[i])) * vocab
					if d := far(got[i*n*vocab:(i+1)*n*vocab], want[from:from+n*vocab]); d > 1e-4 {
						t.Errorf("row %d at %d, %d tokens: logits differ by %g", i, at[i], n, d)
					}
				}
				at[0], at[1] = at[0]+int32(n), at[1]+int32(n)
			}
			for _, n := range pieces {
				step(n)
			}
			// Rows need not be at the same position: both continue from where they were,
			// over existing keys.
			at = []int32{9, 5}
			step(1)
			step(1)
		})
	}
}

// A change of the last token changes no bit of any logit before it, and
// changes its own.
func TestCausality(t *testing.T) {
	for _, name := range causal {
		for _, time := range []int{12, 29} {
			t.Run(fmt.Sprint(name, time), func(t *testing.T) {
				f := openFolder(t, name)
				r := arm(t, func(b *graph.Builder) {
					b.Output("logits", f.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, 1, time))}).Logits)
				})
				load(t, f.Config, f.dir, r, LoadOptions{})
				ids := make([]int32, time)
				for i := range ids {
					ids[i] = int32(i * 37 % 150)
				}
				logits := func() []float32 {
					setI32(t, r, "ids", ids)
					run(t, r, "forward")
					return output(t, r, "forward", "logits")
				}
				before := logits()
				vocab := len(before) / time
				for at := time - 1; at > 0; at -= 5 {
					ids[at] += 1
					after := logits()
					if !slices.Equal(before[:at*vocab], after[:at*vocab]) {
						t.Errorf("a change at %d reaches back", at)
					}
					if slices.Equal(before[at*vocab:(at+1)*vocab], after[at*vocab:(at+1)*vocab]) {
						t.Errorf("a change at %d does not show there", at)
					}
					ids[at] -= 1
				}
			})
		}
	}
}

// Rows that share a batch do not see each other, nor do documents that share a row, and
// nothing sees padding.
func TestNeighbors(t *testing.T) {
	for _, c := range []struct{ folder, by string }{
		{"bert-masked", "lens"}, {"roberta-masked", "lens"}, {"neox", "segments"}, {"gpt2", "segments"}, {"bert-masked", "segments"},
	} {
		t.Run(c.folder+" "+c.by, func(t *testing.T) {
			f := openFolder(t, c.folder)
			const batch, time, own = 2, 10, 6
			r := arm(t, func(b *graph.Builder) {
				in := Input{IDs: b.Input("ids", graph.T(graph.I32, batch, time))}
				if c.by == "lens" {
					in.Lens = b.Input("by", graph.T(graph.I32, batch))
				} else {
					in.Segments = b.Input("by", graph.T(graph.I32, batch, time))
				}
				b.Output("logits", f.Forward(b, in).Logits)
			})
			load(t, f.Config, f.dir, r, LoadOptions{})
			by := []int32{own, time}
			if c.by == "segments" {
				by = make([]int32, batch*time)
				for i := own; i < time; i++ {
					by[i], by[time+i] = 1, 1
				}
			}
			setI32(t, r, "by", by)
			ids := slices.Clone(f.given("input_ids")[:batch*time])
			logits := func() []float32 {
				setI32(t, r, "ids", ids)
				run(t, r, "forward")
				return output(t, r, "forward", "logits")
			}
			before := logits()
			vocab := len(before) / batch / time
			for i := own; i < batch*time; i++ {
				ids[i] = int32((int(ids[i]) + 11) % 150)
			}
			after := logits()
			if !slices.Equal(before[:own*vocab], after[:own*vocab]) {
				t.Error("the first ids see others than their own")
			}
			if far(before[own*vocab:], after[own*vocab:]) == 0 {
				t.Error("nothing changed")
			}
		})
	}
}

// Every linear layer of a model is offered for adaptation, by its full name; low-rank
// updates train while the frozen weights do not change.
func TestAdaptAndFreeze(t *testing.T) {
	for name, want := range map[string]int{"roberta-classifier": 2*6 + 2, "bert-classifier": 2*6 + 2, "neox": 2 * 4, "gpt2": 2 * 4} {
		t.Run(name, func(t *testing.T) {
			f := openFolder(t, name)
			var offered []string
			adapt := func(b *graph.Builder, x, y *graph.Value) *graph.Value {
				offered = append(offered, b.Layer())
				in, out := x.Shape().Last(), y.Shape().Last()
				down := b.Linear(x, b.Param("lora.down", graph.Normal(.1), 2, in), nil)
				return b.Add(y, b.Linear(down, b.Param("lora.up", graph.Zeros(), out, 2), nil))
			}
			frozen := func(name string) bool { return !strings.HasPrefix(name, "classifier.") }
			p, err := engine.CompileTraining(engine.Training{
				Optimizer: engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8},
				Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
					offered = nil
					res := f.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, 2, 8)), Train: mode.Train, Frozen: frozen, Adapt: adapt})
					if f.Head == HeadCausal {
						f.Model.(Causal).Output(b).State.Role = graph.Frozen
					}
					b.Output("logits", res.Logits)
					n := res.Logits.Shape()[0]
					loss := b.CrossEntropy(res.Logits, b.Input("labels", graph.T(graph.I32, n)), b.Input("weights", graph.T(graph.F32, n)))
					return engine.Objective{Sum: loss}
				},
			}, engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			if len(offered) != want {
				t.Errorf("%d layers were offered, want %d: %v", len(offered), want, offered)
			}
			for _, s := range p.States {
				trained := strings.Contains(s.Name, "lora.") || strings.HasPrefix(s.Name, "classifier.")
				switch s.Role {
				case graph.Weight:
					if !trained {
						t.Errorf("%s is trained", s.Name)
					}
				case graph.Frozen:
					if trained {
						t.Errorf("%s is frozen", s.Name)
					}
				}
			}
			if len(p.Untrained) > 0 {
				t.Errorf("no gradient reaches %v", p.Untrained)
			}
			r := armed(t, p)
			report, err := f.Load(f.dir, p.States, r.ChangeState, LoadOptions{New: func(name string) bool { return strings.Contains(name, "lora.") }})
			if err != nil {
				t.Fatal(err)
			}
			if len(report.New) != 2*want {
				t.Errorf("%d weights are new, want %d", len(report.New), 2*want)
			}
			before := map[string][]float32{}
			for _, s := range p.States {
				if s.Role == graph.Weight || s.Role == graph.Frozen {
					before[s.Name] = slices.Clone(memory(r)(s.Name))
				}
			}
			for i := range f.given("input_ids")[:16] {
				x, _ := r.Input(0, "ids")
				x.I32()[i] = int32(i * 7 % 150)
			}
			for _, x := range []string{engine.InputLR, engine.InputInvWeight, "weights"} {
				in, _ := r.Input(0, x)
				for i := range in.F32() {
					in.F32()[i] = .1
				}
			}
			for range 2 { // in the first pass, no gradient gets past the zeros of "up"
				run(t, r, engine.FuncStep)
			}
			for name, was := range before {
				now := memory(r)(name)
				s := p.Funcs[0].F.StateValue(name).State
				if moved := !slices.Equal(was, now); moved != (s.Role == graph.Weight) {
					t.Errorf("%s has the role %v, and moved: %v", name, s.Role, moved)
				}
			}
		})
	}
}

// Embeddings passed instead of ids act like those of the table.
func TestEmbeds(t *testing.T) {
	for _, name := range causal {
		t.Run(name, func(t *testing.T) {
			f := openFolder(t, name)
			const batch, time = 2, 12
			r := arm(t, func(b *graph.Builder) {
				ids := b.Input("ids", graph.T(graph.I32, batch, time))
				b.Output("by_ids", f.Model.Hidden(b, Input{IDs: ids}))
				table := f.family().embedding
				embeds := b.Embedding(b.F.StateValue(table), ids)
				b.Output("by_embeds", f.Model.Hidden(b, Input{Embeds: embeds}))
			})
			for _, s := range r.Program().States { // norms away from ones and zeros
				x, _ := r.State(s.Name)
				for i := range x.F32() {
					x.F32()[i] += float32(i%7) / 100
				}
				if err := r.SetState(x); err != nil {
					t.Fatal(err)
				}
			}
			setI32(t, r, "ids", f.given("input_ids")[:batch*time])
			run(t, r, "forward")
			if d := far(output(t, r, "forward", "by_ids"), output(t, r, "forward", "by_embeds")); d != 0 {
				t.Errorf("hidden states differ by %g", d)
			}
		})
	}
}

// What a model cannot do is reported when it is built.
func TestInputRefusals(t *testing.T) {
	for _, c := range []struct {
		folder string
		with   func(b *graph.Builder, in *Input)
		want   string
	}{
		{"neox", func(_ *graph.Builder, in *Input) { in.Types = in.IDs }, "takes neither token types nor positions"},
		{"gpt2", func(_ *graph.Builder, in *Input) { in.Types = in.IDs }, "takes no token types"},
		{"bert", func(_ *graph.Builder, in *Input) { in.Cache = &nn.KVCache{} }, "has no cache"},
		{"gpt2", func(_ *graph.Builder, in *Input) { in.Cache, in.Train = &nn.KVCache{}, true }, "excludes training"},
		{"gpt2", func(b *graph.Builder, in *Input) { in.IDs = b.Input("long", graph.T(graph.I32, 1, 33)) }, "33 ids are too many: the model has 32 positions"},
		{"roberta", func(b *graph.Builder, in *Input) { in.IDs = b.Input("long", graph.T(graph.I32, 1, 33)) }, "33 ids are too many: the model has 32 positions"},
		{"gpt2", func(b *graph.Builder, in *Input) { in.IDs = b.Input("flat", graph.T(graph.I32, 9)) }, "want [B, T]"},
		{"gpt2", func(_ *graph.Builder, in *Input) { in.IDs = nil }, "either ids or embeddings"},
		{"neox", func(b *graph.Builder, in *Input) { in.IDs, in.Embeds = nil, b.Input("e", graph.T(graph.F32, 1, 4, 3)) }, "the model is"},
		{"bert", func(b *graph.Builder, in *Input) { in.IDs, in.Embeds = nil, b.Input("e", graph.T(graph.F32, 1, 4, 3)) }, "an encoder takes ids"},
	} {
		f := openFolder(t, c.folder)
		err := graph.Catch(func() {
			b := graph.NewBuilder("f")
			in := Input{IDs: b.Input("ids", graph.T(graph.I32, 1, 4))}
			c.with(b, &in)
			f.Forward(b, in)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.folder, err, c.want)
		}
	}
}
