package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// TestBenchStartsWhereTrainingDoes: bench measures what training does. With a model folder it starts from the
// folder's weights, so its first loss equals training's to the last bit, and differs from that of random
// weights.
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
	var doc struct {
		Sweeps []struct{ Rows []struct{ Losses []float64 } }
	}
	if err := json.Unmarshal([]byte(done(t, "bench", "--config", "on.yaml", "--updates", "5", "--json").out), &doc); err != nil {
		t.Fatal(err)
	}
	rows := doc.Sweeps[0].Rows
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

// losses returns the losses of all updates of a run.
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

// TestBenchSynthetic: synthetic batches are valid inputs for every system's program. Every system trains on
// them, with the losses of an untrained model.
func TestBenchSynthetic(t *testing.T) {
	runs := everySystem(t)
	type extra struct {
		system string
		args   []string
	}
	tries := []extra{{"refocused", nil}, {"refocused", []string{"--data.segment_mask", "true"}}, {"agiformer", nil}, {"moderation", nil}, {"dynamo", nil}, {"cloudbase", nil},
		{"cloudbase", []string{"--model.angles", "linear"}}, {"cloudbase", []string{"--phases.run", "mae"}},
		{"dynamo", []string{"--router.dispatch", "soft", "--router.gumbel", "true", "--model.tasks", "sentiment,qa,translation", "--tasks.qa.train", "none.jsonl"}},
		{"agiformer", []string{"--model.use_multimodal", "true", "--model.modalities", "image,audio,video", "--model.image.size", "8", "--model.image.patch", "4",
			"--model.image.d_model", "16", "--model.image.n_layers", "1", "--model.image.n_heads", "2", "--model.image.d_ff", "16", "--model.audio_samples", "64", "--model.video_frames", "2"}}}
	for _, stage := range []string{"encoder", "sentiment", "translation", "router"} {
		tries = append(tries, extra{"dynamo", []string{"--phases.stage", stage}})
	}
	for _, x := range tries {
		t.Run(x.system+strings.Join(x.args, ""), func(t *testing.T) {
			args := append([]string{"bench", "--config", runs[x.system].config, "--updates", "5", "--synthetic", "--sweep", "recompute", "--json"}, x.args...)
			var doc struct {
				Configurations []struct{ Data string }
				Sweeps         []struct {
					Rows []struct {
						Losses []float64
						Rate   float64 `json:"units_per_second"`
						Unit   string
					}
				}
			}
			if err := json.Unmarshal([]byte(done(t, args...).out), &doc); err != nil {
				t.Fatal(err)
			}
			if doc.Configurations[0].Data != "synthetic" || len(doc.Sweeps[0].Rows) != 5 {
				t.Fatalf("%+v", doc)
			}
			for _, r := range doc.Sweeps[0].Rows {
				if r.Rate <= 0 || len(r.Losses) != session.BenchWarmup+5 {
					t.Errorf("%+v", r)
				}
				for _, l := range r.Losses {
					if !(l > 0 && l < 50) {
						t.Errorf("a loss of %v", l)
					}
				}
			}
		})
	}
}

// TestBenchOnABusyMachine: a table measured while other programs were busy says so.
func TestBenchOnABusyMachine(t *testing.T) {
	for others, says := range map[float64]bool{0: false, 0.15: false, 1.25: true} {
		d := &benchDocument{Processors: 2, Sweeps: []*session.Sweep{{Name: session.SweepAgainst, Rows: []session.Measured{{Others: 0.01}, {Others: others}}}}}
		if text := d.busy(); strings.Contains(text, "up to 1.2 of 2 processors") != says {
			t.Errorf("%v processors: %q", others, text)
		}
		if lead := benchPage(d).Lead; strings.Contains(lead, "Other programs kept") != says {
			t.Errorf("%v processors: the page says %q", others, lead)
		}
	}
}
