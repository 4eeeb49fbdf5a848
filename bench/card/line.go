package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

type lineCmd struct {
	Part    string  `arg:"" help:"Its name."`
	Result  string  `arg:"" help:"ok, or what went wrong."`
	Seconds float64 `arg:"" help:"What it took."`
}

// Run implements the command.
func (c *lineCmd) Run() error {
	printed, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c.line(printed, os.Stderr))
}

// line is the part with the JSON among what it printed: one document, or lines that are objects. A line that
// should be one but cannot be read is reported to log, and counts in the result.
func (c *lineCmd) line(printed []byte, log io.Writer) part {
	p := part{Name: c.Part, Result: c.Result, Seconds: c.Seconds, Data: []json.RawMessage{}}
	if json.Valid(printed) {
		p.Data = append(p.Data, printed)
		return p
	}
	bad := 0
	for line := range bytes.Lines(printed) {
		switch line = bytes.TrimSpace(line); {
		case !bytes.HasPrefix(line, []byte("{")):
		case json.Valid(line):
			p.Data = append(p.Data, line)
		default:
			bad++
			_, _ = fmt.Fprintf(log, "%s: no JSON: %s\n", c.Part, line) // best effort
		}
	}
	if bad > 0 {
		p.Result += fmt.Sprintf(", %d lines are no JSON", bad)
	}
	return p
}
