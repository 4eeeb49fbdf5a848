// Package cli is the command line, one file a verb. The whole tool runs
// in-process through [Main], so that it can be tested without a shell.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/agiformer"
	"github.com/snug-ml/snug/system/cloudbase"
	"github.com/snug-ml/snug/system/dynamo"
	"github.com/snug-ml/snug/system/moderation"
	"github.com/snug-ml/snug/system/refocused"
	"github.com/snug-ml/snug/train"
)

// The exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNoFit   = 3
	exitStopped = 4 // the state was saved; --resume goes on
	exitGrace   = 5 // told to stop, and the grace ended before the state was saved
)

// systems are what snug trains.
var systems = []system.System{refocused.System, dynamo.System, moderation.System, agiformer.System, cloudbase.System}

// app is what every verb gets.
type app struct {
	ctx      context.Context
	in       io.Reader
	out, err io.Writer
	// stdout is what the process has; out is that, or err where the verb was asked for JSON.
	stdout    io.Writer
	asJSON    bool
	written   bool // the one document of stdout was written
	overrides []config.Override
	signals   *interruption
	warned    []string // warnings of the configuration that were told
}

// commands is the grammar.
type commands struct {
	Train     trainCmd     `cmd:"" help:"Train a model."`
	Plan      planCmd      `cmd:"" help:"Say what a run needs, to the byte, on any card."`
	Fit       fitCmd       `cmd:"" help:"Find the fastest settings that fit."`
	Generate  generateCmd  `cmd:"" help:"Write text with a trained language model."`
	Eval      evalCmd      `cmd:"" help:"Measure a trained model on its held-out data."`
	Predict   predictCmd   `cmd:"" help:"Apply a trained model to data."`
	Serve     serveCmd     `cmd:"" help:"Answer over HTTP with a trained model."`
	Export    exportCmd    `cmd:"" help:"Write a trained model as a Hugging Face folder."`
	Data      dataCmd      `cmd:"" help:"Prepare data."`
	Ckpt      ckptCmd      `cmd:"" help:"Look at checkpoints."`
	Config    configCmd    `cmd:"" help:"Show settings: effective ones, presets, the reference."`
	Doctor    doctorCmd    `cmd:"" help:"Show what this machine has and what would be chosen on it."`
	Bench     benchCmd     `cmd:"" help:"Measure configurations of a preset against each other."`
	BenchWork benchWorkCmd `cmd:"" hidden:"" help:"Time a work of bench/README.md."`

	JSON bool `help:"Print one JSON document on stdout, in refusal too, and everything else on stderr."`
}

// Main runs the command line and returns the exit code.
func Main(args []string, in io.Reader, out, errw io.Writer) int {
	overrides, rest := config.SplitFlags(args)
	a := &app{in: in, out: out, stdout: out, err: errw, overrides: overrides}
	var cmds commands
	code := -1
	parser, err := kong.New(&cmds,
		kong.Name("snug"),
		kong.Description("Trains neural networks fast on the hardware at hand, and knows the memory of a run before its first step."),
		kong.Writers(out, errw),
		kong.Exit(func(c int) { code = c }),
		kong.Bind(a),
		kong.Vars{"passes": strings.Join(pass.Names(), ", ")},
		kong.UsageOnError(),
	)
	if err != nil {
		return a.fail(err)
	}
	k, err := parser.Parse(rest)
	if code >= 0 {
		return code // --help
	}
	a.speak(cmds.JSON || err != nil && slices.Contains(rest, "--json"))
	if err != nil {
		return a.fail(usageError{err})
	}
	a.signals = interrupts(errw)
	a.ctx = a.signals.ctx
	defer a.signals.stop()
	return a.fail(k.Run())
}

// fail prints err and gives its exit code.
func (a *app) fail(err error) int {
	if err == nil {
		return exitDone
	}
	code := exitFailed
	var coded interface{ ExitCode() int }
	switch {
	case errors.Is(err, train.ErrStopped):
		code = exitStopped
	case errors.As(err, &coded):
		code = coded.ExitCode()
	}
	if code != exitStopped {
		_, _ = fmt.Fprintf(a.err, "snug: %v\n", err)
	}
	a.refuse(err, code)
	return code
}

func (a *app) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(a.out, format, args...); err != nil {
		// The terminal is gone; so is anybody to tell.
		os.Exit(exitFailed)
	}
}
