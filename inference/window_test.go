package inference

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// wholeModel is the NeoX of the other tests without its cache.
type wholeModel struct{ model }

func (m wholeModel) Logits(b *graph.Builder, ids, last *graph.Value) *graph.Value {
	h := m.Hidden(b, hf.Input{IDs: ids})
	return b.Linear(b.Embedding(b.Reshape(h, ids.Shape()[1], m.D), last), m.Output(b), nil)
}

// A model without a cache writes what the same model writes with one, from
// short text to text longer than its window.
func TestWholeEqualsCache(t *testing.T) {
	tok := byteTokens(t)
	m := model{hf.NeoX{Vocab: tok.VocabSize(), D: 32, Layers: 2, Heads: 4, FF: 64, MaxPositions: 80, RotaryPct: 0.5, RotaryBase: 10000,
		Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
	w := m.random(t)
	cached, err := NewGenerator(m.language(tok, w, graph.F32), backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cached.Close() })
	whole, err := NewGenerator(&Language{Uncached: wholeModel{m}, Tokenizer: tok, Weights: w}, backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = whole.Close() })
	windows := whole.d.(*uncached).windows
	if !slices.Contains(windows, m.MaxPositions) || len(windows) < 2 {
		t.Errorf("windows of %v tokens for %d positions", windows, m.MaxPositions)
	}
	for _, temperature := range []float64{0, 1} {
		tokens, how := m.MaxPositions+20, Sampling{Temperature: temperature, Seed: 7}
		var a, b bytes.Buffer
		if _, err := cached.Generate(context.Background(), "go", tokens, how, &a); err != nil {
			t.Fatal(err)
		}
		if _, err := whole.Generate(context.Background(), "go", tokens, how, &b); err != nil {
			t.Fatal(err)
		}
		if a.String() != b.String() {
			t.Errorf("temperature %v: with a cache\n%q\nwithout\n%q", temperature, &a, &b)
		}
	}
}
