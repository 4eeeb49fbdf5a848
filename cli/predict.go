package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train/checkpoint"
)

type predictCmd struct {
	pick
	Files     []string `arg:"" optional:"" help:"JSONL, CSV, TSV, JSON or Parquet files; for cloudbase also flights (NPZ files, folders of images); none, or -: texts (flights: paths) from standard input, one per line."`
	Stdin     string   `name:"stdin-format" enum:",lines,jsonl,csv,tsv" default:"" help:"Format of standard input: lines, jsonl, csv or tsv (default: lines)."`
	TextField string   `name:"text-field" help:"Field or column that holds the text (default: the run's)." placeholder:"NAME"`
	NoHeader  bool     `name:"no-header" help:"CSV and TSV start with data; their columns are called 1, 2, ..."`
	Keep      []string `help:"Fields to copy to the output." placeholder:"NAME,..."`
	Format    string   `enum:"jsonl,csv" default:"jsonl" help:"Format of the output (${enum})."`
	Output    string   `short:"o" help:"File to write (default: standard output)." placeholder:"FILE"`
	Threads   int      `help:"Worker threads (default: the cores this process may use)." min:"1" of:"threads" key:"hardware.threads"`
}

// Help implements kong.HelpProvider.
func (predictCmd) Help() string {
	return `Answers are written in input order, each with the place of its input. For a
flight there is one for each window of frames.

Examples:
  snug predict runs/mine comments.csv --keep id > answers.jsonl
  echo "some text" | snug predict runs/mine --checkpoint last
  snug predict runs/cloudbase-quickstart 'flights/*.npz' --format csv
  snug predict runs/mine --stdin-format jsonl --format csv < comments.jsonl`
}

// Run implements the command.
func (p *predictCmd) Run(a *app) (err error) {
	if slices.Equal(p.Files, []string{"-"}) {
		p.Files = nil
	}
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
	if len(p.Files) == 0 && o.typed("data.format") {
		return usage("--data.format %s: is the format of files; that of standard input is --stdin-format", o.config.Data.Format)
	}
	on, err := o.device(a, p.Threads)
	if err != nil {
		return err
	}
	k, err := o.system.Predictor(o.config, o.Path, on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	_, _ = fmt.Fprintf(a.err, "using %v\n", o) // only logged
	if remark := k.Remark(); remark != "" {
		_, _ = fmt.Fprintf(a.err, "%s\n", remark)
	}
	from := inference.Sources{Files: p.Files, In: a.in, Format: p.Stdin, Options: p.options(o), TextField: p.TextField}
	inputs, err := from.Open(a.ctx, k)
	if err != nil {
		return err
	}
	if p.Output != "" && from.Reads(p.Output) {
		return usage("-o %s: is one of the input files; name another file", p.Output)
	}
	began, n := time.Now(), 0
	answer := func(out io.Writer) (err error) {
		n, err = inference.PredictAll(a.ctx, k, inputs, inference.NewAnswerWriter(out, p.Format, p.Keep))
		return err
	}
	var said bytes.Buffer // the answers in a JSON document
	switch {
	case p.Output != "":
		err = durable.Overwrite(p.Output, func(f *os.File) error { return answer(f) })
	case !a.asJSON:
		err = answer(a.out)
	case p.Format != "jsonl":
		err = usage("--format %s with --json: stdout is for the JSON document; write the answers to a file with --output FILE", p.Format)
	default:
		err = answer(&said)
	}
	if err != nil {
		return err
	}
	if a.asJSON {
		return p.document(a, o, said.Bytes(), n, time.Since(began))
	}
	_, err = fmt.Fprintf(a.err, "%s in %s, %.0f a second\n", size.Of(n, "answer"), shortDuration(time.Since(began)), float64(n)/time.Since(began).Seconds())
	return err
}

// options returns how to read records: the run's limits, and of what depends on the files only what was typed.
func (p *predictCmd) options(o *opened) data.Options {
	d := &o.config.Data
	opt := data.Options{NoHeader: p.NoHeader, MaxRecord: int64(d.MaxRecord), ReplaceInvalid: d.ReplaceInvalid}
	if o.typed("data.format") && d.Format != "auto" {
		opt.Format = d.Format
	}
	if o.typed("data.array_key") {
		opt.ArrayKey = d.ArrayKey
	}
	return opt
}

// check rejects flags that do not apply to the input.
func (p *predictCmd) check() error {
	format, lines := p.Stdin, len(p.Files) == 0 && (p.Stdin == "" || p.Stdin == "lines")
	switch {
	case slices.Contains(p.Files, "-"):
		return usage("-: standard input is not read when files are given; name it alone, or write ./- for a file of this name")
	case len(p.Files) > 0 && format != "":
		return usage("--stdin-format %s: standard input is not read when files are given", format)
	case lines && p.TextField != "":
		return usage("--text-field %s: lines of text have no fields; use --stdin-format jsonl, csv or tsv", p.TextField)
	case len(slices.Compact(slices.Sorted(slices.Values(p.Keep)))) < len(p.Keep):
		return usage("--keep %s: names a field twice; name each once", strings.Join(p.Keep, ","))
	case len(p.Files) == 0 && p.NoHeader && format != "csv" && format != "tsv":
		return usage("--no-header: is for csv and tsv; choose one with --stdin-format")
	}
	return nil
}

// document prints the predictions as JSON: the answers, or the file that they were written to.
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
