package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
)

// Every preset but a quickstart, which trains as shipped, names the one flag that is missing before it announces anything or makes a
// folder. What is as large as a card and named by a flag is planned: a refusal by memory is an answer.
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
			t.Chdir(t.TempDir())
			if s := snug(t, "", "plan", p.Name, "--card", "t4"); s.code != exitDone && s.code != exitNoFit {
				t.Errorf("plan: exit code %d\n%s", s.code, s.err)
			}
			if strings.HasSuffix(p.Name, "quickstart") {
				return // docs/quality.md has them trained, by tools/quality
			}
			s := snug(t, "", "train", p.Name)
			found := flag.FindStringSubmatch(s.err)
			if s.code != exitUsage || found == nil || s.out != "" {
				t.Fatalf("exit code %d, %q said first\n%s", s.code, s.out, s.err)
			}
			if list, err := os.ReadDir("."); err != nil || len(list) > 0 {
				t.Errorf("%v was made, %v", list, err)
			}
			t.Logf("%s", strings.TrimSpace(s.err))
		})
	}
}

// The presets of finetune plan the largest model that they name on their card.
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
			t.Chdir(t.TempDir())
			if err := os.WriteFile("config.json", []byte(x.model), 0o666); err != nil {
				t.Fatal(err)
			}
			args := []string{"plan", x.preset, "--model.folder", "."}
			if x.card != "" {
				args = append(args, "--card", x.card)
			}
			if s := snug(t, "", args...); s.code != exitDone {
				t.Errorf("exit code %d\n%s", s.code, s.err)
			}
		})
	}
}
