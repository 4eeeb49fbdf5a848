package moderation

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train"
)

// TestExport: a run can start from an exported folder, which gives a text the same logits.
func TestExport(t *testing.T) {
	source := comments(t, "train.csv", 200, 1)
	for _, architecture := range []string{"bert", "roberta"} {
		p := prepareRun(t, small("data.source", source, "data.held_out_fraction", "0.2", "model.pooling", "first", "model.architecture", architecture)...)
		dir := p.trained(t, 20)
		to := filepath.Join(t.TempDir(), "out")
		files, err := export(p.c, dir, to)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
			if !slices.Contains(files, want) {
				t.Errorf("%s is not among %v", want, files)
			}
		}
		f, err := hf.ReadConfig(to)
		if err != nil {
			t.Fatal(err)
		}
		if f.Head != hf.HeadClassifier || !slices.Equal(f.Labels, []string{"valid", "invalid"}) {
			t.Errorf("head %v, labels %v", f.Head, f.Labels)
		}
		again := prepareRun(t, "data.source", source, "data.held_out_fraction", "0.2", "model.folder", to, "data.buckets", "12,24,48", "training.batch_size", "8", "data.seq_len", "48")
		r, was := again.arm(t, engine.CompileOptions{}), p.arm(t, engine.CompileOptions{})
		before := scoresOf(t, p, was, dir)
		after, err := train.Evaluate(t.Context(), again.run.Evaluator, r, 0)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(before["eval_loss"]-after["eval_loss"]) > 1e-6 {
			t.Errorf("%s: loss %v before, %v after", architecture, before["eval_loss"], after["eval_loss"])
		}
	}
	for key, value := range map[string]string{"model.pooling": "mean", "model.wide_rows": "8"} {
		if _, err := export(settings(t, "data.source", source, key, value), t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s %s: %v", key, value, err)
		}
	}
}
