// Package lm uses trained language models: text continues text, one token at a
// time, with the keys and values of earlier positions kept.
package lm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// prefill is how many prompt tokens go through the model at a time, where it
// has as many positions.
const prefill = 32

// Net is a causal language model that can run on a cache.
type Net interface {
	// Logits of the new tokens ids I32 [1, T]: [T, V].
	Logits(b *graph.Builder, ids *graph.Value, c *hf.Cache) *graph.Value
	// Positions is the longest sequence the model was made for.
	Positions() int
}

// Generator writes text with a model.
type Generator struct {
	t         *token.Tokenizer
	r         *engine.Executable
	positions int
	prefill   int
	eos       int32
	hasEOS    bool
	known     []int32 // tokens in the window, whose keys and values a cache has
	windows   []int   // of a model without a cache, ascending
}

// New compiles the model for generation and loads its weights; matrices are
// kept in the format store. Arithmetic is float32.
func New(net Net, weights *safetensors.File, t *token.Tokenizer, store graph.DType, on engine.Backend) (*Generator, error) {
	var funcs []*graph.Func
	chunk := min(prefill, net.Positions())
	err := graph.Catch(func() {
		for _, f := range []struct {
			name string
			t    int
		}{{"decode", 1}, {"prefill", chunk}} {
			b := graph.NewBuilder(f.name)
			b.StoreMatrices(store)
			c := &hf.Cache{Positions: net.Positions(), At: b.Input("at", graph.T(graph.I32, 1)), Lens: b.Input("lens", graph.T(graph.I32, 1))}
			logits := net.Logits(b, b.Input("ids."+f.name, graph.T(graph.I32, 1, f.t)), c)
			if f.name == "decode" {
				b.Output("logits", b.Cast(logits, graph.F32))
			}
			funcs = append(funcs, b.F)
		}
	})
	if err != nil {
		return nil, err
	}
	g := &Generator{t: t, positions: net.Positions(), prefill: chunk}
	g.eos, g.hasEOS = t.Special(token.EOS)
	return g, g.load(funcs, weights, on, nil)
}

// load makes the generator ready to run funcs on what more, if any, fills in and on
// the weights.
func (g *Generator) load(funcs []*graph.Func, weights *safetensors.File, on engine.Backend, more func(r *engine.Executable) error) (err error) {
	if g.r, err = engine.LoadForward(on, engine.CompileOptions{}, funcs...); err != nil {
		return err
	}
	err = g.r.Initialize(0)
	if err == nil && more != nil {
		err = more(g.r)
	}
	if err == nil {
		err = loadWeights(g.r, weights)
	}
	if err != nil {
		return errors.Join(err, g.r.Close())
	}
	return nil
}

// loadWeights fills the program's weights from a file.
func loadWeights(r *engine.Executable, weights *safetensors.File) error {
	for _, s := range r.Program().States {
		if s.Role != graph.Weight {
			continue
		}
		x, err := weights.Tensor(s.Name)
		if err != nil {
			return err
		}
		if int(s.Type.Shape.Elems()) != numel(x.Shape) {
			return fmt.Errorf("tensor %s has shape %v, the model wants %v", s.Name, x.Shape, s.Type.Shape)
		}
		elems := make([]float32, numel(x.Shape))
		if err := x.Float32s(elems); err != nil {
			return err
		}
		if err := r.SetFloats(s.Name, elems); err != nil {
			return err
		}
	}
	return nil
}

func numel(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Close frees the model.
func (g *Generator) Close() error { return g.r.Close() }

// Options say how tokens are drawn.
type Options struct {
	Tokens      int
	Temperature float64 // 0: always the likeliest
	TopK        int     // 0: from all
	TopP        float64 // 1 (or 0): from all
	Seed        uint64
}

// Generate continues prompt, writing text to w as it comes, prompt included.
// It ends after opt.Tokens tokens or at the end of a document.
func (g *Generator) Generate(ctx context.Context, prompt string, opt Options, w io.Writer) (tokens int, err error) {
	defer token.Catch(&err)
	ids := g.t.Encode(nil, prompt)
	if len(ids) == 0 {
		if !g.hasEOS {
			return 0, fmt.Errorf("the prompt is empty and the tokenizer has no end-of-text token to start a document with")
		}
		ids = []int32{g.eos}
	}
	if _, err := io.WriteString(w, prompt); err != nil {
		return 0, err
	}
	defer g.r.Hold()()
	g.known = g.known[:0]
	text := g.t.Stream(true)
	rng := rand.New(rand.NewPCG(opt.Seed, 0))
	logits, err := g.feed(ctx, ids)
	if err != nil {
		return 0, err
	}
	pick := sampler{opt: opt, rng: rng}
	for ; tokens < opt.Tokens; tokens++ {
		next := pick.next(logits)
		if g.hasEOS && next == g.eos {
			break
		}
		if _, err := io.WriteString(w, text.Next(next)); err != nil {
			return tokens, err
		}
		ids = append(ids, next)
		if len(g.known) == g.positions {
			// The window is full: go on with its second half.
			g.known = g.known[:0]
			logits, err = g.feed(ctx, ids[len(ids)-max(1, g.positions/2):])
		} else {
			logits, err = g.feed(ctx, ids[len(ids)-1:])
		}
		if err != nil {
			return tokens, err
		}
	}
	_, err = io.WriteString(w, text.Flush())
	return tokens, err
}

// feed runs ids behind what is known and gives the logits after the last.
func (g *Generator) feed(ctx context.Context, ids []int32) ([]float32, error) {
	if keep := g.positions - len(g.known); len(ids) > keep {
		ids = ids[len(ids)-keep:]
	}
	if g.windows != nil {
		return g.read(ctx, ids)
	}
	for len(ids) > g.prefill {
		if err := g.run(ctx, "prefill", ids[:g.prefill]); err != nil {
			return nil, err
		}
		ids = ids[g.prefill:]
	}
	for i := range ids {
		if err := g.run(ctx, "decode", ids[i:i+1]); err != nil {
			return nil, err
		}
	}
	return g.r.OutputF32("decode", "logits")
}

func (g *Generator) run(ctx context.Context, fn string, ids []int32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, _ := g.r.Input(0, "ids."+fn)
	copy(in.I32(), ids)
	at, _ := g.r.Input(0, "at")
	at.I32()[0] = int32(len(g.known))
	g.known = append(g.known, ids...)
	lens, _ := g.r.Input(0, "lens")
	lens.I32()[0] = int32(len(g.known))
	return g.r.Run(fn, 0)
}

// sampler draws tokens.
type sampler struct {
	opt   Options
	rng   *rand.Rand
	order []int32
	p     []float64
}

func (s *sampler) next(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	if s.opt.Temperature == 0 {
		return int32(best)
	}
	s.order = s.order[:0]
	for i := range logits {
		s.order = append(s.order, int32(i))
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		switch x, y := logits[a], logits[b]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a - b)
	})
	n := len(s.order)
	if s.opt.TopK > 0 {
		n = min(n, s.opt.TopK)
	}
	s.p = s.p[:0]
	total := 0.0
	for _, id := range s.order[:n] {
		p := math.Exp(float64(logits[id]-logits[best]) / s.opt.Temperature)
		s.p = append(s.p, p)
		total += p
	}
	limit := total
	if s.opt.TopP > 0 && s.opt.TopP < 1 {
		limit = total * s.opt.TopP
		sum := 0.0
		for i, p := range s.p {
			if sum += p; sum >= limit {
				limit = sum
				n = i + 1
				break
			}
		}
	}
	x := s.rng.Float64() * limit
	for i, p := range s.p[:n] {
		if x -= p; x < 0 {
			return s.order[i]
		}
	}
	return s.order[n-1]
}
