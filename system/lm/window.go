package lm

import (
	"context"
	"fmt"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Whole is a causal language model that has no cache: it reads its whole
// window for every token.
type Whole interface {
	// Logits of the token at position last I32 [1] of the ids I32 [1, T]: [1, V].
	Logits(b *graph.Builder, ids, last *graph.Value) *graph.Value
	// Positions is the longest sequence the model was made for.
	Positions() int
}

// Loader is a model with weights that a checkpoint does not hold, since they
// are not trained; Load fills them in before those of the checkpoint.
type Loader interface {
	Load(r *engine.Executable) error
}

// shortest is the length of the smallest window.
const shortest = 32

// NewWhole is [New] for models without a cache. The model is compiled for
// windows of several lengths, and each token is computed in the smallest that
// holds the text: being causal, the model does not see what lies behind it.
func NewWhole(net Whole, weights *safetensors.File, t *token.Tokenizer, on engine.Backend) (*Generator, error) {
	g := &Generator{t: t, positions: net.Positions()}
	g.eos, g.hasEOS = t.Special(token.EOS)
	var funcs []*graph.Func
	err := graph.Catch(func() {
		for n := min(shortest, g.positions); ; n = min(2*n, g.positions) {
			b := graph.NewBuilder(window(n))
			ids := b.Input("ids."+window(n), graph.T(graph.I32, 1, n))
			b.Output("logits", b.Cast(net.Logits(b, ids, b.Input("last", graph.T(graph.I32, 1))), graph.F32))
			funcs = append(funcs, b.F)
			g.windows = append(g.windows, n)
			if n == g.positions {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var load func(r *engine.Executable) error
	if l, ok := net.(Loader); ok {
		load = l.Load
	}
	return g, g.load(funcs, weights, on, load)
}

// window is the name of the function for a length.
func window(n int) string { return fmt.Sprintf("window%d", n) }

// read runs the model over what is known and ids, and gives the logits after
// the last.
func (g *Generator) read(ctx context.Context, ids []int32) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.known = append(g.known, ids...)
	n := g.windows[len(g.windows)-1]
	for _, w := range g.windows {
		if w >= len(g.known) {
			n = w
			break
		}
	}
	in, _ := g.r.Input(0, "ids."+window(n))
	clear(in.I32()[copy(in.I32(), g.known):])
	last, _ := g.r.Input(0, "last")
	last.I32()[0] = int32(len(g.known) - 1)
	if err := g.r.Run(window(n), 0); err != nil {
		return nil, err
	}
	return g.r.OutputF32(window(n), "logits")
}
