package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/system"
)

// TestPages holds every command of the documentation against the grammar: it parses, its presets and settings exist, and
// the shell leaves its patterns alone. docs/guides.md, which TestGuidePage reads, says more of each.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{} // by the system that the page is about
	for _, page := range append(pages, "../README.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if !slices.ContainsFunc(session.Systems, func(s system.System) bool { return s.Config.Name == name }) {
			name = "refocused"
		}
		for _, line := range commandsOf(string(raw), name) {
			lines[name] = append(lines[name], filepath.Base(page)+": "+line)
		}
	}
	t.Chdir(t.TempDir())
	n := 0
	for name, lines := range lines {
		for _, file := range []string{"mine.yaml", "small.yaml", "flights.yaml"} {
			if err := os.WriteFile(file, []byte("system: "+name+"\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range lines {
			n++
			page, line, _ := strings.Cut(l, ": ")
			if err := understood(aFolder.ReplaceAllString(line, "")); err != nil && !incomplete.MatchString(err.Error()) {
				t.Errorf("%s: snug %s: %v", page, line, err)
			}
			for _, word := range aWord.FindAllString(line, -1) {
				if !strings.ContainsAny(word[:1], `"'`) && strings.ContainsAny(word, "*?") {
					t.Errorf("%s: snug %s: a shell replaces %s by several words: put it in quotes", page, line, word)
				}
			}
		}
	}
	if n < 200 {
		t.Errorf("%d commands were found: the test reads the pages wrongly", n)
	}
}

var (
	// A command stands in a line of its own, which can go on in the next ones, or in a text.
	commandLine = regexp.MustCompile(`(?m)^    snug (.*(?:\n      +-.*)*)`)
	commandSpan = regexp.MustCompile("`snug ([^`]+)`")
	remark      = regexp.MustCompile(` +#.*|  .*| > .*`)
	placeholder = regexp.MustCompile(`\b[A-Z]+\b`)
	// A folder that is named is not here.
	aFolder = regexp.MustCompile(` --(model|lora)\.folder \S+`)
	// A text may name no more of a command than it is about.
	incomplete = regexp.MustCompile(`is missing|missing flags|got none`)
)

// commandsOf are those of a page, with something in place of what they leave open.
func commandsOf(text, system string) (out []string) {
	for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
		first, rest, _ := strings.Cut(m[1], "\n")
		line := remark.ReplaceAllString(first, "") + " " + strings.Join(strings.Fields(rest), " ")
		line, _, _ = strings.Cut(line, " [") // what may be left out
		out = append(out, line)
	}
	for _, m := range commandSpan.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "|") && m[1] != "--version" { // a choice; no command
			out = append(out, strings.ReplaceAll(m[1], "\n", " "))
		}
	}
	preset := strings.TrimPrefix(system+"-quickstart", "refocused-")
	given := map[string]string{"PRESET": preset, "RUN": "runs/quickstart", "CARD": "t4", "N": "2", "M": "2", "STAGE": "router", "PASS": "place"}
	for i, line := range out {
		line = strings.NewReplacer(" ...", "", "...", "", "\\|", "|").Replace(line)
		out[i] = placeholder.ReplaceAllStringFunc(line, func(word string) string {
			if v, ok := given[word]; ok {
				return v
			}
			return word
		})
	}
	return out
}
