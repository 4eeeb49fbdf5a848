package agiformer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/cli"
	"github.com/snug-ml/snug/system/agiformer"
)

// snug runs the command line and returns what it prints.
func snug(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(args, strings.NewReader(""), &out, &errs); code != want {
		t.Fatalf("snug %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, &out, &errs)
	}
	return out.String() + errs.String()
}

// small writes the settings of a small model that learns from data.
func small(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.yaml")
	err := os.WriteFile(path, []byte(`system: agiformer
model: {d_model: 32, n_layers: 2, n_heads: 2, d_ff: 48, max_seq_len: 40, n_experts: 5, top_k: 2, d_relation: 16,
  expert_types: [standard, spatial, logic, causal, language], memory_size: 16, memory_segment: 10, memory_writes: 2,
  language: {d_model: 16, n_layers: 1, n_heads: 2, d_ff: 24}, dropout: 0.1,
  image: {size: 8, patch: 4, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 24}}
training: {batch_size: 4, gradient_accumulation_steps: 2, max_steps: 12, learning_rate: 5e-3, warmup_steps: 2, log_steps: 4,
  eval_steps: 6, eval_batches: 3, save_steps: 4, sample: {prompt: "the", tokens: 10}}
hardware: {threads: 2}
data: {`+data+`}
`), 0o666)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func prose(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 30 {
		text := strings.Repeat(fmt.Sprintf("the cat number %d sat on the mat — çok güzel. ", i), 8)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", i)), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTrainResumeEvalGenerate: a run that is stopped and resumed ends with the same bits as an uninterrupted
// one, and both can be planned, measured and used to generate text.
func TestTrainResumeEvalGenerate(t *testing.T) {
	config := small(t, "source: ["+prose(t)+"], held_out_fraction: 0.2")
	out := t.TempDir()
	whole, parts := filepath.Join(out, "whole"), filepath.Join(out, "parts")
	said := snug(t, 0, "train", "--config", config, "--out", whole)
	if strings.Contains(said, "warning: parameter") {
		t.Errorf("the audit found parameters that do not learn:\n%s", said)
	}
	snug(t, 4, "train", "--config", config, "--out", parts, "--until", "7")
	snug(t, 0, "train", "--config", config, "--out", parts, "--resume")
	weights := func(dir string) []byte {
		raw, err := os.ReadFile(filepath.Join(dir, "checkpoints", "step-00000012", "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if !bytes.Equal(weights(whole), weights(parts)) {
		t.Error("the resumed run has other weights")
	}
	var r struct {
		Metrics map[string]float64 `json:"metrics"`
	}
	said = snug(t, 0, "eval", whole, "--json")
	_, body, _ := strings.Cut(said, "{")
	if err := json.Unmarshal([]byte("{"+body), &r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"eval_loss", "perplexity", "bits_per_byte", "bits_per_character", "tokens_standard", "tokens_spatial", "tokens_logic", "tokens_causal",
		"tokens_language", "router_entropy", "dropped_tokens", "gate_working", "gate_bank", "gate_written", "gate_write",
		"confidence", "confidence_ece", "confidence_correlation", "error_correlation", "baseline_unigram", "baseline_bigram",
	} {
		if _, ok := r.Metrics[name]; !ok {
			t.Errorf("eval says nothing of %s", name)
		}
	}
	if a, b := r.Metrics["bits_per_character"], r.Metrics["bits_per_byte"]; a <= b {
		t.Errorf("%v bits a character, %v a byte: the text has characters of several bytes", a, b)
	}
	page, err := os.ReadFile(filepath.Join(whole, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Experts", "Memory", "Introspection", "4 language"} {
		if !bytes.Contains(page, []byte(part)) {
			t.Errorf("the report has no %s", part)
		}
	}
	said = snug(t, 0, "generate", whole, "--prompt", "the cat", "--tokens", "60")
	if !strings.HasPrefix(said, "the cat") {
		t.Errorf("it wrote %q", said)
	}
	if said = snug(t, 0, "plan", "--config", config, "--card", "t4"); !strings.Contains(said, "parameters") {
		t.Errorf("the plan is %q", said)
	}
}

// TestRefusals: impossible settings are rejected before anything runs.
func TestRefusals(t *testing.T) {
	config := small(t, "source: ["+prose(t)+"]")
	for _, c := range []struct{ flag, value, want string }{
		{"--model.top_k", "6", "cannot go to 6 of 5 experts"},
		{"--model.memory_segment", "40", "want less than data.seq_len"},
		{"--model.n_experts", "3", "5 kinds for 3 experts"},
		{"--model.n_heads", "3", "divides the width"},
		{"--data.segment_mask", "true", "packed documents"},
		{"--model.language.frozen", "true", "set model.language.path"},
		{"--model.expert_types", "poetry", "one of standard"},
	} {
		var out, errs bytes.Buffer
		args := []string{"train", "--config", config, "--out", filepath.Join(t.TempDir(), "run"), c.flag, c.value}
		if code := cli.Main(args, strings.NewReader(""), &out, &errs); code == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s %s: exit code %d, want an error with %q, got %q", c.flag, c.value, code, c.want, errs.String())
		}
	}
}

// TestCaptionsTrain: captions can be trained, resumed and evaluated from the command line like text.
func TestCaptionsTrain(t *testing.T) {
	config := small(t, "source: ["+agiformer.Gallery(t, 25)+"], seq_len: 16, shuffle: true")
	out := t.TempDir()
	more := []string{"--config", config, "--model.use_multimodal", "true", "--model.audio_samples", "64", "--model.video_frames", "3",
		"--model.modalities", "[image,audio,video]"}
	train := func(dir string, want int, args ...string) {
		snug(t, want, append(append([]string{"train", "--out", filepath.Join(out, dir)}, more...), args...)...)
	}
	train("whole", 0)
	train("parts", 4, "--until", "5")
	train("parts", 0, "--resume")
	read := func(dir string) []byte {
		raw, err := os.ReadFile(filepath.Join(out, dir, "checkpoints", "step-00000012", "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if !bytes.Equal(read("whole"), read("parts")) {
		t.Error("the resumed run has other weights")
	}
	if said := snug(t, 0, "eval", filepath.Join(out, "whole")); !strings.Contains(said, "bits per byte") {
		t.Errorf("eval said %q", said)
	}
}
