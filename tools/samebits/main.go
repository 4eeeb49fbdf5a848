// Command samebits trains every quickstart with two snug binaries and compares the
// checkpoints, tensor by tensor: a change that should not change results is one
// after which it finds no difference.
//
//	git stash; go build -o /tmp/before .; git stash pop; go build -o /tmp/after .
//	go run ./tools/samebits /tmp/before /tmp/after
//
// Weights, moments and counters are compared, of every phase. It exits with status
// 1 if any differs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/snug-ml/snug/internal/table"
	"github.com/snug-ml/snug/internal/tool"
	"github.com/snug-ml/snug/tools/bits"
)

type options struct {
	Before  string            `arg:"" help:"The binary to compare with." type:"existingfile"`
	After   string            `arg:"" help:"The binary to check." type:"existingfile"`
	Updates int               `default:"50" help:"Updates of each run, or of each phase of one that trains in phases."`
	Presets []string          `help:"Presets to train (default: every quickstart)."`
	Threads int               `help:"Worker threads (default: all)."`
	Set     map[string]string `help:"A setting for both, as in --set training.mixed_precision=bf16; repeatable." placeholder:"KEY=VALUE"`
	Rename  map[string]string `help:"A part of tensor names that BEFORE calls by another name, as in --rename own=self_attn; repeatable." placeholder:"OLD=NEW"`
	Work    string            `help:"Folder for the runs, which are kept (default: a temporary one, removed)." type:"path"`
}

// Validate implements kong.Validatable.
func (o *options) Validate() error {
	if o.Updates < 1 {
		return fmt.Errorf("--updates %d: must be at least 1", o.Updates)
	}
	return nil
}

func main() {
	var o options
	tool.Main(&o, "samebits", "Compares the checkpoints that two snug binaries train.", o.run)
}

// run compares the presets and prints a table. It fails if any differs.
func (o *options) run(ctx context.Context) (err error) {
	if len(o.Presets) == 0 {
		for _, q := range bits.Quickstarts {
			o.Presets = append(o.Presets, q.Preset)
		}
	}
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	if o.Work == "" {
		if o.Work, err = os.MkdirTemp("", "samebits"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Work)) }()
	}
	rows := [][]string{{"PRESET", "CHECKPOINTS", "TENSORS", "DIFFER", ""}}
	same := true
	for _, preset := range o.Presets {
		d, err := o.compare(ctx, preset)
		if err != nil {
			return fmt.Errorf("%s: %w", preset, err)
		}
		same = same && len(d.names) == 0
		rows = append(rows, []string{preset, strconv.Itoa(d.files), strconv.Itoa(d.tensors), strconv.Itoa(len(d.names)), d.first()})
	}
	fmt.Print(table.Format(rows, 1, 2, 3))
	if !same {
		return errors.New("checkpoints differ")
	}
	return nil
}

// compare trains a preset with both binaries and compares what they saved.
func (o *options) compare(ctx context.Context, preset string) (*difference, error) {
	var saved [2]map[string]bits.Tensors
	for i, binary := range []string{o.Before, o.After} {
		r := bits.Run{Binary: binary, Preset: preset, Dir: filepath.Join(o.Work, preset, []string{"before", "after"}[i]), Updates: o.Updates, Threads: o.Threads, Set: o.Set}
		fmt.Fprintf(os.Stderr, "%s: %d updates of %s\n", binary, o.Updates, preset)
		err := r.Train(ctx)
		if err == nil {
			saved[i], err = bits.Hashes(r.Dir)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, t := range saved[0] {
		t.Rename(o.Rename)
	}
	return diff(saved[0], saved[1]), nil
}
