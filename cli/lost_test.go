package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// lostLater is a card with an uncorrectable error of its memory in the n-th launch of a graph.
func lostLater(n int) *fakegpu.Driver {
	return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: once("cuGraphLaunch", n, driver.ECCUncorrectable)}
}

// TestCardLostInAnEvaluation: an evaluation whose card is lost says so, changes nothing in the run, and can be
// repeated.
func TestCardLostInAnEvaluation(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	run := filepath.Join(t.TempDir(), "run")
	restore := backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}})
	trainOn(t, r, run, "cuda", "--training.max_steps", "2")
	before := done(t, "eval", run).out
	restore()
	use(t, lostLater(2))
	x := snug(t, "", "eval", run)
	wants(t, x, exitLost, "cuGraphLaunch", "uncorrectable error", "nvidia-smi -r")
	if strings.Contains(x.out, "perplexity") {
		t.Errorf("a part of the evaluation is printed as a result:\n%s", x.out)
	}
	if after := done(t, "eval", run).out; after != before {
		t.Errorf("evaluated again:\n%s\nbefore:\n%s", after, before)
	}
}

// TestCardLostInAServer: requests that a lost card was computing, and later ones, get an error as JSON, and the
// server ends with the reason. Its answers up to then are whole.
func TestCardLostInAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	all := everySystem(t)
	dir := t.TempDir()
	t.Setenv("SNUG_TEST_CARDS", "1")
	for _, c := range []struct {
		name, system, path, ask string
		works                   int // requests that are answered
		calls                   string
		want                    string // in the answer to the request that meets the loss
		status                  int
	}{
		{"whole", "refocused", "/v1/completions", `{"model": "whole", "prompt": "the", "max_tokens": 4, "temperature": 0}`, 1, "cuGraphLaunch:12", `"server_error"`, http.StatusServiceUnavailable},
		{"stream", "refocused", "/v1/completions", `{"model": "stream", "prompt": "the", "max_tokens": 9, "temperature": 0, "stream": true}`, 0, "cuGraphLaunch:5", `data: {"error":`, http.StatusOK},
		{"moderate", "moderation", "/moderate", `{"text": "the colour red"}`, 1, "cuGraphLaunch:2", `{"error":`, http.StatusServiceUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			trainOn(t, all[c.system], filepath.Join(dir, c.name), "cpu", "--training.max_steps", "2", "--training.eval_steps", "0")
			t.Setenv("SNUG_TEST_LOST", c.calls)
			v := launch(t, dir, "snug", "serve", c.name, "--listen", "127.0.0.1:0")
			defer func() { _ = v.cmd.Process.Kill() }()
			if !v.until("listening on ") {
				t.Fatal(v.output())
			}
			_, url, _ := strings.Cut(v.output(), "listening on ")
			ask := func() (int, string) {
				res, err := http.Post(strings.TrimSpace(url)+c.path, "application/json", strings.NewReader(c.ask))
				if err != nil {
					t.Fatal(err)
				}
				raw, err := io.ReadAll(res.Body)
				if err != nil || res.Body.Close() != nil {
					t.Error(err)
				}
				return res.StatusCode, string(raw)
			}
			for range c.works {
				if status, text := ask(); status != http.StatusOK {
					t.Fatalf("status %d before the loss: %s", status, text)
				}
			}
			status, text := ask()
			if status != c.status || !strings.Contains(text, c.want) || !strings.Contains(text, "uncorrectable error") || strings.Contains(text, "[DONE]") {
				t.Errorf("status %d, want %d: %s", status, c.status, text)
			}
			if c.status != http.StatusOK && !json.Valid([]byte(text)) {
				t.Errorf("not JSON: %s", text)
			}
			if code := v.wait(); code != exitLost || strings.Count(v.output(), "the card's memory reported an uncorrectable error") != 1 {
				t.Errorf("exit code %d, want %d\n%s", code, exitLost, v.output())
			}
		})
	}
}

// TestCardLostByOneOfTwoProcesses: if one of two processes loses its card, both end in time. The one that lost
// it says what happened, and the resumed run has the bits of an uninterrupted one.
func TestCardLostByOneOfTwoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	work := t.TempDir()
	t.Setenv("SNUG_TEST_CARDS", "2")
	together := func(out string) *victim {
		return launch(t, work, "snug", "train", "--config", r.config, "--nproc", "2", "--resume", "--out", out, "--hardware.device", "cuda", "--training.batch_size", "4")
	}
	if v := together("whole"); v.wait() != exitDone {
		t.Fatal(v.output())
	}
	for rank, name := range []string{"rank 0", "rank 1"} {
		t.Run(name, func(t *testing.T) {
			out := strings.ReplaceAll(name, " ", "-")
			t.Setenv("SNUG_TEST_LOST", "cuGraphLaunch:15:"+string(rune('0'+rank)))
			v := together(out)
			code := v.wait()
			said := v.output()
			if code != exitLost {
				t.Errorf("exit code %d, want %d", code, exitLost)
			}
			for _, want := range []string{"cuGraphLaunch: the card's memory reported an uncorrectable error", "nvidia-smi -r", "--resume"} {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in:\n%s", want, said)
				}
			}
			t.Setenv("SNUG_TEST_LOST", "")
			if v := together(out); v.wait() != exitDone {
				t.Fatalf("resumed: exit code %d\n%s", v.code, v.output())
			}
			sameWeights(t, filepath.Join(work, "whole"), filepath.Join(work, out))
		})
	}
}
