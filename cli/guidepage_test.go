package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/system"
)

// TestGuidePage checks docs/guides.md against the grammar: every command parses and its settings load, and
// every preset, flag, setting and file that the page names exists. tools/guides runs the commands.
func TestGuidePage(t *testing.T) {
	raw, err := os.ReadFile("../docs/guides.md")
	if err != nil {
		t.Fatal(err)
	}
	_, points, ok := strings.Cut(string(raw), "## Every point of the guides")
	if !ok {
		t.Fatal("the page has no points")
	}
	span := regexp.MustCompile("`([^`]+)`")
	commands, settings, names, files := 0, 0, 0, 0
	for _, m := range span.FindAllStringSubmatch(points, -1) {
		text := m[1]
		first, _, _ := strings.Cut(text, " ")
		switch {
		case first == "snug":
			commands++
			line := strings.TrimPrefix(text, "snug ")
			if err := understood(line); err != nil {
				t.Errorf("`%s`: %v", text, err)
			}
			for _, word := range wordsOf(line) {
				if m := aRun.FindStringSubmatch(word); m != nil && session.PresetSettings("", m[1]) == nil {
					t.Errorf("`%s`: no preset makes the run %s", text, word)
				}
			}
		case aSetting.MatchString(first):
			settings++
			if key := strings.Trim(first, "-:"); !isSetting(key) {
				t.Errorf("`%s`: no system has the setting %s", text, key)
			}
		case aPreset.MatchString(text):
			names++
			if !isPreset(t, text) {
				t.Errorf("there is no preset %s", text)
			}
		case aFile.MatchString(text):
			files++
			if _, err := os.Stat("../" + text); err != nil {
				t.Error(err)
			}
		}
	}
	if commands < 120 || settings < 8 || names < 4 || files < 3 {
		t.Errorf("%d commands, %d settings, %d presets and %d files were found: the test reads the page wrongly", commands, settings, names, files)
	}
}

// TestGuideFigures: where the command of a point is a plan for a card, the first size that the point gives is what the
// plan needs, or one part of it.
func TestGuideFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("plans every preset that the guides have a point on")
	}
	t.Parallel()
	raw, err := os.ReadFile("../docs/guides.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\|.*\\| `snug (plan [^`]* --card [^`]*)` \\|.*?([0-9.]+ GiB).*\\|$").FindAllStringSubmatch(string(raw), -1)
	if len(rows) < 15 {
		t.Errorf("%d plans with sizes were found: the test reads the page wrongly", len(rows))
	}
	for _, r := range rows {
		var out, errs bytes.Buffer
		code := Main(append(wordsOf(r[1]), "--json"), strings.NewReader(""), &out, &errs)
		type report struct {
			Components []struct{ Bytes size.Bytes }
		}
		var p struct {
			report
			Report report // of what does not fit
		}
		if err := json.Unmarshal(out.Bytes(), &p); err != nil || code != exitDone && code != exitNoFit {
			t.Errorf("snug %s: exit code %d, %v: %s", r[1], code, err, &errs)
			continue
		}
		var total size.Bytes
		var parts []string
		for _, c := range append(p.Components, p.Report.Components...) {
			total += c.Bytes
			parts = append(parts, c.Bytes.String())
		}
		if parts = append(parts, total.String()); !slices.Contains(parts, r[2]) {
			t.Errorf("the page says %s, but `snug %s` has %s", r[2], r[1], strings.Join(parts, ", "))
		}
	}
}

var (
	aSetting = regexp.MustCompile(`^(--)?(model|data|training|tasks|phases|hardware|checkpoint|metrics)\.[a-z0-9_.<>]+:?$`)
	aPreset  = regexp.MustCompile(`^(refocused|agiformer|moderation|dynamo|cloudbase)(-[a-z0-9]+)+$`)
	aFile    = regexp.MustCompile(`^(notebooks|tools)/[a-z]+[a-z/]*\.[a-z]+$`)
	aRun     = regexp.MustCompile(`^runs/(.+)$`)
	aWord    = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
)

// wordsOf returns the words of a command line, without quotes.
func wordsOf(line string) []string {
	words := aWord.FindAllString(line, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], `"'`)
	}
	return words
}

// understood returns an error if the program would reject a command line before it looks at any data.
func understood(line string) error {
	words := wordsOf(line)
	var quiet bytes.Buffer
	overrides, rest := config.SplitFlags(words)
	a := &app{in: strings.NewReader(""), out: newStream(&quiet, false), stdout: newStream(&quiet, false), err: newStream(&quiet, true), overrides: overrides}
	var cmds commands
	parser, err := a.parser(&cmds, os.Stdout, func(int) {})
	if err != nil {
		return err
	}
	k, err := parser.Parse(joined(a.foreign(parser.Model.Node, rest)))
	if err != nil {
		return explained(err)
	}
	if err := check(k, a.overrides); err != nil {
		return err
	}
	preset := ""
	for _, p := range k.Path {
		if p.Positional != nil && p.Positional.Name == "preset" {
			preset = p.Positional.Target.String()
		}
	}
	if k.Selected().Tag.Get(tagSettings) != "all" {
		return nil
	}
	from, err := session.Respelled(a.sources(choice{Preset: preset}), nil)
	if err != nil {
		return err
	}
	from.Fetch = nil
	_, err = config.Load(from)
	return err
}

// isSetting reports whether a system or its quickstart has a setting; <task> stands for any task.
func isSetting(key string) bool {
	key = strings.ReplaceAll(key, "<task>", "sentiment")
	return slices.ContainsFunc(session.Systems, func(s system.System) bool {
		_, bare := session.PresetSettings(s.Config.Name, "")[key]
		_, quick := session.PresetSettings("", s.Config.Name+"-quickstart")[key]
		return bare || quick
	})
}

// isPreset reports whether a preset ships with the program.
func isPreset(t *testing.T, name string) bool {
	t.Helper()
	list, err := config.ListPresets(configs.FS)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(p config.PresetInfo) bool { return p.Name == name })
}
