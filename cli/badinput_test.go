package cli

import (
	"os"
	"regexp"
	"testing"
)

// The table in docs/bad-inputs.md and the script that tries it have the same rows.
func TestBadInputsTable(t *testing.T) {
	rows := func(path, pattern string) map[string]string {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(raw), -1) {
			found[m[1]] = m[2]
		}
		return found
	}
	table := rows("../docs/bad-inputs.md", `(?m)^\| (\d+) \| (.*?) \|`)
	tried := rows("testdata/badinput.txtar", `(?m)^# (\d+) (.*)$`)
	if len(tried) < 40 {
		t.Errorf("the script tries only %d inputs", len(tried))
	}
	for n, what := range table {
		if tried[n] != what {
			t.Errorf("row %s of the table is %q, the script tries %q", n, what, tried[n])
		}
	}
	for n, what := range tried {
		if table[n] == "" {
			t.Errorf("the script tries %q (%s), which the table lacks", what, n)
		}
	}
}
