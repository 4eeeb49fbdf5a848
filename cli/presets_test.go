package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
)

// Every preset trains as shipped, or names the one flag that is missing before it announces anything or makes a
// folder. What is as large as a card and named by a flag is planned: a refusal by memory is an answer.
func TestEveryPresetTrainsOrNamesWhatIsMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("plans every preset")
	}
	presets, err := config.ListPresets(configs.FS)
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`(?m)^snug: (?:preset [a-z0-9-]+:\d+: )?(--)?((data|tasks|model|split)[a-z_.]+): `)
	for _, p := range presets {
		t.Run(p.Name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if s := snug(t, "", "plan", p.Name, "--card", "t4"); s.code != exitDone && s.code != exitNoFit {
				t.Errorf("plan: exit code %d\n%s", s.code, s.err)
			}
			args := []string{"train", p.Name, "--training.max_steps", "1", "--training.warmup_steps", "0", "--training.eval_batches", "1", "--training.early_stopping_patience", "0"}
			if p.Name == "dynamo-quickstart" {
				args = append(args, "--phase", "0")
			}
			s := snug(t, "", args...)
			if strings.HasSuffix(p.Name, "quickstart") { // what they learn is in docs/quality.md
				if s.code != exitDone {
					t.Errorf("exit code %d\n%s", s.code, s.err)
				}
				return
			}
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
