package agiformer_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/system/agiformer"
)

// TestAdaptersBesideFrozenFolder: a frozen language model keeps its folder's weights. No run contains them,
// none of its layers is adapted, and naming one is an error.
func TestAdaptersBesideFrozenFolder(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join("..", "..", "nn", "hf", "testdata", "neox"))
	if err != nil {
		t.Fatal(err)
	}
	config := small(t, "source: ["+prose(t)+"], held_out_fraction: 0.2, seq_len: 24")
	out := t.TempDir()
	at := func(name string) string { return filepath.Join(out, name) }
	train := func(want int, dir string, args ...string) string {
		return snug(t, want, append([]string{"train", "--config", config, "--out", at(dir), "--training.max_steps", "3", "--training.mixed_precision", "fp32"}, args...)...)
	}
	train(0, "base", "--model.language.path", folder, "--model.language.frozen", "true", "--model.max_seq_len", "24")
	adapted := []string{"--model.folder", at("base"), "--lora.rank", "2", "--lora.alpha", "64"}
	train(0, "on", append(adapted, "--lora.targets", "all-linear")...)
	saved, err := safetensors.Open(at("on/checkpoints/step-00000003/model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	for _, x := range saved.Tensors() {
		if strings.HasPrefix(x.Name, "language.gpt_neox.") {
			t.Errorf("%s is trained", x.Name)
		}
	}
	if !saved.Has("language.in.lora.up") {
		t.Error("the layer before the language model is not adapted")
	}
	if said := train(2, "not", append(adapted, "--lora.targets", "query_key_value")...); !strings.Contains(said, `"query_key_value" chooses language.gpt_neox.`) {
		t.Errorf("the refusal is %q", said)
	}
	snug(t, 0, "export", "--merge", at("on"), at("merged"))
	a, b := lossOf(t, at("on")), lossOf(t, at("merged"))
	if math.Abs(a-b) > 1e-5 {
		t.Errorf("with adapters the loss is %v, merged %v", a, b)
	}
	snug(t, 0, "generate", at("on"), "--tokens", "3")
}

// TestAdaptersOfSenses: layers that encode media are adapted too, but generating text does not need them.
func TestAdaptersOfSenses(t *testing.T) {
	config := small(t, "source: ["+agiformer.Gallery(t, 25)+"], seq_len: 16")
	out := t.TempDir()
	at := func(name string) string { return filepath.Join(out, name) }
	train := func(dir string, args ...string) {
		snug(t, 0, append([]string{"train", "--config", config, "--out", at(dir), "--training.max_steps", "3", "--training.mixed_precision", "fp32"}, args...)...)
	}
	train("base", "--model.use_multimodal", "true", "--model.audio_samples", "64", "--model.video_frames", "3", "--model.modalities", "[image,audio,video]")
	train("on", "--model.folder", at("base"), "--lora.targets", "[senses.*,attention.dense]", "--lora.rank", "2", "--lora.alpha", "64")
	snug(t, 0, "export", "--merge", at("on"), at("merged"))
	if a, b := lossOf(t, at("on")), lossOf(t, at("merged")); math.Abs(a-b) > 1e-5 {
		t.Errorf("with adapters the loss is %v, merged %v", a, b)
	}
	snug(t, 0, "generate", at("on"), "--tokens", "3")
}
