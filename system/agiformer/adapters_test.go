package agiformer_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAdapters trains adapters on a run, including those of experts. They resume bit for bit, are exported in
// PEFT's layout and loaded again, and are merged into an equivalent checkpoint.
func TestAdapters(t *testing.T) {
	config := small(t, "source: ["+prose(t)+"], held_out_fraction: 0.2, seq_len: 40")
	out := t.TempDir()
	at := func(name string) string { return filepath.Join(out, name) }
	train := func(want int, dir, steps, rate string, args ...string) string {
		return snug(t, want, append([]string{"train", "--config", config, "--out", at(dir), "--training.mixed_precision", "fp32", "--training.max_steps", steps, "--training.learning_rate", rate}, args...)...)
	}
	adapted := []string{"--model.folder", at("base"), "--lora.targets", "all-linear", "--lora.rank", "2", "--lora.alpha", "8", "--lora.variant", "rslora"}
	train(0, "base", "6", "5e-3")
	if said := train(0, "whole", "6", "3e-2", adapted...); strings.Contains(said, "warning: parameter") || !strings.Contains(said, "model.folder: loaded") {
		t.Errorf("the run said:\n%s", said)
	}
	train(4, "parts", "6", "3e-2", append(adapted, "--until", "4")...)
	snug(t, 0, "train", "--resume", "--out", at("parts"))
	read := func(path ...string) []byte {
		raw, err := os.ReadFile(filepath.Join(append([]string{out}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	last := filepath.Join("checkpoints", "step-00000006", "model.safetensors")
	if !bytes.Equal(read("whole", last), read("parts", last)) {
		t.Error("the resumed run has other adapters")
	}
	loss := func(dir string) float64 { return lossOf(t, at(dir)) }
	snug(t, 0, "export", at("whole"), at("adapter"))
	for _, want := range []string{`"blocks.0.experts.up.weight"`, `"blocks.1.experts.language.gate.weight"`, `"front.dense"`, `"memory.written.key"`, `"introspection.compare"`} {
		if !bytes.Contains(read("adapter", "adapter_config.json"), []byte(want)) {
			t.Errorf("the adapter does not adapt %s", want)
		}
	}
	snug(t, 0, "export", "--merge", at("whole"), at("merged"))
	// With a tiny learning rate the loaded adapter does not change.
	if said := train(0, "again", "1", "1e-12", append(adapted, "--lora.folder", at("adapter"))...); !strings.Contains(said, "lora.folder: loaded") {
		t.Errorf("the run said:\n%s", said)
	}
	base, unmerged := loss("base"), loss("whole")
	if math.Abs(base-unmerged) < 1e-2 {
		t.Errorf("the adapters change the loss from %v to %v: too little to compare", base, unmerged)
	}
	for _, dir := range []string{"merged", "again"} {
		if got := loss(dir); math.Abs(got-unmerged) > 1e-5 {
			t.Errorf("the loss of %s is %v, with adapters %v", dir, got, unmerged)
		}
	}
	write := func(dir string) string {
		text, _, _ := strings.Cut(snug(t, 0, "generate", at(dir), "--prompt", "the cat", "--tokens", "8", "--temperature", "0"), "\n8 tokens,")
		return text
	}
	if a, b := write("whole"), write("merged"); a != b {
		t.Errorf("with adapters it wrote %q, merged %q", a, b)
	}
	train(0, "on", "1", "5e-3", "--model.folder", at("merged"), "--lora.targets", "attention.dense")
}

// lossOf returns the loss reported by `eval`.
func lossOf(t *testing.T, path string) float64 {
	t.Helper()
	var r struct {
		Metrics map[string]float64 `json:"metrics"`
	}
	_, body, _ := strings.Cut(snug(t, 0, "eval", path, "--json"), "{")
	if err := json.Unmarshal([]byte("{"+body), &r); err != nil {
		t.Fatal(err)
	}
	return r.Metrics["eval_loss"]
}
