package moderation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// shared returns a file of real data, if the developer has it. SNUG_LONG=1 runs these tests, which take
// minutes.
func shared(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("SNUG_LONG") == "" {
		t.Skip("SNUG_LONG=1 runs it")
	}
	root := os.Getenv("SNUG_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	path := filepath.Join(root, "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skip("no shared data")
	}
	return path
}

// bestOf trains in bf16 and returns the evaluation with the best F1.
func (p *prepared) bestOf(t *testing.T, updates int64) (best map[string]float64) {
	t.Helper()
	r := p.arm(t, engine.CompileOptions{ComputeDType: graph.BF16})
	job := p.job(r, updates, func(e train.Event) {
		if e, ok := e.(train.Evaluated); ok {
			t.Logf("update %d: F1 %.4f, accuracy %.4f, loss %.4f", e.Update, e.Metrics["f1"], e.Metrics["accuracy"], e.Metrics["eval_loss"])
			if e.Best {
				best = e.Metrics
			}
		}
	})
	job.Schedule.Warmup = updates / 20
	if _, err := job.Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	return best
}

// scratch returns the settings of a model that learns from a few thousand texts.
func scratch(more ...string) []string {
	return dedupe(append([]string{
		"model.d_model", "128", "model.n_layers", "2", "model.n_heads", "4", "model.d_ff", "512", "model.pooling", "mean", "model.init_std", "0.06",
		"model.dropout", "0.5", "model.classifier_dropout", "0.3", "model.wide_rows", "65536", "model.wide_lr", "30", "training.batch_size", "32",
		"training.learning_rate", "1e-3", "training.weight_decay", "0.05", "training.beta2", "0.999", "decision.baseline", "false",
	}, more...))
}

// baselineOf evaluates the bag of words on the validation texts.
func (p *prepared) baselineOf(t *testing.T) metric.Confusion {
	t.Helper()
	s, err := read(context.Background(), p.c, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trainBagOfWords(context.Background(), s.train, s.valid, classWeights(p.c, s.train), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	x := w.score(s.valid)
	return metric.Count(x.Margins, x.Positive, 0)
}

// TestSMS learns SMS spam from scratch, to an F1 of at least 0.93 on held-out messages, none of which was
// trained on.
func TestSMS(t *testing.T) {
	p := prepareRun(t, scratch("data.source", shared(t, "sms/train.csv"), "data.validation", shared(t, "sms/valid.csv"),
		"model.max_seq_len", "192", "data.tokenizer.vocab_size", "4096", "training.eval_steps", "125", "model.dropout", "0.2")...)
	b := p.baselineOf(t)
	m := p.bestOf(t, 500)
	t.Logf("F1 %.4f, accuracy %.4f; bag of words %.4f, %.4f", m["f1"], m["accuracy"], b.F1(), b.Accuracy())
	if m["f1"] < 0.93 {
		t.Errorf("F1 %.4f, want at least 0.93", m["f1"])
	}
}

// TestSST2 learns SST-2 from just 6,920 sentences, to at least the accuracy of the bag of words.
func TestSST2(t *testing.T) {
	p := prepareRun(t, scratch("data.source", shared(t, "sst2/train.tsv"), "data.validation", shared(t, "sst2/dev.tsv"),
		"data.no_header", "true", "data.text_field", "1", "data.label_field", "2",
		"model.max_seq_len", "72", "data.tokenizer.vocab_size", "8192", "training.eval_steps", "215")...)
	b := p.baselineOf(t)
	m := p.bestOf(t, 1290)
	t.Logf("accuracy %.4f, F1 %.4f; bag of words %.4f, %.4f", m["accuracy"], m["f1"], b.Accuracy(), b.F1())
	if m["accuracy"] < b.Accuracy() {
		t.Errorf("accuracy %.4f, the bag of words has %.4f", m["accuracy"], b.Accuracy())
	}
}

// TestMiniLM fine-tunes the pre-trained model folder in SNUG_MINILM on SST-2, to an accuracy of at least
// 0.88.
func TestMiniLM(t *testing.T) {
	folder := os.Getenv("SNUG_MINILM")
	if folder == "" {
		t.Skip("SNUG_MINILM names the folder of MiniLM-L6")
	}
	p := prepareRun(t, "data.source", shared(t, "sst2/train.tsv"), "data.validation", shared(t, "sst2/dev.tsv"), "data.no_header", "true",
		"data.text_field", "1", "data.label_field", "2", "model.folder", folder, "data.seq_len", "72", "model.pooling", "mean",
		"training.batch_size", "16", "training.gradient_accumulation_steps", "2", "training.learning_rate", "1e-4", "training.weight_decay", "0.01",
		"training.beta2", "0.999", "training.eval_steps", "108", "decision.baseline", "false")
	m := p.bestOf(t, 434)
	t.Logf("accuracy %.4f, F1 %.4f", m["accuracy"], m["f1"])
	if m["accuracy"] < 0.88 {
		t.Errorf("accuracy %.4f, want at least 0.88", m["accuracy"])
	}
}

// TestBucketsAreFaster: length buckets train on the SMS texts at least 1.5 times as fast as padding to the
// guide's 192.
func TestBucketsAreFaster(t *testing.T) {
	pairs := []string{"data.source", shared(t, "sms/train.csv"), "data.validation", shared(t, "sms/valid.csv"), "model.max_seq_len", "192",
		"data.tokenizer.vocab_size", "4096", "training.eval_steps", "0"}
	speed := func(more ...string) (examplesPerSecond float64) {
		p := prepareRun(t, scratch(append(pairs, more...)...)...)
		r := p.arm(t, engine.CompileOptions{})
		p.run.Evaluator = nil
		var n int64
		var took time.Duration
		job := p.job(r, 123, func(e train.Event) { // an epoch of 3,928 texts
			if s, ok := e.(train.Step); ok && s.Update > 5 {
				n, took = n+s.NewTokens, took+s.Took
			}
		})
		if _, err := job.Run(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		return float64(n) / took.Seconds()
	}
	// In alternation, so that a busy machine slows down both.
	var ratio []float64
	for range 3 {
		fixed, buckets := speed("data.buckets", "192"), speed()
		t.Logf("fixed 192: %.0f texts/s, buckets: %.0f texts/s, %.2f times", fixed, buckets, buckets/fixed)
		ratio = append(ratio, buckets/fixed)
	}
	if m := metric.Quantile(ratio, 0.5); m < 1.5 {
		t.Errorf("buckets are %.2f times as fast, want at least 1.5", m)
	}
}

// TestQuickstart: the quickstart's preset beats its baselines on the test comments.
func TestQuickstart(t *testing.T) {
	if os.Getenv("SNUG_LONG") == "" {
		t.Skip("SNUG_LONG=1 runs it")
	}
	p := prepareRun(t, "preset", "moderation-quickstart")
	p.trained(t, int64(p.c.Training.MaxSteps))
	raw, err := os.ReadFile(filepath.Join(p.dir, OutcomeFile))
	if err != nil {
		t.Fatal(err)
	}
	var o Outcome
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	got, baseline := o.Model["test"], o.Baseline["test"]
	t.Log(strings.TrimSpace(fmt.Sprintf("F1 %.4f, ROC AUC %.4f; bag of words %.4f, %.4f", got.AtHalf.F1, got.ROCAUC, baseline.AtHalf.F1, baseline.ROCAUC)))
	if got.ROCAUC < baseline.ROCAUC || got.AtHalf.F1 < baseline.AtHalf.F1 {
		t.Errorf("F1 %.4f and ROC AUC %.4f, the bag of words has %.4f and %.4f", got.AtHalf.F1, got.ROCAUC, baseline.AtHalf.F1, baseline.ROCAUC)
	}
}
