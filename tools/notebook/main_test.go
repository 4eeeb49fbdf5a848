package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The committed notebook is that of the committed script.
func TestNotebookIsUpToDate(t *testing.T) {
	script, err := os.ReadFile("../../notebooks/colab.sh")
	if err != nil {
		t.Fatal(err)
	}
	want, err := notebook(string(script))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../notebooks/colab.ipynb")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("notebooks/colab.ipynb is out of date: go run ./tools/notebook notebooks/colab.sh notebooks/colab.ipynb")
	}
}

func TestCells(t *testing.T) {
	out, err := notebook("#!/bin/sh\nset -e\n# %% [md]\n# # Title\n#\n# Text.\n\n# %% Do it\necho \"a <b>\"\n\n# %% [python]\npython3 - <<'PY'\nprint(1)\nPY\n")
	if err != nil {
		t.Fatal(err)
	}
	var n struct {
		Cells []struct {
			Type   string   `json:"cell_type"`
			Source []string `json:"source"`
		}
	}
	if err := json.Unmarshal(out, &n); err != nil {
		t.Fatal(err)
	}
	want := []string{"markdown|# Title\n\nText.", "code|%%bash\n# Do it\nset -euo pipefail\necho \"a <b>\"", "code|print(1)"}
	if len(n.Cells) != len(want) {
		t.Fatalf("%d cells, want %d", len(n.Cells), len(want))
	}
	for i, c := range n.Cells {
		if got := c.Type + "|" + strings.Join(c.Source, ""); got != want[i] {
			t.Errorf("cell %d: %q, want %q", i, got, want[i])
		}
	}
	for _, bad := range []string{"echo", "# %% [md]\ntext", "# %% [python]\nprint(1)", "# %% [python]\npython3 - <<'PY'\nprint(1)\nPY\necho"} {
		if _, err := notebook(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
