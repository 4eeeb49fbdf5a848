package inference

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// model is a NeoX with random weights over bytes.
type model struct{ hf.NeoX }

func (m model) Positions() int { return m.MaxPositions }

func (m model) language(t *token.Tokenizer, weights string, store graph.DType) *Language {
	return &Language{Cached: m, Tokenizer: t, Weights: weights, Store: store}
}

// plain runs the whole sequence without a cache and gives the last logits.
func (m model) plain(t *testing.T, weights string, ids []int32) []float32 {
	t.Helper()
	b := graph.NewBuilder("plain")
	if err := graph.Catch(func() {
		b.Output("logits", m.Logits(b, b.Input("ids", graph.T(graph.I32, 1, len(ids))), nil))
	}); err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := FillWeights(r, func() (Weights, error) { return safetensors.Open(weights) }); err != nil {
		t.Fatal(err)
	}
	in, _ := r.Input(0, "ids")
	copy(in.I32(), ids)
	if err := r.Run("plain", 0); err != nil {
		t.Fatal(err)
	}
	out, _ := r.Output("plain", "logits")
	return slices.Clone(out.F32()[(len(ids)-1)*m.Vocab:])
}

// random writes weights for m.
func (m model) random(tb testing.TB) (path string) {
	tb.Helper()
	b := graph.NewBuilder("weights")
	if err := graph.Catch(func() { m.Logits(b, b.Input("ids", graph.T(graph.I32, 1, 2)), nil) }); err != nil {
		tb.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var entries []safetensors.Entry
	for _, v := range b.F.States {
		x := make([]float32, v.Shape().Elems())
		for i := range x {
			x[i] = float32(rng.NormFloat64() * 0.15)
		}
		entries = append(entries, safetensors.Entry{Name: v.Name, DType: safetensors.F32, Shape: v.Shape(), Data: unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))})
	}
	path = filepath.Join(tb.TempDir(), "model.safetensors")
	if err := safetensors.WriteFile(path, entries, nil); err != nil {
		tb.Fatal(err)
	}
	return path
}

func byteTokens(tb testing.TB) *token.Tokenizer {
	tb.Helper()
	t, err := token.Bytes(token.Special{Content: "<|endoftext|>", Roles: []token.Role{token.EOS}})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// Greedy text with the cache is the text of full forward runs, within the
// window and beyond it.
func TestGenerateEqualsFullForward(t *testing.T) {
	tk := byteTokens(t)
	m := model{hf.NeoX{Vocab: tk.VocabSize(), D: 32, Layers: 2, Heads: 4, FF: 64, MaxPositions: 96, RotaryPct: 0.5, RotaryBase: 10000,
		Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
	w := m.random(t)
	g, err := NewGenerator(m.language(tk, w, graph.F32), backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	prompt := strings.Repeat("the quick brown fox ", 3) // longer than one prefill
	ids := tk.Encode(nil, prompt)
	logits, err := g.feed(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for len(ids) < 80 {
		want := m.plain(t, w, ids)
		for i := range want {
			if d := want[i] - logits[i]; d > 1e-4 || d < -1e-4 {
				t.Fatalf("after %d tokens: logit %d is %v with the cache, %v without", len(ids), i, logits[i], want[i])
			}
		}
		next := (&sampler{}).next(logits)
		ids = append(ids, next)
		if logits, err = g.feed(context.Background(), ids[len(ids)-1:]); err != nil {
			t.Fatal(err)
		}
	}

	// Beyond the window the text continues, deterministically.
	write := func() string {
		var out bytes.Buffer
		n, err := g.Generate(context.Background(), prompt, 150, Sampling{}, &out)
		if err != nil || n == 0 {
			t.Fatalf("%d tokens, %v", n, err)
		}
		return out.String()
	}
	if a, b := write(), write(); a != b || !strings.HasPrefix(a, prompt) {
		t.Errorf("two greedy texts differ or lack the prompt:\n%q\n%q", a, b)
	}
}

// Sampling never leaves the top k, nor the top p, and follows its seed.
func TestSampler(t *testing.T) {
	logits := []float32{1, 5, 4.9, -2, 4.8, 0}
	draw := func(o Sampling) map[int32]int {
		s := newSampler(o)
		seen := map[int32]int{}
		for range 2000 {
			seen[s.next(logits)]++
		}
		return seen
	}
	for _, c := range []struct {
		opt  Sampling
		want int
	}{{Sampling{Temperature: 0}, 1}, {Sampling{Temperature: 1, TopK: 2}, 2}, {Sampling{Temperature: 1, TopP: 0.9}, 3}, {Sampling{Temperature: 5}, 6}} {
		if got := draw(c.opt); len(got) != c.want || got[1] == 0 {
			t.Errorf("%+v draws %v, want %d different tokens, the likeliest among them", c.opt, got, c.want)
		}
	}
}

// BenchmarkGenerate writes with a model of the size of work a.
func BenchmarkGenerate(b *testing.B) {
	for _, store := range []graph.DType{graph.F32, graph.BF16} {
		b.Run(store.String(), func(b *testing.B) { benchmarkGenerate(b, store) })
	}
}

func benchmarkGenerate(b *testing.B, store graph.DType) {
	tk := byteTokens(b)
	m := model{hf.NeoX{Vocab: 8192, D: 384, Layers: 6, Heads: 6, FF: 1536, MaxPositions: 256, RotaryPct: 0.25, RotaryBase: 10000,
		Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
	g, err := NewGenerator(m.language(tk, m.random(b), store), backend.CPU(2))
	if err != nil {
		b.Fatal(err)
	}
	defer g.d.hold()()
	ids := []int32{1, 2, 3}
	b.ResetTimer()
	n := 0
	for b.Loop() {
		if n%200 == 0 {
			g.d.forget(0)
		}
		if _, err := g.feed(context.Background(), ids[n%3:n%3+1]); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tok/s")
}
