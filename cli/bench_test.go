package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// bench measures what training does: with a model folder it starts from the
// folder's weights, so that its first loss is training's to the last bit, and not
// that of random weights.
func TestBenchStartsWhereTrainingDoes(t *testing.T) {
	work := t.TempDir()
	t.Chdir(work)
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	const on = `system: refocused
model: {folder: folder, dropout: 0.1}
hardware: {threads: 1}
training: {batch_size: 4, max_steps: 8, learning_rate: 1e-3, lr_scheduler: constant, mixed_precision: fp32, warmup_steps: 0, log_steps: 1, eval_steps: 0, sample: {tokens: 0}}
data: {source: [corpus/*.txt], held_out_fraction: 0.2}
`
	if err := os.WriteFile("on.yaml", []byte(on), 0o666); err != nil {
		t.Fatal(err)
	}
	done(t, "train", "--config", "tiny.yaml", "--out", "first", "--training.sample.tokens", "0")
	done(t, "export", "first", "folder")
	done(t, "train", "--config", "on.yaml", "--out", "run")
	var rows []struct{ Losses []float64 }
	if err := json.Unmarshal([]byte(done(t, "bench", "--config", "on.yaml", "--updates", "5", "--json").out), &rows); err != nil {
		t.Fatal(err)
	}
	want := losses(t, "run")
	if len(rows) == 0 || len(rows[0].Losses) != len(want) || len(want) != session.BenchWarmup+5 {
		t.Fatalf("bench gave %+v, training %d losses", rows, len(want))
	}
	for i, v := range rows[0].Losses {
		if v != want[i] {
			t.Errorf("update %d: bench has a loss of %v, training of %v", i+1, v, want[i])
		}
	}
	if before := losses(t, "first"); want[0] >= before[0] {
		t.Errorf("the folder's weights have a loss of %v, random ones %v: the test shows nothing", want[0], before[0])
	}
}

// losses are those of all updates of a run.
func losses(t *testing.T, run string) (out []float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, train.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l struct {
			Event string
			Loss  *float64
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == "update" && l.Loss != nil {
			out = append(out, *l.Loss)
		}
	}
	return out
}
