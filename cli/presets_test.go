package cli

import (
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
