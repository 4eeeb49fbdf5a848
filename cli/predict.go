package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
)

type predictCmd struct {
	pick
	Files     []string `arg:"" optional:"" help:"JSONL, CSV, TSV, JSON or Parquet files; none: texts from standard input, one a line."`
	Stdin     string   `name:"stdin-format" enum:",lines,jsonl,csv,tsv" default:"" help:"What standard input holds: lines, jsonl, csv or tsv (default: lines)."`
	TextField string   `name:"text-field" help:"Field or column that holds the text (default: the run's)." placeholder:"NAME"`
	NoHeader  bool     `name:"no-header" help:"CSV and TSV start with data; their columns are called 1, 2, ..."`
	Keep      []string `help:"Fields to copy to the output." placeholder:"NAME,..."`
	Format    string   `enum:"jsonl,csv" default:"jsonl" help:"Of the output (${enum})."`
	Output    string   `short:"o" help:"File to write (default: standard output)." placeholder:"FILE"`
	Threads   int      `help:"Worker threads (default: the cores this process may use)." min:"1" of:"threads" key:"hardware.threads"`
}

// Help implements kong.HelpProvider.
func (predictCmd) Help() string {
	return `Answers come in the order of the input, each with the place it is for.

Examples:
  snug predict runs/mine comments.csv --keep id > answers.jsonl
  echo "some text" | snug predict runs/mine --checkpoint last
  snug predict runs/mine --stdin-format jsonl --format csv < comments.jsonl`
}

// Run implements the verb.
func (p *predictCmd) Run(a *app) (err error) {
	if err := p.check(); err != nil {
		return err
	}
	o, err := a.open(p.pick)
	if err != nil {
		return err
	}
	if o.system.Predictor == nil {
		return fmt.Errorf("%s is a run of the system %s, which does not predict", p.Path, o.config.System)
	}
	on, err := o.device(p.Threads)
	if err != nil {
		return err
	}
	k, err := o.system.Predictor(o.config, o.Path, on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	_, _ = fmt.Fprintf(a.err, "using %v\n", o) // only told
	if remark := k.Remark(); remark != "" {
		_, _ = fmt.Fprintf(a.err, "%s\n", remark)
	}
	var out io.Writer = a.out // which is stdout, unless JSON was asked for
	var said bytes.Buffer     // the answers, as part of a document
	switch {
	case p.Output != "":
		f, err2 := regular.Create(p.Output)
		if err2 != nil {
			return err2
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	case a.asJSON:
		if p.Format != "jsonl" {
			return usage("--format %s with --json: stdout holds one JSON document; give --output FILE for the answers", p.Format)
		}
		out = &said
	}
	w := newAnswers(out, p.Format, p.Keep)
	began, n := time.Now(), 0
	batch := make([]inference.Input, 0, k.Batch())
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		answers, err := k.Predict(a.ctx, batch)
		if err != nil {
			return err
		}
		for i, x := range answers {
			if err := w.write(batch[i], x); err != nil {
				return err
			}
		}
		n += len(batch)
		batch = batch[:0]
		return w.flush()
	}
	for in, err := range p.inputs(a.ctx, a.in, k.TextField()) {
		if err != nil {
			return err
		}
		if batch = append(batch, in); len(batch) == k.Batch() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if a.asJSON {
		return p.document(a, o, said.Bytes(), n, time.Since(began))
	}
	_, err = fmt.Fprintf(a.err, "%d answers in %s, %.0f a second\n", n, shortDuration(time.Since(began)), float64(n)/time.Since(began).Seconds())
	return err
}

// check refuses flags that the input has no use for.
func (p *predictCmd) check() error {
	format, lines := p.Stdin, len(p.Files) == 0 && (p.Stdin == "" || p.Stdin == "lines")
	switch {
	case len(p.Files) > 0 && format != "":
		return usage("--stdin-format %s: standard input is not read where files are named", format)
	case lines && p.TextField != "":
		return usage("--text-field %s: lines of text have no fields; --stdin-format jsonl, csv or tsv reads some", p.TextField)
	case len(p.Files) == 0 && p.NoHeader && format != "csv" && format != "tsv":
		return usage("--no-header: is for csv and tsv; --stdin-format names one of them")
	}
	return nil
}

// renamed is a record whose text lies in another field than the predictor asks
// for, or that came by standard input.
type renamed struct {
	inference.Input
	ask, field string
	spooled    string // the file that standard input was copied to
}

// Where implements inference.Input.
func (r renamed) Where() string {
	if place, ok := strings.CutPrefix(r.Input.Where(), r.spooled); ok && r.spooled != "" {
		return "stdin" + place
	}
	return r.Input.Where()
}

// Text implements inference.Input.
func (r renamed) Text(field string) (string, error) {
	if field == r.ask {
		field = r.field
	}
	return r.Input.Text(field)
}

// line is a line of standard input as an input with one field.
type line struct {
	text, field string
	number      int
}

// Text implements inference.Input.
func (l line) Text(field string) (string, error) {
	if field != l.field {
		return "", fmt.Errorf("%s: lines of text have no field %q; --stdin-format jsonl reads fields", l.Where(), field)
	}
	return l.text, nil
}

// Where implements inference.Input.
func (l line) Where() string { return fmt.Sprintf("stdin:%d", l.number) }

// inputs streams what is to be answered.
func (p *predictCmd) inputs(ctx context.Context, in io.Reader, field string) func(yield func(inference.Input, error) bool) {
	return func(yield func(inference.Input, error) bool) {
		if len(p.Files) == 0 && (p.Stdin == "" || p.Stdin == "lines") {
			p.lines(ctx, in, field, yield)
			return
		}
		files, x := p.Files, renamed{ask: field, field: field}
		opt := data.Options{NoHeader: p.NoHeader}
		if p.TextField != "" {
			x.field = p.TextField
		}
		if len(files) == 0 {
			spooled, remove, err := spool(in)
			if err != nil {
				yield(nil, err)
				return
			}
			defer remove()
			files, opt.Format, x.spooled = []string{spooled}, p.Stdin, spooled
		}
		f, err := data.OpenFiles(files, opt)
		if err != nil {
			yield(nil, err)
			return
		}
		for r, err := range f.Records() {
			if err == nil {
				err = ctx.Err()
			}
			x.Input = r
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

func (p *predictCmd) lines(ctx context.Context, in io.Reader, field string, yield func(inference.Input, error) bool) {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		if !yield(line{strings.ToValidUTF8(s.Text(), "\uFFFD"), field, n}, nil) {
			return
		}
	}
	if err := s.Err(); err != nil {
		yield(nil, fmt.Errorf("standard input: %w", err))
	}
}

// spool copies standard input to a file, for readers that want one.
func spool(in io.Reader) (path string, remove func(), err error) {
	dir, err := durable.Scratch("stdin")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // the next process that has something to keep there tries again
	f, err := regular.Create(filepath.Join(dir, "stdin"))
	if err == nil {
		_, err = io.Copy(f, in)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return f.Name(), remove, nil
}

// document prints what was predicted as JSON: the answers, or the file that
// they were written to.
func (p *predictCmd) document(a *app, o *opened, lines []byte, n int, took time.Duration) error {
	d := struct {
		*checkpoint.Chosen
		Count   int               `json:"count"`
		Seconds float64           `json:"seconds"`
		Output  string            `json:"output,omitempty"`
		Answers []json.RawMessage `json:"answers,omitempty"`
	}{Chosen: o.Chosen, Count: n, Seconds: took.Seconds(), Output: p.Output}
	for line := range bytes.Lines(lines) {
		d.Answers = append(d.Answers, line)
	}
	return a.json(d)
}

// answers writes answers in a format.
type answers struct {
	w      *bufio.Writer
	csv    *csv.Writer
	keep   []string
	header []string
}

func newAnswers(w io.Writer, format string, keep []string) *answers {
	a := &answers{w: bufio.NewWriter(w), keep: keep}
	if format == "csv" {
		a.csv = csv.NewWriter(a.w)
	}
	return a
}

func (a *answers) write(in inference.Input, x inference.Answer) error {
	row := inference.Answer{{Name: "input", Value: in.Where()}}
	for _, name := range a.keep {
		v, err := in.Text(name)
		if err != nil {
			return fmt.Errorf("%w (--keep names it)", err)
		}
		if slices.ContainsFunc(x, func(f inference.Field) bool { return f.Name == name }) {
			name = "input." + name
		}
		row = append(row, inference.Field{Name: name, Value: v})
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
		return fmt.Errorf("%s has the columns %s, the rows before %s: write jsonl", in.Where(), few.Of(names), few.Of(a.header))
	}
	return a.csv.Write(values)
}

// json writes the fields in their order.
func (a *answers) json(row inference.Answer) error {
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

func (a *answers) flush() error {
	if a.csv != nil {
		a.csv.Flush()
		if err := a.csv.Error(); err != nil {
			return err
		}
	}
	return a.w.Flush()
}
