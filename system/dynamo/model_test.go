package dynamo

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/inference"
)

// TestOnlyTheTrainedHasState: only what a stage trains has gradients, moments and a place in checkpoints.
func TestOnlyTheTrainedHasState(t *testing.T) {
	for _, s := range []string{nameQA, nameTranslation, stageRouter, stageJoint} {
		for _, accumulation := range []string{"1", "2"} {
			c := load(t, small, "--phases.stage", s, "--training.gradient_accumulation_steps", accumulation, "--model.tasks", "[qa,translation]")
			p := armed(t, c, engine.CompileOptions{}).Program()
			if len(p.Untrained) > 0 {
				t.Errorf("%s: no gradient reaches %v", s, p.Untrained)
			}
			trained := map[string]bool{}
			moments, gradients := 0, 0
			for _, x := range p.States {
				own := strings.Contains(x.Name, ".lora.") || strings.HasPrefix(x.Name, "heads.") || strings.HasPrefix(x.Name, "router.")
				switch x.Role {
				case graph.Weight:
					trained[x.Name] = true
					if !own {
						t.Errorf("%s: %s is trained", s, x.Name)
					}
					if s != stageJoint && s != stageRouter && !strings.Contains(x.Name, s) {
						t.Errorf("%s trains %s of another task", s, x.Name)
					}
				case graph.Frozen:
					if own {
						t.Errorf("%s: %s is frozen", s, x.Name)
					}
				case graph.Moment:
					moments++
				case graph.Gradient:
					gradients++
				}
			}
			if moments != 2*len(trained) || accumulation == "2" && gradients != len(trained) {
				t.Errorf("%s: %d weights are trained with %d moments and %d gradients", s, len(trained), moments, gradients)
			}
			all, n := p.Parameters()
			t.Logf("%s: %d of %d parameters are trained", s, n, all)
		}
	}
}

// TestTheEncoderStays: training changes the adapter and the head, but no bit of the encoder.
func TestTheEncoderStays(t *testing.T) {
	g := openGolden(t, nameSentiment)
	r := g.prepare(nameSentiment, engine.CompileOptions{ComputeDType: graph.BF16})
	before := map[string][]byte{}
	for _, s := range r.Program().States {
		x, _ := r.State(s.Name)
		before[s.Name] = bytes.Clone(x.Data)
	}
	g.losses(r, 5, g.goldenWeight(nameSentiment))
	frozen := 0
	for _, s := range r.Program().States {
		x, _ := r.State(s.Name)
		same := bytes.Equal(before[s.Name], x.Data)
		switch {
		case s.Role == graph.Frozen:
			frozen++
			if !same {
				t.Errorf("%s is frozen and changed", s.Name)
			}
		case s.Role == graph.Weight && same:
			t.Errorf("%s is trained and did not change", s.Name)
		}
	}
	if frozen != 37 {
		t.Errorf("%d tensors are frozen, the encoder has 37", frozen)
	}
}

// forward compiles one function and gives its program random weights, none of them zero.
func forward(t *testing.T, build func(b *graph.Builder)) *engine.Executable {
	t.Helper()
	b := graph.NewBuilder("f")
	if err := graph.Catch(func() { build(b) }); err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	r := arm(t, p)
	stir(t, r)
	return r
}

// stir moves every weight away from its initial value, by an amount that depends on its name.
func stir(t *testing.T, r *engine.Executable) {
	t.Helper()
	for _, s := range r.Program().States {
		if !parameter(s) || s.Name == "router.temperature" {
			continue
		}
		seed := float64(hash(1, s.Name) % 1000)
		x := held(t, r, s.Name)
		for i := range x {
			x[i] += .2 * float32(math.Sin(seed+1.7*float64(i)))
		}
		if err := r.SetFloats(s.Name, x); err != nil {
			t.Fatal(err)
		}
	}
}

// numbers returns ids from 3 on.
func numbers(n, vocab, seed int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(3 + (i*37+seed*101)%(vocab-3))
	}
	return out
}

// TestMergedEncoder: an encoder with a task's adapter merged into its weights computes the same as the
// adapted one.
func TestMergedEncoder(t *testing.T) {
	for _, task := range taskNames {
		c := load(t, small)
		e, rows, length := encoder(c), 3, 12
		r := forward(t, func(b *graph.Builder) {
			ids, lens := texts(b, "", rows, length)
			b.Output("plain", states(b, e, ids, lens, nil))
			b.Output("adapted", states(b, e, ids, lens, newAdapter(c, task).alone(false)))
		})
		setI32(t, r, at(inputIDs, ""), numbers(rows*length, e.Vocab, 1)...)
		setI32(t, r, at(inputLens, ""), 12, 5, 1)
		run(t, r, "f")
		plain, adapted := result32(t, r, "f", "plain"), result32(t, r, "f", "adapted")
		if far(plain, adapted) < 1e-2 {
			t.Errorf("%s: the adapter changes nothing", task)
		}
		merged := map[string][]float32{}
		n, err := merge(c, task, func(name string) []float32 {
			if merged[name] == nil {
				merged[name] = held(t, r, name)
			}
			return merged[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range merged {
			if err := r.SetFloats(name, x); err != nil {
				t.Fatal(err)
			}
		}
		if want := e.Layers * len(taskOf(c, task).Targets); n != want {
			t.Errorf("%s: %d layers were merged, want %d", task, n, want)
		}
		run(t, r, "f")
		if d := far(result32(t, r, "f", "plain"), adapted); d > 1e-5 {
			t.Errorf("%s: merged and adapted differ by %g", task, d)
		}
	}
}

// TestDispatchesAgree: a batch grouped by task, a mixture with all the weight on one task, and a task's own
// adapter compute the same.
func TestDispatchesAgree(t *testing.T) {
	c := load(t, small)
	e, each, length := encoder(c), 2, 8
	rows := each * len(taskNames)
	var as []adapter
	for _, name := range taskNames {
		as = append(as, newAdapter(c, name))
	}
	r := forward(t, func(b *graph.Builder) {
		ids, lens := texts(b, "", rows, length)
		b.Output("grouped", states(b, e, ids, lens, grouped(as, each, false)))
		b.Output("mixed", states(b, e, ids, lens, mixed(as, b.Input("gates", graph.T(graph.F32, rows, len(as))), false)))
		for _, a := range as {
			b.Output(a.task, states(b, e, ids, lens, a.alone(false)))
		}
	})
	setI32(t, r, at(inputIDs, ""), numbers(rows*length, e.Vocab, 2)...)
	lens, gates := make([]int32, rows), make([]float32, rows*len(as))
	for i := range lens {
		lens[i], gates[i*len(as)+i/each] = int32(length), 1
	}
	setI32(t, r, at(inputLens, ""), lens...)
	setF32(t, r, "gates", gates...)
	run(t, r, "f")
	n := each * length * e.D
	for i, a := range as {
		part := func(name string) []float32 { return result32(t, r, "f", name)[i*n : (i+1)*n] }
		if d := far(part("grouped"), part(a.task)); d > 1e-5 {
			t.Errorf("%s: grouped and alone differ by %g", a.task, d)
		}
		if d := far(part("mixed"), part(a.task)); d > 1e-5 {
			t.Errorf("%s: mixed and alone differ by %g", a.task, d)
		}
	}
}

// fullDecoder computes the logits of whole texts for a task that generates text.
func fullDecoder(t *testing.T, c *config.Config, task string, rows int) *engine.Executable {
	h := newHead(c, task, 0)
	return forward(t, func(b *graph.Builder) {
		ids, lens := texts(b, task, rows, lengthOf(c, task))
		x := states(b, h.bert, ids, lens, newAdapter(c, task).alone(false))
		table := tokenEmbedding(b, h.bert)
		h.scope(b, func() {
			y := h.hidden(b, table, b.Input("written", graph.T(graph.I32, rows, h.length)), source{states: x, lens: lens})
			b.Output("hidden", y)
			b.Output("logits", b.Linear(y, table, nil))
		})
	})
}

// TestDecoderIsCausal: a decoder's output for a token depends only on earlier tokens.
func TestDecoderIsCausal(t *testing.T) {
	c := load(t, small)
	r := fullDecoder(t, c, nameTranslation, 2)
	e := encoder(c)
	setI32(t, r, at(inputIDs, nameTranslation), numbers(2*16, e.Vocab, 3)...)
	setI32(t, r, at(inputLens, nameTranslation), 16, 7)
	written := numbers(2*8, e.Vocab, 4)
	hidden := func() []float32 {
		setI32(t, r, "written", written...)
		run(t, r, "f")
		return result32(t, r, "f", "hidden")
	}
	before := hidden()
	for k := 1; k < 8; k++ {
		was := written[k]
		written[k] = 3 + (was+5)%100
		after := hidden()
		if !slices.Equal(before[:k*e.D], after[:k*e.D]) {
			t.Errorf("a change at %d reaches back", k)
		}
		if slices.Equal(before[k*e.D:(k+1)*e.D], after[k*e.D:(k+1)*e.D]) {
			t.Errorf("a change at %d does not show there", k)
		}
		if !slices.Equal(before[8*e.D:], after[8*e.D:]) {
			t.Errorf("a change at %d reaches another text", k)
		}
		written[k] = was
	}
}

// testTokens returns a tokenizer of 300 tokens.
func testTokens(t *testing.T, c *config.Config) *textEncoder {
	t.Helper()
	doc := []byte(strings.Repeat("func (b *Buffer) Write(p []byte) (n int, err error) // writes the bytes of p to the end of the buffer\n", 50))
	own, err := token.TrainBPE(context.Background(), func(yield func([]byte, error) bool) { yield(doc, nil) }, token.TrainOptions{VocabSize: 300, Specials: markers})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := newTextEncoder(own, c)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// testPredictor returns a predictor with stirred weights.
func testPredictor(t *testing.T, c *config.Config, tasks []string, mixes bool) *taskPredictor {
	t.Helper()
	a, err := newTaskPredictor(c, testTokens(t, c), tasks, true, mixes, backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	stir(t, a.r)
	return a
}

// TestWritingOnMemory: generating token by token with the cache gives the logits of the whole text at once.
// A beam has the score of its text, however often rows of the cache moved.
func TestWritingOnMemory(t *testing.T) {
	for _, beams := range []int{1, 2, 5} {
		c := load(t, small, "--tasks.translation.beams", fmt.Sprint(beams))
		a := testPredictor(t, c, []string{nameTranslation, nameSummarization}, false)
		full := fullDecoder(t, c, nameTranslation, 1)
		for _, s := range full.Program().States {
			if err := full.SetFloats(s.Name, held(t, a.r, s.Name)); err != nil {
				t.Fatal(err)
			}
		}
		n := a.rows / beams
		var xs []text
		for i := range n {
			xs = append(xs, text{Input: fmt.Sprintf("write %d bytes", 3*i)})
		}
		if _, err := a.put(repeated(xs, beams), nameTranslation, 16); err != nil {
			t.Fatal(err)
		}
		run(t, a.r, funcRead+"@"+nameTranslation)
		found, err := a.search(nameTranslation, n, beams).Find(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		vocab := encoder(c).Vocab
		for i, b := range found {
			ids, _ := a.tok.ids(xs[i].Input, 16)
			setI32(t, full, at(inputIDs, nameTranslation), padded(ids, 16, a.tok.pad)...)
			setI32(t, full, at(inputLens, nameTranslation), int32(len(ids)))
			next := slices.Clone(b.Tokens)
			if b.Ended {
				next = append(next, a.tok.last)
			}
			setI32(t, full, "written", padded(append([]int32{a.tok.first}, b.Tokens...), 9, a.tok.pad)[:8]...)
			run(t, full, "f")
			logits := result32(t, full, "f", "logits")
			score := 0.0
			for k, id := range next {
				row := logits[k*vocab : (k+1)*vocab]
				score += float64(row[id]) - inference.LogSumExp(row)
				if beams == 1 && inference.Likeliest(row, 1)[0] != id {
					t.Errorf("text %d: token %d is %d, the likeliest is %d", i, k, id, inference.Likeliest(row, 1)[0])
				}
			}
			if math.Abs(score-b.Score) > 1e-3 {
				t.Errorf("%d beams: text %d scores %v, the whole text at once %v", beams, i, b.Score, score)
			}
			if len(next) == 0 {
				t.Errorf("text %d is empty", i)
			}
		}
	}
}

// TestStraightThrough: with Gumbel one adapter is drawn, with the gradient of the softmax.
func TestStraightThrough(t *testing.T) {
	gradient := func(gumbel bool, scores, noise []float32) (gates, d []float32) {
		rt := router{Router: Router{Gumbel: gumbel}, tasks: 3}
		p, err := engine.CompileTraining(engine.Training{
			Optimizer: engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8},
			Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
				s := b.Param("scores", graph.Zeros(), 2, 3)
				if !gumbel {
					s = b.Div(b.Add(s, b.Input(at(inputNoise, ""), s.Type)), b.Input(inputTau, graph.T(graph.F32)))
				}
				g := rt.gates(b, s, "", true)
				o := engine.Objective{Sum: b.Sum(b.Mul(g, b.Input("worth", graph.T(graph.F32, 2, 3))))}
				o.Outputs = []graph.Output{{Name: "gates", Value: g}}
				return o
			},
		}, engine.CompileOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		r := arm(t, p)
		if err := r.SetFloats("scores", scores); err != nil {
			t.Fatal(err)
		}
		setF32(t, r, at(inputNoise, ""), noise...)
		setF32(t, r, inputTau, .5)
		setF32(t, r, "worth", 1, 2, 4, 3, -1, 2)
		setF32(t, r, engine.InputInvWeight, 1)
		setF32(t, r, engine.InputLR, 0)
		run(t, r, engine.FuncStep)
		for _, m := range held(t, r, engine.Moment1+"scores") {
			d = append(d, 10*m)
		}
		return result32(t, r, engine.FuncStep, "gates"), d
	}
	scores, noise := []float32{.1, .4, -.3, 2, .5, .1}, []float32{.2, -.5, .3, 0, .1, .9}
	soft, want := gradient(false, scores, noise)
	hard, got := gradient(true, scores, noise)
	if d := far(got, want); d > 1e-5 {
		t.Errorf("the gradient %v differs from that of the softmax, %v", got, want)
	}
	for i, p := range soft {
		one := float32(0)
		if p == slices.Max(soft[i/3*3:i/3*3+3]) {
			one = 1
		}
		if math.Abs(float64(hard[i]-one)) > 1e-6 {
			t.Errorf("gates %v for probabilities %v", hard, soft)
		}
	}
}

// TestJointPasses: phase 3 computes the same whatever is recomputed, in all its dispatches.
func TestJointPasses(t *testing.T) {
	for _, flags := range [][]string{{"--router.dispatch", "hard"}, {"--router.dispatch", "soft"}, {"--router.dispatch", "soft", "--router.gumbel", "true"}} {
		c := load(t, small, append(flags, "--phases.stage", stageJoint, "--model.tasks", "[qa,translation]")...)
		losses := func(o engine.CompileOptions) []float32 {
			r := armed(t, c, o)
			stir(t, r)
			var out []float32
			for u := range 4 {
				v := []string{variantMixed, nameTranslation, nameQA, variantMixed}[u]
				fn := engine.Variant(engine.FuncStep, v)
				for _, in := range r.Program().Inputs {
					scatter(t, r, in, c)
				}
				setF32(t, r, engine.InputLR, 1e-3)
				setF32(t, r, engine.InputInvWeight, .1)
				run(t, r, fn)
				out = append(out, result32(t, r, fn, engine.OutputLoss)[0])
			}
			return out
		}
		want := losses(engine.CompileOptions{})
		if slices.ContainsFunc(want, func(x float32) bool { return !(x > 0) }) {
			t.Errorf("%v: losses %v", flags, want)
		}
		if got := losses(engine.CompileOptions{Recompute: pass.RecomputeFull}); !slices.Equal(got, want) {
			t.Errorf("%v: losses %v with recomputation, %v without", flags, got, want)
		}
	}
}

// scatter fills an input with valid values.
func scatter(t *testing.T, r *engine.Executable, in *graph.Value, c *config.Config) {
	t.Helper()
	x, _ := r.Input(0, in.Name)
	name, _, _ := strings.Cut(in.Name, "@")
	if in.DType() == graph.F32 {
		for i := range x.F32() {
			x.F32()[i] = map[string]float32{inputOutside: 0, inputNoise: float32(i % 3)}[name]
			if name == inputWeights || name == inputShare || name == inputTau {
				x.F32()[i] = 1
			}
		}
		return
	}
	limit := map[string]int{inputLens: 12, inputLabel: 2, inputStart: 5, inputEnd: 5, inputTask: 2}[name]
	if limit == 0 {
		limit = encoder(c).Vocab
	}
	for i := range x.I32() {
		x.I32()[i] = int32(i * 7 % limit)
		if name == inputLens {
			x.I32()[i]++
		}
	}
}
