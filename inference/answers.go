package inference

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/snug-ml/snug/internal/few"
)

// AnswerWriter writes answers in a format.
type AnswerWriter struct {
	w      *bufio.Writer
	csv    *csv.Writer
	keep   []string
	header []string
}

// NewAnswerWriter writes to w as jsonl or csv. keep names fields of the inputs to copy.
func NewAnswerWriter(w io.Writer, format string, keep []string) *AnswerWriter {
	a := &AnswerWriter{w: bufio.NewWriter(w), keep: keep}
	if format == "csv" {
		a.csv = csv.NewWriter(a.w)
	}
	return a
}

// Write writes the answer to an input.
func (a *AnswerWriter) Write(in Input, x Answer) error {
	row := Answer{{Name: "input", Value: in.Where()}}
	for _, name := range a.keep {
		v, err := in.Text(name)
		if err != nil {
			return fmt.Errorf("%w (--keep names it)", err)
		}
		same := func(f Field) bool { return f.Name == name }
		for slices.ContainsFunc(row, same) || slices.ContainsFunc(x, same) {
			name = "input." + name
		}
		row = append(row, Field{Name: name, Value: v})
	}
	row = append(row, x...)
	if a.csv == nil {
		return a.json(row)
	}
	var names, values []string
	for _, f := range row {
		names, values = append(names, f.Name), append(values, fmt.Sprint(f.Value))
	}
	if a.header == nil {
		a.header = names
		if err := a.csv.Write(names); err != nil {
			return err
		}
	}
	if !slices.Equal(names, a.header) {
		return fmt.Errorf("%s has the columns %s, earlier rows have %s: use jsonl", in.Where(), few.Of(names), few.Of(a.header))
	}
	return a.csv.Write(values)
}

// json writes the fields in order.
func (a *AnswerWriter) json(row Answer) error {
	sep := byte('{')
	for _, f := range row {
		name, err := json.Marshal(f.Name)
		if err != nil {
			return err
		}
		value, err := json.Marshal(f.Value)
		if err != nil {
			return err
		}
		if err := a.w.WriteByte(sep); err != nil {
			return err
		}
		sep = ','
		if _, err := fmt.Fprintf(a.w, "%s:%s", name, value); err != nil {
			return err
		}
	}
	_, err := a.w.WriteString("}\n")
	return err
}

// Flush writes out what is buffered.
func (a *AnswerWriter) Flush() error {
	if a.csv != nil {
		a.csv.Flush()
		if err := a.csv.Error(); err != nil {
			return err
		}
	}
	return a.w.Flush()
}
