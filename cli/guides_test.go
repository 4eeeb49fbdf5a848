package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestGuideFlags tests the flags of every command line in the five guides (000 to 004). Each flag is
// translated, with a line that says to what, or rejected with the name of ours.
func TestGuideFlags(t *testing.T) {
	for _, c := range []struct {
		guide, flags string
		want         string // expected settings
		says         string // words of one line on stderr
		refused      bool
	}{
		{guide: "000", flags: "--config configs/t4_optimized_config.yaml", want: "model.d_model=384 training.gradient_accumulation_steps=8", says: "taken|as|the|preset|agiformer-ultra-t4"},
		{guide: "000", flags: "--config configs/base_config.yaml --model.use_multimodal false --model.n_experts 2 --model.memory_size 1000 --training.batch_size 8",
			want: "model.use_multimodal=false model.n_experts=2 model.memory_size=1000 training.batch_size=8", says: "taken|as|the|preset|agiformer-base-t4"},
		{guide: "000", flags: "--config configs/t4_optimized_config.yaml --debug", says: "--debug snug|plan", refused: true},
		{guide: "000", flags: "--training.batch_size 4", want: "training.batch_size=4"},
		{guide: "000", flags: "--training.use_gradient_checkpointing true", want: "training.gradient_checkpointing=full", says: "taken|as|training.gradient_checkpointing|full"},
		{guide: "000", flags: "--training.use_amp true", says: "taken|as|training.mixed_precision|auto"},
		{guide: "000", flags: "agiformer-base-t4 --model.d_model 384 --model.n_layers 6 --model.n_heads 6", want: "model.d_model=384 model.n_layers=6"},
		{guide: "000", flags: "agiformer-base-t4 --model.use_multimodal false", want: "model.use_multimodal=false"},
		{guide: "000", flags: "--debug", says: "--debug snug|bench|--ops", refused: true},
		{guide: "001", flags: "--monitor-only", says: "--monitor-only snug", refused: true},
		{guide: "001", flags: "dynamo-guide --phases.run 1", want: `phases.run="1"`},
		{guide: "001", flags: "dynamo-guide --phases.run 2", want: `phases.run="2"`},
		{guide: "001", flags: "dynamo-guide --phases.run 3", want: `phases.run="3"`},
		{guide: "003", flags: "--config test --mixed-precision bf16", want: "model.d_model=2048 training.batch_size=2 training.mixed_precision=bf16", says: "taken|as|the|preset|refocused-test taken|as|--training.mixed_precision|bf16"},
		{guide: "003", flags: "--config production --mixed-precision bf16", want: "training.batch_size=4 training.mixed_precision=bf16", says: "taken|as|the|preset|refocused-production"},
		{guide: "003", flags: "--config test --mixed-precision no", want: "training.mixed_precision=fp32", says: "taken|as|--training.mixed_precision|fp32"},
		{guide: "003", flags: "--config=production --mixed-precision=fp32", want: "training.mixed_precision=fp32", says: "taken|as|the|preset|refocused-production"},
		{guide: "004", flags: "--config configs/colab_optimized_full.yaml", want: "model.channels=[64,|128,|256] training.batch_size=20", says: "taken|as|the|preset|cloudbase-guide"},
		{guide: "004", flags: "--config configs/colab_optimized.yaml", want: "model.channels=[32,|64,|128] training.batch_size=16", says: "taken|as|the|preset|cloudbase-memory-optimised"},
		{guide: "004", flags: "--config configs/colab_optimized_full.yaml --batch_size 16", want: "training.batch_size=16", says: "--batch_size:|taken|as|--training.batch_size|16"},
		{guide: "004", flags: "--config configs/colab_optimized_full.yaml --temporal_frames 4", want: "model.frames=4", says: "--temporal_frames:|taken|as|--model.frames|4"},
		// A setting that only another system has is reported with that system.
		{guide: "004", flags: "quickstart --temporal_frames 4", says: "model.frames cloudbase", refused: true},
		// Several keys end with this name.
		{guide: "001", flags: "dynamo-guide --rank 8", says: "tasks.sentiment.rank tasks.qa.rank", refused: true},
	} {
		t.Run(c.guide+" "+c.flags, func(t *testing.T) { checkGuide(t, strings.Fields(c.flags), c.want, c.says, c.refused) })
	}
}

// TestGuideKeys loads the settings of each guide, as written in its YAML or Python text, over the preset of
// that guide.
func TestGuideKeys(t *testing.T) {
	for _, c := range []struct {
		name, preset, text string
		want, says         string
		refused            bool
	}{
		{name: "000 base", preset: "agiformer-base-t4", text: `
model: {d_model: 512, n_layers: 8, n_heads: 8, d_ff: 2048, n_experts: 2, memory_size: 1000, max_seq_len: 512, use_multimodal: false}
training: {batch_size: 8, use_amp: true, use_gradient_checkpointing: true, gradient_accumulation_steps: 4}
`, want: "training.gradient_checkpointing=full training.gradient_accumulation_steps=4", says: "training.use_amp training.use_gradient_checkpointing"},
		{name: "000 ultra", preset: "agiformer-ultra-t4", text: `
model: {d_model: 384, n_layers: 6, n_heads: 6, d_ff: 1536, n_experts: 1, memory_size: 500, max_seq_len: 256, use_introspection: false}
training: {batch_size: 4, gradient_accumulation_steps: 8}
`, want: "model.memory_size=500 training.gradient_accumulation_steps=8"},
		{name: "001", preset: "dynamo-guide", text: `
training: {batch_size: 32, gradient_accumulation_steps: 2, use_mixed_precision: true, dataloader_num_workers: 8, pin_memory: true, prefetch_factor: 2, persistent_workers: true}
data: {sst2_size: 8000, squad_size: 15000, xsum_size: 10000, code_gen_size: 6000, translation_size: 8000}
`, want: "training.batch_size=32 data.workers=8 data.prefetch=2 tasks.sentiment.examples=8000 tasks.qa.examples=15000 tasks.summarization.examples=10000 tasks.code_generation.examples=6000 tasks.translation.examples=8000",
			says: "use_mixed_precision dataloader_num_workers pin_memory prefetch_factor persistent_workers sst2_size squad_size xsum_size code_gen_size translation_size"},
		{name: "001 loader", preset: "dynamo-guide", text: "batch_size: 32\nnum_workers: 8\npin_memory: true\nprefetch_factor: 2\npersistent_workers: true\ndrop_last: true\n",
			want: "training.batch_size=32 data.workers=8 data.prefetch=2", says: "batch_size num_workers pin_memory prefetch_factor persistent_workers drop_last"},
		{name: "002", preset: "moderation-phobert", text: "BATCH_TRAIN: 16\nBATCH_EVAL: 32\nUSE_GRADIENT_CHECKPOINTING: true\noptim: adamw_torch_fused\ndataloader_num_workers: 2\ndataloader_pin_memory: true\nMAX_LENGTH: 128\nUSE_TORCH_COMPILE: true\nGRAD_ACCUM: 4\n",
			want: "training.batch_size=16 training.eval_batch_size=32 training.gradient_checkpointing=full data.workers=2 data.seq_len=128 training.gradient_accumulation_steps=4",
			says: "BATCH_TRAIN BATCH_EVAL USE_GRADIENT_CHECKPOINTING optim dataloader_num_workers dataloader_pin_memory MAX_LENGTH USE_TORCH_COMPILE GRAD_ACCUM"},
		{name: "002 formats", preset: "moderation-phobert", text: "fp16: true\n", says: "fp16"},
		{name: "002 tf32", preset: "moderation-phobert", text: "bf16: true\ntf32: true\n", says: "bf16 tf32 training.mixed_precision", refused: true},
		{name: "003", preset: "refocused-production", text: "per_device_train_batch_size: 4\ngradient_accumulation_steps: 8\nnum_workers: 4\npin_memory: true\ndrop_last: true\nprefetch_factor: 2\nsave_steps: 500\ncheckpoint_compression: true\nmax_grad_norm: 1.0\nlogging_steps: 25\n",
			want: "training.batch_size=4 training.gradient_accumulation_steps=8 data.workers=4 data.prefetch=2 training.save_steps=500 checkpoint.compression=zstd training.log_steps=25",
			says: "per_device_train_batch_size gradient_accumulation_steps num_workers pin_memory drop_last prefetch_factor save_steps checkpoint_compression max_grad_norm logging_steps"},
		{name: "004 full", preset: "cloudbase-guide", text: "memory_optimized: false\ngradient_checkpointing: true\ntorch_compile: true\ntorch_compile_mode: \"reduce-overhead\"\nbatch_size: 20\ntemporal_frames: 5\nepochs: 50\narchitecture:\n  name: \"transformer\"\n",
			says: "memory_optimized|model.channels gradient_checkpointing|training.gradient_checkpointing torch_compile torch_compile_mode batch_size temporal_frames|model.frames epochs|training.max_steps architecture.name|model.architecture|attention", refused: true},
		{name: "004 full without epochs", preset: "cloudbase-guide", text: "memory_optimized: false\ngradient_checkpointing: true\ntorch_compile: true\ntorch_compile_mode: \"max-autotune\"\nbatch_size: 20\ntemporal_frames: 5\narchitecture:\n  name: \"transformer\"\n",
			want: "model.channels=[64,|128,|256] training.gradient_checkpointing=full training.batch_size=20 model.frames=5 model.architecture=attention", says: "torch_compile torch_compile_mode"},
		{name: "004 small", preset: "cloudbase-guide", text: "memory_optimized: true\ngradient_checkpointing: false\ntorch_compile: false\nbatch_size: 16\ntemporal_frames: 5\n",
			want: "model.channels=[32,|64,|128] training.gradient_checkpointing=none training.batch_size=16", says: "memory_optimized gradient_checkpointing torch_compile batch_size temporal_frames"},
		{name: "the same twice", preset: "quickstart", text: "training:\n  batch_size: 4\nper_device_train_batch_size: 8\n", says: "per_device_train_batch_size training.batch_size|line|2", refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("guide.yaml", []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			checkGuide(t, []string{c.preset, "--config", "guide.yaml"}, c.want, c.says, c.refused)
		})
	}
}

// checkGuide runs `snug config` and compares the effective settings and the messages.
func checkGuide(t *testing.T, flags []string, want, says string, refused bool) {
	t.Helper()
	var out, errs bytes.Buffer
	code := Main(append([]string{"config", "--json"}, flags...), strings.NewReader(""), &out, &errs)
	if refused != (code == exitUsage) || !refused && code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, word := range strings.Fields(says) {
		if word = strings.ReplaceAll(word, "|", " "); !saysWords(errs.String(), word) {
			t.Errorf("no %q in\n%s", word, errs.String())
		}
	}
	if says == "" && errs.Len() > 0 {
		t.Errorf("said, though nothing is foreign:\n%s", errs.String())
	}
	if want == "" {
		return
	}
	var values []struct{ Key, Value string }
	if err := json.Unmarshal(out.Bytes(), &values); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range values {
		got[v.Key] = v.Value
	}
	for _, pair := range strings.Fields(want) {
		key, value, _ := strings.Cut(strings.ReplaceAll(pair, "|", " "), "=")
		if got[key] != value {
			t.Errorf("%s is %s, want %s", key, got[key], value)
		}
	}
}

// saysWords reports whether one line contains all words in order.
func saysWords(text, words string) bool {
	for line := range strings.Lines(text) {
		found := true
		for _, w := range strings.Fields(words) {
			_, line, found = strings.Cut(line, w)
			if !found {
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}
