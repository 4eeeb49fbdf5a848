// Package cli is the command line, with one file per command. The whole tool runs in-process through [Main],
// so that it can be tested without a shell.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/train"
)

// The exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNoFit   = 3
	exitStopped = 4 // the state was saved; --resume continues
	exitGrace   = 5 // stopped on request, but the grace period ended before the state was saved
	exitLost    = 6 // the device was lost; --resume continues from the last checkpoint
	// A process of the run was lost; --resume continues with any number of them.
	exitLostRank = 7
	// exitUnread is the exit code that a shell reports for a program killed by SIGPIPE, because the reader of
	// its pipe has left: 128 plus the number of the signal.
	exitUnread = 141
)

// app is the state shared by all commands.
type app struct {
	ctx      context.Context
	in       io.Reader
	out, err *stream
	// stdout is the process's stdout. out is the same, or err if JSON was requested.
	stdout    *stream
	asJSON    bool
	document  []byte // JSON for stdout, printed when the command ends
	written   bool   // the document was printed
	leads     bool   // of several processes, this one does what only one should do
	overrides []config.Override
	signals   *interruption
	warned    []string // warnings about the configuration that were already printed
}

// commands is the grammar of the command line.
type commands struct {
	Version versionFlag `help:"Print the version, and the source and target of this build."`

	Train    trainCmd    `cmd:"" help:"Train a model." settings:"all"`
	Monitor  monitorCmd  `cmd:"" help:"Watch runs, live or finished, or this machine."`
	Plan     planCmd     `cmd:"" help:"Show what a run needs on any card, to the byte." settings:"all"`
	Fit      fitCmd      `cmd:"" help:"Find the fastest settings that fit." settings:"all"`
	Generate generateCmd `cmd:"" help:"Generate text with a trained language model." settings:"training.sample.temperature,training.sample.top_k,training.sample.top_p,training.mixed_precision,hardware.threads,model.folder"`
	Eval     evalCmd     `cmd:"" help:"Evaluate a trained model on its held-out data." settings:"data,split,synthetic,decision,tasks,router,loss,training.batch_size,training.eval_batch_size,training.eval_batches,training.ce_chunk,training.mixed_precision,training.seed,hardware,model.folder"`
	Predict  predictCmd  `cmd:"" help:"Apply a trained model to data." settings:"data.format,data.text_field,data.array_key,data.max_record,data.replace_invalid,data.rows,data.columns,data.resize,data.flat_field,tasks,hardware.threads,model.folder"`
	Serve    serveCmd    `cmd:"" help:"Serve a trained model over HTTP." settings:"hardware.threads,hardware.memory_budget,model.folder"`
	Export   exportCmd   `cmd:"" help:"Export a trained model as a Hugging Face folder." settings:"model.folder"`
	Data     dataCmd     `cmd:"" help:"Prepare data."`
	Report   reportCmd   `cmd:"" help:"Report on runs, and compare them."`
	Ckpt     ckptCmd     `cmd:"" help:"Inspect and copy checkpoints."`
	Config   configCmd   `cmd:"" help:"Show settings: the effective ones, presets, the reference." settings:"all"`
	Doctor   doctorCmd   `cmd:"" help:"Show what this machine has and what snug would choose on it."`
	Bench    benchCmd    `cmd:"" help:"Benchmark configurations of a preset." settings:"all"`
	Check    checkCmd    `cmd:"" help:"Find where two formats compute an update differently." settings:"all"`

	JSON bool `help:"Print one JSON document on stdout, even for a refusal, and everything else on stderr."`
}

// Main runs the command line and returns the exit code.
func Main(args []string, in io.Reader, out, errw io.Writer) int {
	defer dist.KillLost()
	return run(args, false, in, out, errw)
}

func run(args []string, leads bool, in io.Reader, out, errw io.Writer) int {
	job, err := onSageMaker(args)
	if job != nil {
		args = job.args
	}
	overrides, rest := config.SplitFlags(args)
	stdout, stderr := newStream(out, false), newStream(errw, true)
	a := &app{in: in, out: stdout, stdout: stdout, err: stderr, overrides: overrides, leads: leads}
	stdout.onLoss = a.lost
	if err != nil {
		return a.printed(a.fail(err))
	}
	if job == nil {
		return a.printed(a.run(rest))
	}
	a.warnf("%v\n", job)
	if code := a.printed(a.run(rest)); code != exitDone {
		return code
	}
	exports, err := job.exports()
	if err != nil || exports == nil {
		return a.printed(a.fail(err))
	}
	return run(exports, true, in, out, errw)
}

// lost reports that output was lost, unless the reader of a pipe has left.
func (a *app) lost(err error) {
	if !left(err) {
		a.warnf("snug: stdout: %v\n", err)
	}
}

// warnf prints to stderr.
func (a *app) warnf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, format, args...) // a stream never fails
}

// warning prints a warning to stderr.
func (a *app) warning(format string, args ...any) { a.warnf("warning: "+format+"\n", args...) }

// run parses the command line and runs its command.
func (a *app) run(args []string) int {
	var cmds commands
	code := -1
	a.speak(slices.Contains(args, "--json"))
	pages := io.Writer(a.stdout)
	var page strings.Builder
	if a.asJSON {
		pages = &page
	}
	parser, err := a.parser(&cmds, pages, func(c int) { code = c })
	if err != nil {
		return a.fail(err)
	}
	if err := inUTF8(args); err != nil {
		return a.fail(err)
	}
	k, err := parser.Parse(joined(a.foreign(parser.Model.Node, args)))
	if code >= 0 { // --help, --version
		err = nil // of a command line without a command
		if a.asJSON && a.document == nil {
			err = a.json(map[string]string{"help": page.String()})
		}
		return max(code, a.fail(err))
	}
	a.speak(cmds.JSON || err != nil && a.asJSON)
	if err != nil {
		return a.fail(explained(err))
	}
	if err := check(k, a.overrides); err != nil {
		return a.fail(err)
	}
	if !a.leads {
		if err := alone(typed(k.Selected())); err != nil {
			return a.fail(err)
		}
	}
	a.signals = interrupts(a.err, typed(k.Selected()))
	defer a.signals.stop()
	ctx, cancel := context.WithCancel(a.signals.ctx)
	defer cancel()
	a.ctx = ctx
	lasting := lastingVerbs[strings.Fields(k.Command())[0]]
	a.stdout.onLoss = func(err error) {
		if lasting {
			a.warnf("snug: stdout: %v; no further output there, the work continues\n", err)
			return
		}
		a.lost(err)
		cancel()
	}
	err = k.Run()
	if a.stdout.end() != nil && !lasting && errors.Is(err, context.Canceled) {
		return exitFailed // printed has reported the reason
	}
	return a.fail(err)
}

// parser returns a parser that reads command lines into cmds. Flags such as --help print their pages and then
// call exit to end parsing.
func (a *app) parser(cmds *commands, pages io.Writer, exit func(int)) (*kong.Kong, error) {
	return kong.New(cmds,
		kong.Name("snug"),
		kong.Description("Trains neural networks fast on the hardware at hand, and knows the memory of a run before its first step."),
		kong.Writers(pages, a.err),
		kong.Exit(exit),
		kong.Bind(a),
		kong.Vars{"passes": strings.Join(pass.Names(), ", ")},
		kong.UsageOnError(),
	)
}

// lastingVerbs have other results than what they print, so they continue if nobody reads it.
var lastingVerbs = map[string]bool{"train": true, "serve": true, "export": true, "eval": true, "data": true, "ckpt": true, "report": true}

// printed returns the exit code of a command that ended with code. If output was lost, the code becomes
// exitFailed, unless it is a more specific one already.
func (a *app) printed(code int) int {
	lost := a.stdout.end()
	_ = a.err.end() // if stderr is gone, there is nowhere left to report it
	switch {
	case lost == nil || code > exitFailed:
		return code
	case left(lost):
		return exitUnread
	}
	return exitFailed
}

// fail prints err, if there is one, and the document for stdout, and returns the exit code.
func (a *app) fail(err error) int {
	if err == nil {
		err = a.publish()
	}
	if err == nil {
		return exitDone
	}
	if a.signals != nil && a.signals.interrupted() && (errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted)) {
		err = errInterrupted
	}
	code := exitFailed
	var coded interface{ ExitCode() int }
	switch {
	case errors.Is(err, train.ErrStopped) && !errors.Is(err, train.ErrNothingSaved):
		code = exitStopped
	case errors.As(err, &coded):
		code = coded.ExitCode()
	}
	var told exitError
	if errors.As(err, &told) {
		return code
	}
	if code != exitStopped {
		a.warnf("snug: %s\n", abridged(err.Error()))
	}
	a.refuse(err, code)
	return code
}

// unreadable matches words that are longer than anybody reads.
var unreadable = regexp.MustCompile(`\S{500,}`)

// abridged shortens the endless words of a message, such as a value given by mistake.
func abridged(text string) string {
	return unreadable.ReplaceAllStringFunc(text, func(word string) string {
		r := []rune(word)
		return fmt.Sprintf("%s...(%d characters)...%s", string(r[:100]), len(r), string(r[len(r)-50:]))
	})
}

func (a *app) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.out, format, args...) // a stream never fails
}
