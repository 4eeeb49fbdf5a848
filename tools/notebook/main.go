// Notebook makes a Jupyter notebook of a shell script, a cell of each part that a
// line "# %%" begins:
//
//	# %% Title      a cell that bash runs
//	# %% [md]       text, without the number signs
//	# %% [python]   a cell of Python: what the here-document in the part holds
//
// What comes before the first part belongs to the script alone.
//
//	go run ./tools/notebook notebooks/colab.sh notebooks/colab.ipynb
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Script   string `arg:"" help:"The script to read."`
	Notebook string `arg:"" help:"The notebook to write."`
}

func main() {
	var o options
	tool.Main(&o, "notebook", "Makes a Jupyter notebook of a shell script.", o.run)
}

func (o *options) run(context.Context) error {
	script, err := regular.Read(o.Script, 1<<20)
	if err != nil {
		return err
	}
	out, err := notebook(string(script))
	if err != nil {
		return fmt.Errorf("%s: %w", o.Script, err)
	}
	return durable.Replace(o.Notebook, out)
}

// cell is one of a notebook of format 4.5.
type cell struct {
	Type     string         `json:"cell_type"`
	ID       string         `json:"id"`
	Metadata map[string]any `json:"metadata"`
	Source   []string       `json:"source"`
}

// codeCell has two fields more, empty until the cell has run.
type codeCell struct {
	cell
	Count   *int  `json:"execution_count"`
	Outputs []any `json:"outputs"`
}

const mark = "# %%"

// notebook is the notebook of a script.
func notebook(script string) ([]byte, error) {
	var cells []any
	parts := strings.Split("\n"+script, "\n"+mark)
	for i, part := range parts[1:] {
		kind, body, _ := strings.Cut(part, "\n")
		c := cell{ID: fmt.Sprintf("cell-%d", i+1), Metadata: map[string]any{}}
		kind, body = strings.TrimSpace(kind), strings.TrimSpace(body)
		switch kind {
		case "[md]":
			text, err := uncommented(body)
			if err != nil {
				return nil, fmt.Errorf("part %d: %w", i+1, err)
			}
			c.Type, c.Source = "markdown", lines(text)
			cells = append(cells, c)
			continue
		case "[python]":
			program, err := hereDocument(body)
			if err != nil {
				return nil, fmt.Errorf("part %d: %w", i+1, err)
			}
			c.Source = lines(program)
		default:
			c.Source = lines("%%bash\n# " + kind + "\nset -euo pipefail\n" + body)
		}
		c.Type = "code"
		cells = append(cells, codeCell{cell: c, Outputs: []any{}})
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("it has no part that begins with %q", mark)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(map[string]any{
		"cells": cells, "nbformat": 4, "nbformat_minor": 5,
		"metadata": map[string]any{
			"accelerator":   "GPU",
			"colab":         map[string]any{"gpuType": "T4"},
			"kernelspec":    map[string]any{"display_name": "Python 3", "language": "python", "name": "python3"},
			"language_info": map[string]any{"name": "python"},
		},
	})
	return out.Bytes(), err
}

// uncommented is text without the number signs that begin its lines.
func uncommented(body string) (string, error) {
	var out []string
	for _, line := range strings.Split(body, "\n") {
		if line != "#" && !strings.HasPrefix(line, "# ") {
			return "", fmt.Errorf("%q: want a comment", line)
		}
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	return strings.Join(out, "\n"), nil
}

// hereDocument is what python3 reads in a part.
func hereDocument(body string) (string, error) {
	const begin, end = "python3 - <<'PY'\n", "\nPY"
	if !strings.HasPrefix(body, begin) || !strings.HasSuffix(body, end) {
		return "", fmt.Errorf("want only %q ... %q", begin, end)
	}
	return strings.TrimSuffix(strings.TrimPrefix(body, begin), end), nil
}

// lines are those of a cell, each but the last with its line end.
func lines(text string) []string {
	return strings.SplitAfter(text, "\n")
}
