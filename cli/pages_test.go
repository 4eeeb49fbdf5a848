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

// TestPages checks every command in the documentation against the grammar: it parses, its presets and
// settings exist, and the shell leaves its patterns alone. TestGuidePage checks docs/guides.md, which
// contains more.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{} // by the system that the page describes
	for _, page := range append(pages, "../README.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if !slices.ContainsFunc(session.Systems, func(s system.System) bool { return s.Config.Name == name }) {
			name = "refocused"
		}
		for _, command := range unjoined.FindAllString(string(raw), -1) {
			t.Errorf("%s: a shell ends the command here: end the line with a backslash:\n%s", filepath.Base(page), command)
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
	// A command is on a line of its own, which may continue on the next ones, or within a text.
	commandLine = regexp.MustCompile(`(?m)^    snug (.*(?:\n      +-.*)*)`)
	// A shell reads the next line as part of the command only after a backslash.
	unjoined    = regexp.MustCompile(`(?m)^    .*[^\\]\n      +--`)
	commandSpan = regexp.MustCompile("`snug ([^`]+)`")
	remark      = regexp.MustCompile(` +#.*|  .*| > .*`)
	placeholder = regexp.MustCompile(`\b[A-Z]+\b`)
	// Folders that a command names do not exist here.
	aFolder = regexp.MustCompile(` --(model|lora)\.folder \S+`)
	// A text may leave out the parts of a command that it does not discuss.
	incomplete = regexp.MustCompile(`is missing|missing flags|got none`)
)

// commandsOf returns the commands of a page, with values for what they leave open.
func commandsOf(text, system string) (out []string) {
	for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
		first, rest, _ := strings.Cut(strings.ReplaceAll(m[1], " \\\n", "\n"), "\n")
		line := remark.ReplaceAllString(first, "") + " " + strings.Join(strings.Fields(rest), " ")
		line, _, _ = strings.Cut(line, " [") // optional parts
		out = append(out, line)
	}
	for _, m := range commandSpan.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "|") && m[1] != "--version" { // an alternative, not a command
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
