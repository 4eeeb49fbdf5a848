package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
	"github.com/snug-ml/snug/nn/hf"
)

type causal struct{ hf.NeoX }

func (n causal) Positions() int { return n.MaxPositions }

// eos ends a document.
var eos = token.Special{Content: "<|endoftext|>", Roles: []token.Role{token.EOS}}

// language is a small model of bytes with random weights; without special tokens its
// texts do not end by themselves.
func language(t *testing.T, positions int, special ...token.Special) *inference.Language {
	t.Helper()
	tok, err := token.Bytes(special...)
	if err != nil {
		t.Fatal(err)
	}
	m := causal{hf.NeoX{Vocab: tok.VocabSize(), D: 24, Layers: 2, Heads: 2, FF: 48, MaxPositions: positions, RotaryPct: 0.5, RotaryBase: 10000,
		Activation: "gelu", Eps: 1e-5, InitStd: 0.02}}
	b := graph.NewBuilder("weights")
	if err := graph.Catch(func() { m.Logits(b, b.Input("ids", graph.T(graph.I32, 1, 2)), nil) }); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var entries []safetensors.Entry
	for _, v := range b.F.States {
		x := make([]float32, v.Shape().Elems())
		for i := range x {
			x[i] = float32(rng.NormFloat64() * 0.2)
		}
		entries = append(entries, safetensors.Entry{Name: v.Name, DType: safetensors.F32, Shape: v.Shape(), Data: unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))})
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := safetensors.WriteFile(path, entries, nil); err != nil {
		t.Fatal(err)
	}
	return &inference.Language{Cached: m, Tokenizer: tok, Weights: path}
}

// patience is how long requests may take: machines may be slow and busy.
const patience = time.Hour

// running is a server on a socket.
type running struct {
	url   string
	drain func()
	ended chan error
}

func start(t *testing.T, l *inference.Language, rows int, change func(o *serve.Options)) *running {
	t.Helper()
	opt := serve.Options{MaxBody: 1 << 20, MaxText: 20_000, MaxTexts: 256, Timeout: patience, Waiting: 512}
	if change != nil {
		change(&opt)
	}
	e, err := inference.NewEngine(l, inference.EngineOptions{Rows: rows, Waiting: opt.Waiting}, backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	server := serve.New(New(e, "small", opt), opt)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, drain := context.WithCancel(context.Background())
	r := &running{url: "http://" + socket.Addr().String(), drain: drain, ended: make(chan error, 1)}
	go func() { r.ended <- errors.Join(server.Run(ctx, socket, patience, func() {}), server.Close()) }()
	t.Cleanup(func() {
		drain()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// answer is a response whose body is read or closed by its user.
type answer struct {
	status int
	header http.Header
	body   io.ReadCloser
}

func (r *running) send(t *testing.T, method, path, body string, headers ...string) *answer {
	t.Helper()
	return r.sendUntil(context.Background(), t, method, path, body, headers...)
}

func (r *running) sendUntil(ctx context.Context, t *testing.T, method, path, body string, headers ...string) *answer {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(q) //nolint:bodyclose // the answer has it
	if err != nil {
		t.Fatal(err)
	}
	return &answer{res.StatusCode, res.Header, res.Body}
}

// body is a request with a model, a prompt and the given extra fields.
func body(t *testing.T, more map[string]any) string {
	t.Helper()
	q := map[string]any{"model": "small", "prompt": "hello", "max_tokens": 12, "temperature": 0}
	for k, v := range more {
		q[k] = v
	}
	raw, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func decoded[T any](t *testing.T, res *answer) (x T) {
	t.Helper()
	raw, err := io.ReadAll(res.body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.body.Close()
	if err := json.Unmarshal(raw, &x); err != nil {
		t.Fatalf("%d %s: %v", res.status, raw, err)
	}
	return x
}

func (r *running) ask(t *testing.T, more map[string]any) *completion {
	t.Helper()
	res := r.send(t, "POST", "/v1/completions", body(t, more))
	if res.status != http.StatusOK || res.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %d %v", more, res.status, decoded[map[string]any](t, res))
	}
	return decoded[*completion](t, res)
}

// stream reads the events of an answer.
func stream(t *testing.T, res *answer) (events []*completion) {
	t.Helper()
	if kind := res.header.Get("Content-Type"); res.status != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("%d %s", res.status, kind)
	}
	done := false
	for s := bufio.NewScanner(res.body); s.Scan(); {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		switch {
		case s.Text() == "":
		case !ok || done:
			t.Fatalf("the stream says %q", s.Text())
		case data == "[DONE]":
			done = true
		default:
			var c *completion
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				t.Fatal(err)
			}
			events = append(events, c)
		}
	}
	_ = res.body.Close()
	if !done {
		t.Error("the stream has no end")
	}
	return events
}

func TestOverSocket(t *testing.T) {
	r := start(t, language(t, 100, eos), 3, nil)
	models := decoded[map[string]any](t, r.send(t, "GET", "/v1/models", ""))
	if list := models["data"].([]any); len(list) != 1 || list[0].(map[string]any)["id"] != "small" {
		t.Errorf("models: %v", models)
	}
	if one := decoded[map[string]any](t, r.send(t, "GET", "/v1/models/small", "")); one["object"] != "model" {
		t.Errorf("model: %v", one)
	}
	plain := r.ask(t, nil)
	text := plain.Choices[0].Text
	if plain.Object != "text_completion" || plain.Model != "small" || !strings.HasPrefix(plain.ID, "cmpl-") || *plain.Choices[0].Finish != inference.FinishLength ||
		*plain.Usage != (usage{5, 12, 17}) || plain.Choices[0].Logprobs != nil {
		t.Errorf("%+v %+v %+v", plain, plain.Choices[0], plain.Usage)
	}

	events := stream(t, r.send(t, "POST", "/v1/completions", body(t, map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}})))
	last := events[len(events)-1]
	streamed := ""
	for _, c := range events[:len(events)-1] {
		streamed += c.Choices[0].Text
		if c.Usage != nil || c.ID != last.ID {
			t.Errorf("an event: %+v", c)
		}
	}
	if streamed != text || len(last.Choices) != 0 || *last.Usage != *plain.Usage || *events[len(events)-2].Choices[0].Finish != inference.FinishLength {
		t.Errorf("streamed %q with %+v, whole %q with %+v", streamed, last.Usage, text, plain.Usage)
	}

	warm := map[string]any{"temperature": 1, "seed": 7}
	several := r.ask(t, map[string]any{"temperature": 1, "seed": 7, "n": 3, "prompt": []string{"hello", "you"}})
	var different []string
	for i, c := range several.Choices {
		if c.Index != i {
			t.Errorf("choice %d has index %d", i, c.Index)
		}
		different = append(different, c.Text)
	}
	slices.Sort(different)
	if len(slices.Compact(different)) != 6 || several.Choices[0].Text != r.ask(t, warm).Choices[0].Text || several.Usage.Prompt != 8 {
		t.Errorf("choices %q", different)
	}

	scored := r.ask(t, map[string]any{"logprobs": 2, "echo": true}).Choices[0]
	p := scored.Logprobs
	if scored.Text != "hello"+text || len(p.Tokens) != 17 || p.Tokens[0] != "h" || p.Logprobs[0] != nil || p.Top[0] != nil || len(p.Top[3]) < 2 || p.Offsets[4] != 4 {
		t.Errorf("%q %+v", scored.Text, p)
	}
	if echoed := r.ask(t, map[string]any{"max_tokens": 0, "echo": true}); echoed.Choices[0].Text != "hello" || echoed.Usage.Completion != 0 {
		t.Errorf("%+v", echoed.Choices[0])
	}

	for seed := range 20 { // until there is a character to stop at
		warm := map[string]any{"temperature": 1, "seed": seed}
		text := r.ask(t, warm).Choices[0].Text
		at := strings.IndexFunc(text, func(c rune) bool { return c > ' ' && c < 127 })
		if at < 1 {
			continue
		}
		warm["stop"] = []string{"<never>", text[at : at+1]}
		if cut := r.ask(t, warm).Choices[0]; cut.Text != text[:at] || *cut.Finish != inference.FinishStop {
			t.Errorf("until %q: %q of %q, %s", warm["stop"], cut.Text, text, *cut.Finish)
		}
		break
	}
	if ids := r.ask(t, map[string]any{"prompt": []int{104, 105}}); ids.Usage.Prompt != 2 {
		t.Errorf("%+v", ids.Usage)
	}
	if nothing := r.ask(t, map[string]any{"prompt": nil, "suffix": nil, "best_of": 1, "logit_bias": nil, "presence_penalty": 0, "user": "me"}); nothing.Usage.Prompt != 1 {
		t.Errorf("%+v", nothing.Usage)
	}
}

// Whatever is not understood is refused in OpenAI's form, and names the field.
func TestErrors(t *testing.T) {
	r := start(t, language(t, 100, eos), 2, func(o *serve.Options) { o.Waiting, o.MaxTexts, o.MaxText, o.MaxBody = 2, 8, 50, 2000 })
	for _, c := range []struct {
		more        map[string]any
		status      int
		param, code string
		want        string
	}{
		{map[string]any{"model": "other"}, 404, "model", "model_not_found", `"small"`},
		{map[string]any{"model": nil}, 400, "model", "missing_required_parameter", "small"},
		{map[string]any{"suffix": "x"}, 400, "suffix", "unsupported_parameter", "suffix is not supported"},
		{map[string]any{"best_of": 2}, 400, "best_of", "unsupported_parameter", ""},
		{map[string]any{"logit_bias": map[string]any{"5": 1}}, 400, "logit_bias", "unsupported_parameter", ""},
		{map[string]any{"frequency_penalty": 0.5}, 400, "frequency_penalty", "unsupported_parameter", ""},
		{map[string]any{"messages": []any{}}, 400, "messages", "unknown_parameter", "there is no parameter messages"},
		{map[string]any{"temperature": 2.5}, 400, "temperature", "invalid_value", "0 to 2"},
		{map[string]any{"temperature": "hot"}, 400, "temperature", "invalid_value", `want a number, got "hot"`},
		{map[string]any{"top_p": 0}, 400, "top_p", "invalid_value", "above 0"},
		{map[string]any{"n": 0}, 400, "n", "invalid_value", "at least 1"},
		{map[string]any{"n": 9}, 400, "n", "invalid_value", "at most 8"},
		{map[string]any{"n": 5}, 429, "", "rate_limit_exceeded", "overloaded"},
		{map[string]any{"max_tokens": -1}, 400, "max_tokens", "invalid_value", ""},
		{map[string]any{"max_tokens": 1.5}, 400, "max_tokens", "invalid_value", "whole number"},
		{map[string]any{"max_tokens": 96}, 400, "prompt", "context_length_exceeded", "maximum context length is 100 tokens, however you requested 101 tokens (5 in your prompt; 96"},
		{map[string]any{"logprobs": 6}, 400, "logprobs", "invalid_value", "0 to 5"},
		{map[string]any{"stop": []string{"a", "b", "c", "d", "e"}}, 400, "stop", "invalid_value", "at most 4"},
		{map[string]any{"stop": []any{1}}, 400, "stop", "invalid_value", "got [1]"},
		{map[string]any{"stop": ""}, 400, "stop", "invalid_value", "empty"},
		{map[string]any{"prompt": []any{"a", 1}}, 400, "prompt", "invalid_value", "want a string"},
		{map[string]any{"prompt": []any{}}, 400, "prompt", "invalid_value", "empty"},
		{map[string]any{"prompt": []int{5, 100000}}, 400, "prompt", "invalid_value", "token 1 is 100000"},
		{map[string]any{"prompt": strings.Repeat("x", 51)}, 413, "prompt", "string_above_max_length", "at most 50"},
		{map[string]any{"stream_options": map[string]any{"include_usage": true}}, 400, "stream_options", "invalid_value", "needs stream"},
		{map[string]any{"stream": true, "stream_options": map[string]any{"x": 1}}, 400, "stream_options.x", "unknown_parameter", ""},
		{map[string]any{"user": strings.Repeat("x", 2000)}, 413, "", "", "longer than 2000"},
	} {
		res := r.send(t, "POST", "/v1/completions", body(t, c.more))
		retry := res.header.Get("Retry-After")
		e := decoded[struct {
			Error struct {
				Message, Type string
				Param, Code   *string
			}
		}](t, res).Error
		text := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		kind := map[int]string{429: "rate_limit_error"}[c.status]
		if kind == "" {
			kind = "invalid_request_error"
		}
		if res.status != c.status || text(e.Param) != c.param || text(e.Code) != c.code || !strings.Contains(e.Message, c.want) || e.Type != kind || (retry != "") != (c.status == 429) {
			t.Errorf("%v: %d %+v %q %q, Retry-After %q", c.more, res.status, e, text(e.Param), text(e.Code), retry)
		}
	}
	for path, want := range map[string]int{"/v1/chat/completions": 404, "/v1/models": 405, "/v1/models/": 405} {
		if res := r.send(t, "POST", path, "{}"); res.status != want || decoded[map[string]any](t, res)["error"] == nil {
			t.Errorf("POST %s: %d", path, res.status)
		}
	}
	twice := strings.Replace(body(t, nil), "{", `{"max_tokens": 3, `, 1)
	if res := r.send(t, "POST", "/v1/completions", twice); res.status != 400 || !strings.Contains(fmt.Sprint(decoded[map[string]any](t, res)), `the key "max_tokens" is given twice`) {
		t.Errorf("a field twice: %d", res.status)
	}
	if res := r.send(t, "GET", "/v1/models/other", ""); res.status != 404 || !strings.Contains(fmt.Sprint(decoded[map[string]any](t, res)), "model_not_found") {
		t.Errorf("another model: %d", res.status)
	}
}

// A request that does not arrive, in time or whole, gets an answer that says so.
func TestBodyDoesNotArrive(t *testing.T) {
	r := start(t, language(t, 50, eos), 1, func(o *serve.Options) { o.Timeout = 300 * time.Millisecond })
	for _, c := range []struct {
		ends   bool
		status int
		want   string
	}{
		{false, http.StatusRequestTimeout, "only 10 bytes of its body did"},
		{true, http.StatusBadRequest, "its body ended after 10 bytes"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"model\": ")
		if c.ends {
			err = errors.Join(err, conn.(*net.TCPConn).CloseWrite())
		}
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the answer has it
		if err != nil {
			t.Fatal(err)
		}
		if out := decoded[map[string]any](t, &answer{res.StatusCode, res.Header, res.Body}); res.StatusCode != c.status || !strings.Contains(fmt.Sprint(out), c.want) {
			t.Errorf("%d %v, want %d with %q", res.StatusCode, out, c.status, c.want)
		}
		_ = conn.Close()
	}
}

func TestToken(t *testing.T) {
	r := start(t, language(t, 50, eos), 1, func(o *serve.Options) { o.Token = "secret" })
	for header, want := range map[string]int{"Bearer secret": 200, "bearer secret": 200, "Bearer other": 401, "Basic secret": 401, "secret": 401, "": 401} {
		res := r.send(t, "GET", "/v1/models", "", "Authorization", header)
		if out := decoded[map[string]any](t, res); res.status != want || want == 401 && !strings.Contains(fmt.Sprint(out), "invalid_api_key") {
			t.Errorf("%q: %d %v", header, res.status, out)
		}
	}
}

// Concurrent requests share steps and get the same results as alone.
func TestConcurrentRequests(t *testing.T) {
	r := start(t, language(t, 100, eos), 6, nil)
	ask := func(seed int) map[string]any { return map[string]any{"seed": seed, "temperature": 1, "max_tokens": 60} }
	var alone []string
	for seed := range 9 {
		alone = append(alone, r.ask(t, ask(seed)).Choices[0].Text)
	}
	before := r.health(t)["steps"].(float64)
	var all sync.WaitGroup
	for seed := range 9 {
		all.Go(func() {
			if got := r.ask(t, ask(seed)).Choices[0].Text; got != alone[seed] {
				t.Errorf("seed %d: among others %q, alone %q", seed, got, alone[seed])
			}
		})
	}
	all.Wait()
	if steps := r.health(t)["steps"].(float64) - before; steps >= before {
		t.Errorf("9 texts at once took %v steps, one after the other %v", steps, before)
	}
}

func (r *running) health(t *testing.T) map[string]any {
	t.Helper()
	return decoded[map[string]any](t, r.send(t, "GET", "/healthz", ""))
}

// long is a request that takes a while.
func long(t *testing.T, tokens int) string {
	t.Helper()
	return body(t, map[string]any{"max_tokens": tokens, "stream": true, "temperature": 1, "seed": 1})
}

// A client that disconnects frees its row.
func TestDisconnect(t *testing.T) {
	r := start(t, language(t, 6000), 1, nil)
	ctx, leave := context.WithCancel(context.Background())
	res := r.sendUntil(ctx, t, "POST", "/v1/completions", long(t, 5000))
	if _, err := res.body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	leave()
	_ = res.body.Close()
	if r.ask(t, nil).Usage.Completion != 12 {
		t.Error("the next request was not answered")
	}
	if h := r.health(t); h["running"] != 0.0 || h["tokens"].(float64) >= 5000 {
		t.Errorf("afterwards: %v", h)
	}
}

// A server that shuts down finishes what it has accepted and refuses the rest.
func TestDrain(t *testing.T) {
	const tokens = 1500
	r := start(t, language(t, tokens+100), 1, nil)
	res := r.send(t, "POST", "/v1/completions", long(t, tokens))
	if _, err := res.body.Read(make([]byte, 0)); err != nil {
		t.Fatal(err)
	}
	r.drain()
	for refused := false; !refused; {
		late := r.send(t, "POST", "/v1/completions", body(t, map[string]any{"max_tokens": 1}))
		if late.status == http.StatusServiceUnavailable {
			refused = true
			if e := fmt.Sprint(decoded[map[string]any](t, late)); late.header.Get("Retry-After") == "" || !strings.Contains(e, "server_error") {
				t.Errorf("refused with %s", e)
			}
		}
	}
	written := 0
	for _, c := range stream(t, res) {
		written += len(c.Choices)
	}
	if written < tokens/5 { // random bytes: a character takes several
		t.Errorf("the text ended after %d pieces", written)
	}
}
