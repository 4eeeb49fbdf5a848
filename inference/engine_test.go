package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
)

// languages returns a model on a cache, with its matrices in both formats, and one
// without a cache.
func languages(t *testing.T) map[string]*Language {
	t.Helper()
	tok := byteTokens(t)
	m := model{hf.NeoX{Vocab: tok.VocabSize(), D: 48, Layers: 2, Heads: 4, FF: 96, MaxPositions: 120, RotaryPct: 0.5, RotaryBase: 10000,
		Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
	w := m.random(t)
	return map[string]*Language{
		"cache":      m.language(tok, w, graph.F32),
		"bf16 cache": m.language(tok, w, graph.BF16),
		"no cache":   {Uncached: wholeModel{m}, Tokenizer: tok, Weights: w},
	}
}

func newTestEngine(t *testing.T, l *Language, opt EngineOptions) *Engine {
	t.Helper()
	opt.Waiting = max(opt.Waiting, 64)
	e, err := NewEngine(l, opt, backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// result is everything that was reported about a text.
type result struct {
	prompt, pieces []Piece
	finish         Finish
	written        int
}

func (r *result) text() string {
	var s strings.Builder
	for _, p := range r.pieces {
		s.WriteString(p.Text)
	}
	return s.String()
}

func (r *result) String() string {
	s := fmt.Sprintf("%q %s %d:", r.text(), r.finish, r.written)
	for _, p := range slices.Concat(r.prompt, r.pieces) {
		s += fmt.Sprintf(" %d", p.Token)
		if p.Logprob != nil {
			s += fmt.Sprintf(" %x %x", *p.Logprob, p.Top)
		}
	}
	return s
}

// written requests texts and waits for them.
func written(t *testing.T, e *Engine, texts ...TextRequest) []*result {
	t.Helper()
	events, err := e.Write(context.Background(), texts)
	if err != nil {
		t.Error(err)
		return make([]*result, len(texts))
	}
	out := make([]*result, len(texts))
	for i := range out {
		out[i] = &result{}
	}
	for v := range events {
		r := out[v.Text]
		switch {
		case v.Err != nil:
			t.Error(v.Err)
		case r.finish != "":
			t.Errorf("text %d: %+v after its end", v.Text, v)
		case v.Prompt:
			r.prompt = v.Pieces
		default:
			r.pieces = append(r.pieces, v.Pieces...)
		}
		r.finish, r.written = v.Finish, v.Written
	}
	return out
}

// requests differ in everything that a text depends on.
func requests(t *testing.T, l *Language) []TextRequest {
	t.Helper()
	two := 2
	var out []TextRequest
	for i, prompt := range []string{"a", "func main", strings.Repeat("the quick brown fox ", 4), strings.Repeat("x", 33), strings.Repeat("yes no ", 9), "tail", "snug", "0123456789", "again"} {
		ids, err := l.Encode(prompt)
		if err != nil {
			t.Fatal(err)
		}
		r := TextRequest{Prompt: ids, Tokens: 12 + 3*i, Sampling: Sampling{Temperature: float64(i%3) * 0.6, TopP: 0.95, Seed: uint64(i)}}
		if i%2 == 1 {
			r.Logprobs, r.ScorePrompt = &two, i > 3
		}
		out = append(out, r)
	}
	return out
}

// A text depends neither on the texts next to it nor on the number of rows, and
// without a temperature it is what the generator writes.
func TestTextsDoNotDependOnEachOther(t *testing.T) {
	for name, l := range languages(t) {
		t.Run(name, func(t *testing.T) {
			list := requests(t, l)
			var want []string
			alone := newTestEngine(t, l, EngineOptions{Rows: 1})
			g, err := NewGenerator(l, backend.CPU(1))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = g.Close() }()
			for _, r := range list {
				got := written(t, alone, r)[0]
				want = append(want, got.String())
				var text strings.Builder
				prompt := l.Tokenizer.Decode(r.Prompt, false)
				if _, err := g.Generate(context.Background(), prompt, r.Tokens, r.Sampling, &text); err != nil {
					t.Fatal(err)
				}
				if text.String() != prompt+got.text() {
					t.Errorf("the generator writes %q, the engine %q", text.String(), prompt+got.text())
				}
			}
			for _, rows := range []int{2, 3, 4, 6, 9} {
				e := newTestEngine(t, l, EngineOptions{Rows: rows})
				var all sync.WaitGroup
				for k := range 2 * len(list) { // from many goroutines, so rows change hands in any order
					all.Go(func() {
						if got := written(t, e, list[k%len(list)])[0].String(); got != want[k%len(list)] {
							t.Errorf("%d rows: among others\n%s\nalone\n%s", rows, got, want[k%len(list)])
						}
					})
				}
				all.Wait()
				for i, r := range written(t, e, list...) { // in one request
					if r.String() != want[i] {
						t.Errorf("%d rows, one request:\n%s\nalone\n%s", rows, r, want[i])
					}
				}
			}
		})
	}
}

// Probabilities are those of the plain model, of the prompt's tokens too.
func TestLogprobs(t *testing.T) {
	l := languages(t)["cache"]
	m := l.Cached.(model)
	e := newTestEngine(t, l, EngineOptions{Rows: 2})
	n := 3
	ids, err := l.Encode(strings.Repeat("once upon a time ", 3))
	if err != nil {
		t.Fatal(err)
	}
	r := written(t, e, TextRequest{Prompt: ids, Tokens: 4, Logprobs: &n, ScorePrompt: true})[0]
	all := slices.Concat(r.prompt, r.pieces)
	if len(all) != len(ids)+4 || all[0].Logprob != nil {
		t.Fatalf("%d pieces for %d tokens; the first has %v", len(all), len(ids)+4, all[0].Logprob)
	}
	var known []int32
	for i, p := range all {
		if i > 0 {
			logits := m.plain(t, l.Weights, known)
			want := Piece{Token: p.Token}
			want.score(logits, n)
			if d := *p.Logprob - *want.Logprob; d > 1e-4 || d < -1e-4 || len(p.Top) != n || p.Top[0].Token != want.Top[0].Token {
				t.Errorf("token %d: %v %v, want %v %v", i, *p.Logprob, p.Top, *want.Logprob, want.Top)
			}
		}
		known = append(known, p.Token)
	}
}

// A row is freed when its text's caller no longer waits, and the next in line gets it.
func TestLeftTexts(t *testing.T) {
	l := languages(t)["cache"]
	e := newTestEngine(t, l, EngineOptions{Rows: 1})
	long := TextRequest{Prompt: []int32{1}, Tokens: l.Positions() - 1, Sampling: Sampling{Temperature: 1}}
	ctx, leave := context.WithCancel(context.Background())
	leave()
	events, err := e.Write(ctx, []TextRequest{long, long, long})
	if err != nil {
		t.Fatal(err)
	}
	errs := 0
	for v := range events {
		if errors.Is(v.Err, context.Canceled) {
			errs++
		}
	}
	if errs != 3 {
		t.Errorf("%d of 3 texts ended with their request", errs)
	}
	if r := written(t, e, TextRequest{Prompt: []int32{1}, Tokens: 2})[0]; r.written != 2 {
		t.Errorf("afterwards: %v", r)
	}

	// A waiting text ends with its request, however long the rows are taken.
	busy := make([]TextRequest, 40)
	for i := range busy {
		busy[i] = TextRequest{Prompt: []int32{1}, Tokens: l.Positions() - 1}
	}
	running, err := e.Write(context.Background(), busy)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if events, err = e.Write(short, []TextRequest{long}); err != nil {
		t.Fatal(err)
	}
	if v := <-events; !errors.Is(v.Err, context.DeadlineExceeded) {
		t.Errorf("a text that waits beyond its time: %+v", v)
	}
	left := 0
	for v := range running {
		if v.Finish != "" {
			left++
		}
	}
	if left < 2 {
		t.Error("it ended only once a row was free")
	}
}

// One text too many is refused, and all are refused after the end; accepted ones are
// written.
func TestEngineRefuses(t *testing.T) {
	l := languages(t)["cache"]
	e, err := NewEngine(l, EngineOptions{Rows: 1, Waiting: 2}, backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	one := TextRequest{Prompt: []int32{1}, Tokens: 60}
	if _, err := e.Write(context.Background(), []TextRequest{one, one, one, one}); !errors.Is(err, ErrBusy) {
		t.Errorf("4 texts for a row and two places: %v", err)
	}
	events, err := e.Write(context.Background(), []TextRequest{one, one, one})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Write(context.Background(), []TextRequest{{Prompt: []int32{1}, Tokens: l.Positions()}}); err == nil {
		t.Error("a text longer than the context was accepted")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	finished := 0
	for v := range events {
		if v.Finish == FinishLength {
			finished++
		}
	}
	if finished != 3 {
		t.Errorf("%d of 3 accepted texts were finished", finished)
	}
	if _, err := e.Write(context.Background(), []TextRequest{one}); !errors.Is(err, ErrStopping) {
		t.Errorf("after the end: %v", err)
	}
}

// Stop strings end a text wherever tokens divide them, and are not part of it.
func TestStopper(t *testing.T) {
	for _, c := range []struct {
		tokens string // with | between
		stop   []string
		want   string
	}{
		{"ab|cd|ef", []string{"de"}, "abc"}, {"ab|cd|ef", []string{"x"}, "abcdef"}, {"aa|ab", []string{"aab"}, "a"}, {"a|a|a|b", []string{"aab"}, "a"},
		{"abc", []string{"abc"}, ""}, {"ab|", []string{"abc"}, "ab"}, {"xay", []string{"ay", "xa"}, ""}, {"|a||b|", nil, "ab"}, {"the| end|.", []string{"\n\n", "end."}, "the "},
	} {
		s := stopper{stop: c.stop}
		got, ended := "", false
		take := func(last bool) {
			var pieces []Piece
			pieces, ended = s.certain(last)
			for _, p := range pieces {
				got += p.Text
			}
		}
		for _, text := range strings.Split(c.tokens, "|") {
			if s.add(Piece{Text: text}); !ended {
				take(false)
			}
		}
		if !ended {
			take(true)
		}
		if got != c.want {
			t.Errorf("%q until %q: %q, want %q", c.tokens, c.stop, got, c.want)
		}
	}
}

// The plan is the program's arena, rows are reduced to what fits, and what cannot
// fit is refused.
func TestEnginePlan(t *testing.T) {
	l := languages(t)["cache"]
	free := newTestEngine(t, l, EngineOptions{}).Plan
	wide := int64(2 * 2 * (120 + prefillTokens) * 48 * 4) // keys and values of two layers, for each row
	if free.Rows != mostRows || free.Context != 120 || free.Cache < mostRows*wide {
		t.Errorf("%+v, a row takes %d", free, wide)
	}
	less := newTestEngine(t, l, EngineOptions{Target: plan.Target{Memory: free.Total - 1}}).Plan
	if less.Rows != mostRows/2 || less.Total >= free.Total {
		t.Errorf("with less: %+v", less)
	}
	for _, opt := range []EngineOptions{{Rows: mostRows, Target: plan.Target{Memory: free.Total - 1}}, {Target: plan.Target{Memory: 1 << 20}}} {
		_, err := NewEngine(l, opt, backend.CPU(2))
		var refused *DoesNotFit
		if !errors.As(err, &refused) || refused.Total <= opt.Target.Memory || refused.ExitCode() != 3 {
			t.Errorf("%+v: %v", opt, err)
		}
	}
	if _, err := NewEngine(l, EngineOptions{Context: 121}, backend.CPU(1)); err == nil {
		t.Error("a context longer than the model's was accepted")
	}
}

// A device whose memory is private and which refuses positions outside the cache
// writes the same.
func TestReferenceDeviceWritesTheSame(t *testing.T) {
	on, err := backend.Open(backend.Options{Device: "reference"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := token.Bytes(token.Special{Content: "<|endoftext|>", Roles: []token.Role{token.EOS}})
	if err != nil {
		t.Fatal(err)
	}
	m := model{hf.NeoX{Vocab: tok.VocabSize(), D: 8, Layers: 1, Heads: 2, FF: 8, MaxPositions: 48, RotaryPct: 1, RotaryBase: 10000,
		Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
	l := m.language(tok, m.random(t), graph.F32)
	var want []string
	for _, device := range []engine.Backend{backend.CPU(1), on} {
		e, err := NewEngine(l, EngineOptions{Rows: 3, Waiting: 8}, device)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		prompt := make([]int32, 40)
		for i, r := range written(t, e, TextRequest{Prompt: prompt, Tokens: 3}, TextRequest{Prompt: prompt[:3], Tokens: 6}, TextRequest{Prompt: prompt[:1], Tokens: 4}) {
			got = append(got, fmt.Sprint(i, r.text(), r.finish))
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s writes %q, the CPU %q", device.Name(), got, want)
		}
	}
}

// BenchmarkEngine writes with as many texts at once as the name says.
func BenchmarkEngine(b *testing.B) {
	for _, rows := range []int{1, 4, 8} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			tok := byteTokens(b)
			m := model{hf.NeoX{Vocab: 4096, D: 256, Layers: 4, Heads: 4, FF: 1024, MaxPositions: 256, RotaryPct: 0.25, RotaryBase: 10000,
				Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
			l := m.language(tok, m.random(b), graph.F32)
			e, err := NewEngine(l, EngineOptions{Rows: rows, Waiting: 64}, backend.CPU(2))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			n := 0
			began := time.Now()
			for b.Loop() {
				texts := make([]TextRequest, rows)
				for i := range texts {
					texts[i] = TextRequest{Prompt: []int32{1, 2, 3}, Tokens: 100, Sampling: Sampling{Seed: uint64(i)}}
				}
				events, err := e.Write(context.Background(), texts)
				if err != nil {
					b.Fatal(err)
				}
				for v := range events {
					n += v.Written
				}
			}
			b.ReportMetric(float64(n)/time.Since(began).Seconds(), "tok/s")
		})
	}
}
