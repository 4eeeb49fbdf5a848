package cli

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/checkpoint"
)

// TestEvalIsTrainingsEvaluation: for a checkpoint, `snug eval` gives the same figures as training's own
// evaluation, to the bit, in every system and phase. It changes no file of the run.
func TestEvalIsTrainingsEvaluation(t *testing.T) {
	for name, r := range everySystem(t) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			printed := done(t, "train", "--config", r.config, "--out", dir).out
			for _, run := range r.runs(dir) {
				before := files(t, run)
				compared := 0
				for _, m := range measurements(t, run) {
					path := checkpoint.At(run, m.Update)
					got := evaluation(t, path)
					if got.Checkpoint != path || got.Update != m.Update {
						t.Errorf("eval %s says that it measured %s, update %d", path, got.Checkpoint, got.Update)
					}
					for k, want := range m.Metrics {
						if v, ok := got.Metrics[k]; !ok || v != want {
							t.Errorf("%s: %s was %v while training, eval says %v (there: %v)", path, k, want, v, ok)
						}
					}
					compared++
				}
				if compared < 2 {
					t.Errorf("%s: %d evaluations compared, want 2 at least", run, compared)
				}
				if after := files(t, run); !maps.Equal(before, after) {
					t.Errorf("%s: evaluation changed files of the run: %v", run, differing(before, after))
				}
			}
			if out := done(t, "ckpt", "verify", dir).out; strings.Count(out, ": whole") < len(r.runs(dir)) {
				t.Errorf("verify does not look at every run:\n%s", out)
			}
			// For a run in phases, the best checkpoint of the last phase is measured, with the figures that
			// were printed.
			used := r.runs(dir)[len(r.runs(dir))-1]
			var best measurement
			for _, m := range measurements(t, used) {
				if m.Best {
					best = m
				}
			}
			if got := evaluation(t, dir); got.Update != best.Update || got.Checkpoint != checkpoint.At(used, best.Update) || !strings.HasPrefix(got.Chosen, "the best, ") {
				t.Errorf("eval of the run measured %s (%s), the best is update %d of %s", got.Checkpoint, got.Chosen, best.Update, used)
			}
			plain := done(t, "eval", dir).out
			if !strings.Contains(plain, checkpoint.At(used, best.Update)) {
				t.Errorf("eval does not name the checkpoint:\n%s", plain)
			}
			for line := range strings.Lines(plain) {
				f := strings.Fields(line)
				if n := len(f); strings.HasPrefix(line, "  ") && f[0] != "baseline" && !strings.Contains(printed, strings.Join(f[:n-1], " ")+" "+f[n-1]) && !strings.Contains(printed, strings.Join(f[:n-1], "_")+" "+f[n-1]) {
					t.Errorf("eval prints %q, which training did not", line)
				}
			}
		})
	}
}

// evaluated is the document of eval.
type evaluated struct {
	Checkpoint, Chosen string
	Update             int64
	Metrics            map[string]checkpoint.Float
	Reports            string
}

func evaluation(t *testing.T, path string) (e evaluated) {
	t.Helper()
	if err := json.Unmarshal([]byte(done(t, "eval", path, "--json").out), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func differing(a, b map[string]string) (names []string) {
	for k := range a {
		if a[k] != b[k] {
			names = append(names, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			names = append(names, "new: "+k)
		}
	}
	return names
}
