package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestBadInputsTable: the tables in docs/bad-inputs.md and the scripts badinput*.txtar that test them have
// the same rows, each with a unique number.
func TestBadInputsTable(t *testing.T) {
	rows := func(glob, pattern string) map[string]string {
		paths, err := filepath.Glob(glob)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", glob, paths, err)
		}
		found := map[string]string{}
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(raw), -1) {
				if found[m[1]] != "" {
					t.Errorf("%s: row %s is there twice", path, m[1])
				}
				found[m[1]] = m[2]
			}
		}
		return found
	}
	table := rows("../docs/bad-inputs.md", `(?m)^\| (\d+) \| (.*?) \|`)
	tried := rows("testdata/badinput*.txtar", `(?m)^# (\d+) (.*)$`)
	if len(tried) < 40 {
		t.Errorf("the scripts try only %d inputs", len(tried))
	}
	for n, what := range table {
		if tried[n] != what {
			t.Errorf("row %s of the table is %q, the scripts try %q", n, what, tried[n])
		}
	}
	for n, what := range tried {
		if table[n] == "" {
			t.Errorf("the scripts try %q (%s), which the table lacks", what, n)
		}
	}
}
