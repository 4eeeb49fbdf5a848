package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
)

// TestEveryPresetNamesWhatIsMissing: every preset except a quickstart, which trains as shipped, names the one
// flag that is missing before it announces anything or creates a folder. A preset as large as a card, with
// the flag given, is planned; a refusal because of memory is a valid answer.
func TestEveryPresetNamesWhatIsMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("plans every preset")
	}
	presets, err := config.ListPresets(configs.FS)
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`^snug: [^\n]*--(data|tasks|model|split)\.[a-z_.]+`)
	for _, p := range presets {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if v := launch(t, dir, "snug", "plan", p.Name, "--card", "t4", "--json"); v.wait() != exitDone && v.code != exitNoFit {
				t.Errorf("plan: exit code %d\n%s", v.code, v.output())
			}
			if strings.HasSuffix(p.Name, "quickstart") {
				return // tools/quality trains it for docs/quality.md
			}
			v := launch(t, dir, "snug", "train", p.Name)
			if v.wait() != exitUsage || !flag.MatchString(v.output()) {
				t.Fatalf("exit code %d\n%s", v.code, v.output())
			}
			if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
				t.Errorf("%v was made, %v", list, err)
			}
			t.Logf("%s", strings.TrimSpace(v.output()))
		})
	}
}

// TestFinetunePresetsFit: the presets of finetune plan the largest model that they name on their card.
func TestFinetunePresetsFit(t *testing.T) {
	if testing.Short() {
		t.Skip("plans models of billions of parameters")
	}
	llama := func(width, hidden, keys, layers, vocab int) string {
		return fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": %d, "intermediate_size": %d, "max_position_embeddings": 4096,
			"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": 128, "num_hidden_layers": %d, "rms_norm_eps": 1e-5, "vocab_size": %d}`, width, hidden, width/128, keys, layers, vocab)
	}
	for _, x := range []struct{ preset, card, model string }{
		{"finetune-8gb", "rtx 3070", llama(4096, 14336, 8, 32, 128256)},
		{"finetune-t4", "t4", llama(4096, 14336, 8, 32, 128256)},
		{"finetune-12gb", "rtx 3060", llama(5120, 13824, 40, 40, 32000)},
		{"finetune-24gb", "l4", llama(5120, 13824, 40, 40, 32000)},
		{"finetune-40gb", "a100-40", llama(8192, 22016, 8, 48, 32000)},
		{"finetune-40gb", "l40s", llama(8192, 22016, 8, 48, 32000)},
		{"finetune-80gb", "h100-pcie", llama(8192, 28672, 8, 80, 128256)},
		{"finetune-cpu", "", llama(3072, 8192, 8, 24, 128256)},
	} {
		t.Run(x.preset, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(x.model), 0o666); err != nil {
				t.Fatal(err)
			}
			args := []string{"plan", x.preset, "--json", "--model.folder", "."}
			if x.card != "" {
				args = append(args, "--card", x.card)
			}
			if v := launch(t, dir, "snug", args...); v.wait() != exitDone {
				t.Errorf("exit code %d\n%s", v.code, v.output())
			}
		})
	}
}
