package moderation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
)

// serving starts a server for a small trained model.
func serving(t testing.TB, change func(*serve.Options)) (*service, *httptest.Server) {
	t.Helper()
	p := prepareRun(t, small("data.source", comments(t, "train.csv", 400, 1), "data.held_out_fraction", "0.2", "decision.baseline", "false")...)
	k := mustClassifier(t, p.c, p.trained(t, 40))
	opt := serve.Options{MaxBody: 1 << 20, MaxText: 20_000, MaxTexts: 256, Timeout: 10 * time.Second, Waiting: 512}
	if change != nil {
		change(&opt)
	}
	s := newService(k, opt)
	server := serve.New(s, opt)
	h := httptest.NewServer(server)
	t.Cleanup(func() {
		h.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, h
}

func post(t testing.TB, url, token, body string) (status int, out map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%d %s: %v", res.StatusCode, raw, err)
	}
	return res.StatusCode, out
}

func TestServer(t *testing.T) {
	s, h := serving(t, func(o *serve.Options) { o.MaxText, o.MaxTexts, o.MaxBody = 200, 3, 2000 })
	status, one := post(t, h.URL+"/moderate", "", `{"text": "you idiot"}`)
	for _, key := range []string{"label", "prob_invalid", "threshold", "latency_ms"} {
		if _, ok := one[key]; !ok || status != 200 {
			t.Errorf("%d: the answer %v lacks %s", status, one, key)
		}
	}
	if one["threshold"] != s.k.DecisionRule.Threshold {
		t.Errorf("threshold %v, the run's is %v", one["threshold"], s.k.DecisionRule.Threshold)
	}
	for threshold, want := range map[float64]string{0: "invalid", 1: "valid"} {
		_, a := post(t, h.URL+"/moderate", "", fmt.Sprintf(`{"text": "you idiot", "threshold": %v}`, threshold))
		if a["label"] != want || a["threshold"] != threshold || a["prob_invalid"] != one["prob_invalid"] {
			t.Errorf("at threshold %v: %v", threshold, a)
		}
	}
	status, many := post(t, h.URL+"/moderate/batch", "", `{"texts": ["you idiot", "good room"]}`)
	results, _ := many["results"].([]any)
	if status != 200 || len(results) != 2 {
		t.Fatalf("%d: %v", status, many)
	}
	if first, _ := results[0].(map[string]any); math.Abs(first["prob_invalid"].(float64)-one["prob_invalid"].(float64)) > 1e-6 {
		t.Errorf("in a batch %v, alone %v", first, one)
	}
	long := strings.Repeat("x", 201)
	for name, c := range map[string]struct {
		path, body, want string
		status           int
	}{
		"no text":            {"/moderate", `{}`, "want {", 400},
		"no texts":           {"/moderate/batch", `{"texts": []}`, "want {", 400},
		"unknown field":      {"/moderate", `{"text": "a", "treshold": 1}`, `not the expected JSON: unknown field "treshold": want text, threshold`, 400},
		"another case":       {"/moderate", `{"Text": "a"}`, `unknown field "Text"`, 400},
		"a field twice":      {"/moderate", `{"text": "a", "text": "b"}`, `the key "text" is given twice`, 400},
		"two objects":        {"/moderate", `{"text": "a"}{}`, "after the object", 400},
		"not JSON":           {"/moderate", `text`, "not the expected JSON", 400},
		"wrong type":         {"/moderate", `{"text": 3}`, "text: a JSON number is the wrong type", 400},
		"threshold above 1":  {"/moderate", `{"text": "a", "threshold": 1.5}`, "from 0 to 1", 400},
		"long text":          {"/moderate", `{"text": "` + long + `"}`, "at most 200", 413},
		"long text in batch": {"/moderate/batch", `{"texts": ["a", "` + long + `"]}`, "text 2", 413},
		"many texts":         {"/moderate/batch", `{"texts": ["a", "b", "c", "d"]}`, "at most 3", 413},
		"long body":          {"/moderate", `{"text": "` + strings.Repeat("x", 3000) + `"}`, "longer than 2000", 413},
	} {
		status, a := post(t, h.URL+c.path, "", c.body)
		if message, _ := a["error"].(string); status != c.status || !strings.Contains(message, c.want) {
			t.Errorf("%s: %d %v, want %d with %q", name, status, a, c.status, c.want)
		}
	}
	for kind, want := range map[string]int{
		"text/plain": 415, "application/json; charset=utf-16": 415, "application/json; charset=UTF-8": 200,
	} {
		res, err := http.Post(h.URL+"/moderate", kind, strings.NewReader(`{"text": "a"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("the content type %s gives %d, want %d", kind, res.StatusCode, want)
		}
	}
	res, err := http.Get(h.URL + "/moderate")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET /moderate gives %d", res.StatusCode)
	}
}

// TestEveryAnswerIsJSON: every answer is JSON, even for an unknown path or method.
func TestEveryAnswerIsJSON(t *testing.T) {
	_, h := serving(t, nil)
	for _, c := range []struct {
		method, path, allow string
		status              int
	}{
		{"GET", "/", "", 404}, {"POST", "/nope", "", 404}, {"GET", "/moderate/", "", 404}, {"GET", "//moderate", "", 404}, {"GET", "/moderate/../x", "", 404},
		{"GET", "/moderate", "POST", 405}, {"DELETE", "/moderate/batch", "POST", 405}, {"POST", "/healthz", "GET", 405}, {"OPTIONS", "/moderate", "POST", 405},
		{"GET", "/healthz", "", 200},
	} {
		r, err := http.NewRequestWithContext(context.Background(), c.method, h.URL+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		err = json.NewDecoder(res.Body).Decode(&out)
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		_, said := out["error"].(string)
		if err != nil || res.StatusCode != c.status || said != (c.status != 200) || res.Header.Get("Content-Type") != "application/json" || res.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d %v, Allow %q, %v", c.method, c.path, res.StatusCode, out, res.Header.Get("Allow"), err)
		}
	}
}

// TestHost: without a token, a request must name this machine, because a page whose name resolves to it would
// send that name.
func TestHost(t *testing.T) {
	for _, token := range []string{"", "secret"} {
		_, h := serving(t, func(o *serve.Options) { o.Token = token })
		for host, ok := range map[string]bool{
			"localhost": true, "LOCALHOST:8411": true, "127.0.0.1": true, "127.9.9.9:80": true, "[::1]": true, "[::1]:8411": true,
			"evil.example": false, "evil.example:8411": false, "127.0.0.1.evil.example": false, "localhost.evil.example:80": false, "192.168.0.1": false, "0.0.0.0:8411": false,
		} {
			for _, path := range []string{"/healthz", "/moderate"} {
				r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, h.URL+path, strings.NewReader(`{"text": "a"}`))
				if err != nil {
					t.Fatal(err)
				}
				if path == "/healthz" {
					r.Method, r.Body = http.MethodGet, http.NoBody
				}
				r.Host = host
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if err := res.Body.Close(); err != nil {
					t.Error(err)
				}
				if want := map[bool]int{true: 200, false: 403}[ok || token != ""]; res.StatusCode != want {
					t.Errorf("token %q, Host %s, %s: %d, want %d", token, host, path, res.StatusCode, want)
				}
			}
		}
	}
}

// TestTextIsNotReplaced: a text is answered exactly as received, or not at all.
func TestTextIsNotReplaced(t *testing.T) {
	for raw, ok := range map[string]bool{
		`{"text": "tiếng Việt 👍"}`: true, `{"text": "\ud83d\udc4d"}`: true, `{"text": "\\ud83d"}`: true, `{"text": "\ufffd"}`: true,
		"{\"text\": \"a\xff\"}": false, "{\"text\": \"a\xc3\"}": false, "{\"te\xffxt\": \"a\"}": false, "{\"text\": \"\xed\xa0\x80\"}": false,
		`{"text": "\ud83d"}`: false, `{"text": "a\udc4db"}`: false, `{"text": "\ud83d\ud83d\udc4d"}`: false, `{"text": "\\\ud83d"}`: false,
	} {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if _, err := serve.Body(httptest.NewRecorder(), r, 1000); (err == nil) != ok {
			t.Errorf("%q: %v", raw, err)
		}
	}
	_, h := serving(t, nil)
	if status, out := post(t, h.URL+"/moderate", "", "{\"text\": \"a\xff\"}"); status != 400 || !strings.Contains(fmt.Sprint(out["error"]), "invalid UTF-8 at byte 11") {
		t.Errorf("%d %v", status, out)
	}
	if status, out := post(t, h.URL+"/moderate/batch", "", `{"texts": ["a", "\ud83d"]}`); status != 400 || !strings.Contains(fmt.Sprint(out["error"]), "incomplete character") {
		t.Errorf("%d %v", status, out)
	}
}

func TestToken(t *testing.T) {
	_, h := serving(t, func(o *serve.Options) { o.Token = "secret" })
	for token, want := range map[string]int{"": 401, "wrong": 401, "secret": 200} {
		if status, _ := post(t, h.URL+"/moderate", token, `{"text": "a"}`); status != want {
			t.Errorf("token %q gives %d, want %d", token, status, want)
		}
	}
	res, err := http.Get(h.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("/healthz wants a token: %d", res.StatusCode)
	}
}

// TestOverload: a request that waits too long gets an error, and one too many is rejected.
func TestOverload(t *testing.T) {
	s, h := serving(t, func(o *serve.Options) { o.Waiting, o.Timeout = 1, time.Second })
	// A job whose context does not answer keeps the goroutine of the batcher busy.
	block := newWaiting()
	released := make(chan struct{})
	go func() {
		defer close(released)
		_, _ = s.batch.Do(block, nil)
	}()
	<-block.asked
	status := make(chan int, 1)
	go func() { // waits in the queue until it times out
		code, _ := post(t, h.URL+"/moderate", "", `{"text": "a"}`)
		status <- code
	}()
	for s.batch.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	if code, a := post(t, h.URL+"/moderate", "", `{"text": "b"}`); code != http.StatusServiceUnavailable {
		t.Errorf("one too many gives %d %v", code, a)
	}
	if code := <-status; code != http.StatusGatewayTimeout {
		t.Errorf("a request that waits too long gives %d", code)
	}
	close(block.release)
	<-released
	if code, a := post(t, h.URL+"/moderate", "", `{"text": "c"}`); code != 200 {
		t.Errorf("afterwards: %d %v", code, a)
	}
}

// waiting is a context whose Err blocks until it is released, and then reports cancellation.
type waiting struct {
	context.Context
	asked, release chan struct{}
	once           sync.Once
}

func newWaiting() *waiting {
	return &waiting{Context: context.Background(), asked: make(chan struct{}), release: make(chan struct{})}
}

func (w *waiting) Err() error {
	w.once.Do(func() { close(w.asked) })
	<-w.release
	return context.Canceled
}

// TestRequestsShareMicroBatches: requests that arrive while a micro-batch is computed share the next one.
func TestRequestsShareMicroBatches(t *testing.T) {
	s, _ := serving(t, nil)
	block := newWaiting()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.batch.Do(block, nil) })
	<-block.asked
	for range 5 {
		wg.Go(func() {
			if _, err := s.batch.Do(context.Background(), []*Encoded{encodedText(t, s.k, "good room")}); err != nil {
				t.Error(err)
			}
		})
	}
	for s.batch.Waiting() < 5 {
		time.Sleep(time.Millisecond)
	}
	close(block.release)
	wg.Wait()
	if texts, batches := s.batch.Counts(); texts != 5 || batches != 1 {
		t.Errorf("%d texts in %d micro-batches, want 5 in 1", texts, batches)
	}
}

// TestShutdown: a shutdown answers accepted requests and rejects later ones.
func TestShutdown(t *testing.T) {
	p := prepareRun(t, small("data.source", comments(t, "train.csv", 400, 1), "data.held_out_fraction", "0.2", "decision.baseline", "false")...)
	k := mustClassifier(t, p.c, p.trained(t, 20))
	b := newService(k, serve.Options{Waiting: 64}).batch
	var wg sync.WaitGroup
	var failed []error
	var mu sync.Mutex
	for range 40 {
		wg.Go(func() {
			_, err := b.Do(context.Background(), []*Encoded{encodedText(t, k, "good room")})
			mu.Lock()
			defer mu.Unlock()
			if err != nil && err != inference.ErrStopping {
				failed = append(failed, err)
			}
		})
	}
	b.Close()
	wg.Wait()
	if len(failed) > 0 {
		t.Errorf("errors %v", failed)
	}
	if _, err := b.Do(context.Background(), []*Encoded{encodedText(t, k, "x")}); err != inference.ErrStopping {
		t.Errorf("after the end: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLoad: concurrent requests get the answers that they would get alone. It prints figures of the load, and
// takes longer with SNUG_LONG=1.
func TestLoad(t *testing.T) {
	s, h := serving(t, nil)
	clients, each := 8, 25
	if os.Getenv("SNUG_LONG") != "" {
		clients, each = 16, 400
	}
	texts := []string{"good idiot", "room near park quiet", "thanks", strings.Repeat("light ", 20), "hate " + strings.Repeat("room ", 9)}
	want := probabilities(t, s.k, texts...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				k := (c + i) % len(texts)
				body, err := json.Marshal(map[string]string{"text": texts[k]})
				if err != nil {
					t.Error(err)
					return
				}
				start := time.Now()
				res, err := client.Post(h.URL+"/moderate", "application/json", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				var a struct {
					P float64 `json:"prob_invalid"`
				}
				err = json.NewDecoder(res.Body).Decode(&a)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != http.StatusOK || math.Abs(a.P-want[k]) > 1e-6 {
					t.Errorf("text %d: %d, %v, %v; alone %v", k, res.StatusCode, err, a.P, want[k])
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(took) != clients*each {
		t.Fatalf("%d answers of %d", len(took), clients*each)
	}
	slices.Sort(took)
	items, batches := s.batch.Counts()
	t.Logf("%d clients, %d requests: p50 %v, p99 %v, %.0f requests/s, %.1f texts in a micro-batch", clients, len(took),
		took[len(took)/2], took[len(took)*99/100], float64(len(took))/time.Since(began).Seconds(), float64(items)/float64(batches))
}

// TestPredictor: prediction returns the classifier's answers in order, and the position of a failure.
func TestPredictor(t *testing.T) {
	p := prepareRun(t, small("data.source", comments(t, "train.csv", 400, 1), "data.held_out_fraction", "0.2", "decision.baseline", "false", "data.positive_name", "rude")...)
	dir := p.trained(t, 20)
	k, err := System.Predictor(p.c, dir, backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	var inputs []inference.Input
	for _, text := range []string{"good idiot", "thanks", strings.Repeat("scam ", 60)} {
		inputs = append(inputs, textInput(text))
	}
	answers, err := k.Predict(context.Background(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	classifier := k.(predictor).Classifier
	for i, want := range probabilities(t, classifier, "good idiot", "thanks", strings.Repeat("scam ", 60)) {
		a := answers[i][0]
		if a[1].Name != "prob_rude" || math.Abs(a[1].Value.(float64)-want) > 1e-6 || a[0].Value != classifier.Label(want, classifier.DecisionRule.Threshold) || a[3].Value != (i == 2) {
			t.Errorf("answer %d is %v, the probability %v", i, a, want)
		}
	}
	if _, err := k.Predict(context.Background(), []inference.Input{badInput{}}); err == nil || !strings.Contains(err.Error(), "row 7") {
		t.Errorf("a bad input gives %v", err)
	}
}

type textInput string

func (x textInput) Text(string) (string, error) { return string(x), nil }
func (x textInput) Where() string               { return "here" }

type badInput struct{}

func (badInput) Text(field string) (string, error) {
	return "", fmt.Errorf("row 7: no field %q", field)
}
func (badInput) Where() string { return "row 7" }

// encodedText encodes a text for k.
func encodedText(t testing.TB, k *Classifier, text string) *Encoded {
	t.Helper()
	e, err := k.Encode(text)
	if err != nil {
		t.Error(err)
	}
	return e
}
