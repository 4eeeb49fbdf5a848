// Quality trains every quickstart over seeds, precisions and sets of
// instructions, and compares the results with what is promised (table.go):
//
//	go run ./tools/quality                                 everything that is not done yet
//	go run ./tools/quality --short                         one seed, the processor's best instructions
//	go run ./tools/quality --systems dynamo --precisions bf16 --seeds 1
//	go run ./tools/quality --widths 0.5,1,2,4 --precisions bf16
//	go run ./tools/quality --report --doc docs/quality.md  only what is in the results file
//
// Each run is a cell: a system, a seed, a precision and a set of instructions. The
// results file keeps every cell that ended, so that the command can be stopped
// anywhere and continues where it was. A cell counts until a change of the sources
// changes bits: each program is first trained for ten updates, whose hash tells. A
// change that alters bits is not done before this has passed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Systems    []string      `help:"Systems to train (default: all)."`
	Seeds      []uint64      `help:"Seeds of weights, data order and split." default:"1,2,3"`
	Precisions []string      `help:"Formats of products." default:"fp32,bf16,fp16"`
	ISAs       []string      `name:"isas" help:"Sets of instructions (default: avx512 and avx2, as far as this processor has them)."`
	Formats    bool          `help:"Compare formats of weights and optimizers instead: all of the table in tools/quality/table.go, for refocused and moderation."`
	Widths     []float64     `help:"Begin training at these multiples of the quickstarts' widths instead, and compare the losses: 0.5,1,2,4. The first of --precisions is used." placeholder:"X,..."`
	Short      bool          `help:"One seed and the best set of instructions."`
	Parallel   int           `help:"Runs at a time." default:"1"`
	Threads    int           `help:"Threads of each run (default: the processor's, divided by --parallel)."`
	Limit      time.Duration `help:"Longest time of a run." default:"1h"`
	Results    string        `help:"File that keeps what was measured." default:"docs/quality.json" type:"path"`
	Work       string        `help:"Folder of the runs, which are removed when they are measured, and of their prepared data (default: a temporary one)." type:"path"`
	Keep       bool          `help:"Keep the run directories."`
	Again      bool          `help:"Run anew what failed."`
	Doc        string        `help:"Markdown file whose generated part is written." placeholder:"FILE" type:"path"`
	Plot       string        `help:"SVG file that --formats draws." placeholder:"FILE" type:"path"`
	Report     bool          `help:"Run nothing: report what the results file holds of the bits that it knows."`
}

func main() {
	var o options
	tool.Main(&o, "quality", "Trains every quickstart over seeds, precisions and sets of instructions and checks what comes out.", o.run)
}

func (o *options) run(ctx context.Context) (err error) {
	if err := o.defaults(); err != nil {
		return err
	}
	if len(o.Widths) > 0 {
		return o.trainWidths(ctx)
	}
	all, err := readResults(o.Results)
	if err != nil {
		return err
	}
	var ran error
	if !o.Report {
		ran = o.train(ctx, all)
	}
	r := newReport(all, o.cells(all))
	document := r.markdown
	if o.Formats {
		document = r.byFormat
		fmt.Println(r.byFormat())
	} else {
		fmt.Print(r.text())
	}
	if o.Doc != "" {
		if err := writeDoc(o.Doc, document()); err != nil {
			return err
		}
	}
	if o.Plot != "" {
		if err := durable.Replace(o.Plot, []byte(r.plot())); err != nil {
			return err
		}
	}
	if ran != nil {
		return ran
	}
	return r.verdict()
}

// defaults fills in what depends on the table and the machine.
func (o *options) defaults() error {
	if len(o.Systems) == 0 {
		o.Systems = systems()
		if o.Formats {
			o.Systems = []string{"refocused", "moderation"}
		}
	}
	for _, s := range o.Systems {
		if !slices.Contains(systems(), s) {
			return fmt.Errorf("--systems %s: want one of %v", s, systems())
		}
	}
	runs := func(isa string) error {
		_, err := backend.Open(backend.Options{Device: "cpu", Kernels: isa})
		return err
	}
	for _, isa := range o.ISAs {
		if err := runs(isa); err != nil && !o.Report {
			return fmt.Errorf("--isas: %w", err)
		}
	}
	if len(o.ISAs) == 0 {
		for _, isa := range []string{"avx512", "avx2"} {
			if o.Report || runs(isa) == nil {
				o.ISAs = append(o.ISAs, isa)
			}
		}
		if len(o.ISAs) == 0 {
			o.ISAs = []string{"portable"}
		}
	}
	if o.Plot != "" && !o.Formats {
		return errors.New("--plot needs --formats, which it draws")
	}
	if o.Short {
		o.Seeds, o.ISAs = o.Seeds[:min(1, len(o.Seeds))], o.ISAs[:1]
	}
	for _, x := range o.Widths {
		if !(x >= 0.25 && x <= 64) { // NaN neither
			return fmt.Errorf("--widths %g: want 0.25 to 64", x)
		}
	}
	if o.Parallel < 1 {
		return fmt.Errorf("--parallel %d: want at least 1", o.Parallel)
	}
	if o.Threads == 0 {
		o.Threads = max(1, runtime.NumCPU()/o.Parallel)
	}
	return nil
}

// programs are those requested.
func (o *options) programs() (out []program) {
	named := []string{""}
	if o.Formats {
		for _, f := range formats[1:] {
			named = append(named, f.name)
		}
	}
	for _, isa := range o.ISAs {
		for _, precision := range o.Precisions {
			for _, system := range o.Systems {
				for _, format := range named {
					out = append(out, program{system, precision, isa, format})
				}
			}
		}
	}
	return out
}

// cells are the requested runs, with the bits that are known: all programs with one
// seed before the next seed, so that a matrix that is cut short covers every system.
func (o *options) cells(all *results) (out []cell) {
	for _, seed := range o.Seeds {
		for _, p := range o.programs() {
			c := cell{program: p, Seed: seed}
			if known := all.program(p); known != nil {
				c.Bits = known.Bits
			}
			out = append(out, c)
		}
	}
	return out
}

// prepare makes the folder of the runs and builds snug in it.
func (o *options) prepare(ctx context.Context) (work, binary string, remove func() error, err error) {
	work, remove = o.Work, func() error { return nil }
	if work == "" {
		if work, err = os.MkdirTemp("", "snug-quality-"); err != nil {
			return "", "", nil, err
		}
		remove = func() error { return os.RemoveAll(work) }
	}
	binary = filepath.Join(work, "snug")
	if err = os.MkdirAll(work, 0o777); err == nil {
		err = build(ctx, binary)
	}
	if err != nil {
		return "", "", nil, errors.Join(err, remove())
	}
	return work, binary, remove, nil
}

// train runs the cells that are not done.
func (o *options) train(ctx context.Context, all *results) (err error) {
	work, binary, remove, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	s := &scheduler{options: o, results: all, work: work, binary: binary}
	if err := s.try(ctx); err != nil {
		return err
	}
	for _, c := range o.cells(all) {
		if !all.has(c, o.Again) {
			s.todo = append(s.todo, c)
		}
	}
	s.total = len(s.todo)
	return s.run(ctx)
}

// The generated part of a document is between these lines.
const (
	beginDoc = "<!-- begin: go run ./tools/quality -->"
	endDoc   = "<!-- end: go run ./tools/quality -->"
)

// writeDoc replaces the generated part of a document, or appends it.
func writeDoc(path, text string) error {
	raw, err := regular.Read(path, 64<<20)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	before, after := cut(string(raw))
	return durable.Replace(path, []byte(before+beginDoc+"\n\n"+text+"\n"+endDoc+after))
}
