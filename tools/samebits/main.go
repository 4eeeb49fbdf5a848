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
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/internal/table"
)

// presets are the quickstarts, the fast ones first.
var presets = []string{"quickstart", "moderation-quickstart", "cloudbase-quickstart", "agiformer-quickstart", "dynamo-quickstart"}

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
	kong.Parse(&o, kong.Name("samebits"), kong.Description("Compares the checkpoints that two snug binaries train."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	same, err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "samebits:", err)
	}
	if err != nil || !same {
		os.Exit(1)
	}
}

// run compares the presets and prints a table. It reports whether all are equal.
func (o *options) run(ctx context.Context) (same bool, err error) {
	if len(o.Presets) == 0 {
		o.Presets = presets
	}
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	if o.Work == "" {
		if o.Work, err = os.MkdirTemp("", "samebits"); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Work)) }()
	}
	rows := [][]string{{"PRESET", "CHECKPOINTS", "TENSORS", "DIFFER", ""}}
	same = true
	for _, preset := range o.Presets {
		d, err := o.compare(ctx, preset)
		if err != nil {
			return false, fmt.Errorf("%s: %w", preset, err)
		}
		same = same && len(d.names) == 0
		rows = append(rows, []string{preset, strconv.Itoa(d.files), strconv.Itoa(d.tensors), strconv.Itoa(len(d.names)), d.first()})
	}
	fmt.Print(table.Format(rows, 1, 2, 3))
	return same, nil
}

// compare trains a preset with both binaries and compares what they saved.
func (o *options) compare(ctx context.Context, preset string) (*difference, error) {
	var sums [2]map[string]tensors
	for i, binary := range []string{o.Before, o.After} {
		dir := filepath.Join(o.Work, preset, []string{"before", "after"}[i])
		if err := o.train(ctx, binary, preset, dir); err != nil {
			return nil, err
		}
		var err error
		if sums[i], err = hashes(dir); err != nil {
			return nil, err
		}
	}
	for _, t := range sums[0] {
		t.rename(o.Rename)
	}
	return diff(sums[0], sums[1]), nil
}

// train runs a binary on a preset into dir.
func (o *options) train(ctx context.Context, binary, preset, dir string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	args := []string{"train", preset, "--out", dir, "--data.cache_dir", dir + "-data", "--hardware.threads", strconv.Itoa(o.Threads)}
	settings := o.settings(preset)
	for k, v := range o.Set {
		settings[k] = v
	}
	for k, v := range settings {
		args = append(args, "--"+k+"="+v)
	}
	fmt.Fprintf(os.Stderr, "%s %s\n", binary, strings.Join(args, " "))
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w\n%s", binary, err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return nil
}

// settings make a run short.
func (o *options) settings(preset string) map[string]string {
	n := strconv.Itoa(o.Updates)
	s := map[string]string{"training.eval_steps": "0", "training.eval_batches": "1", "training.save_steps": "0"}
	if !slices.Contains([]string{"dynamo-quickstart", "dynamo-guide", "dynamo-t4"}, preset) {
		s["training.max_steps"] = n
		s["training.warmup_steps"] = strconv.Itoa(min(5, o.Updates-1))
		return s
	}
	// Phases continue whatever the earlier ones reached.
	for _, k := range []string{"phases.min_encoder_gain", "phases.min_gain"} {
		s[k] = "-1e9"
	}
	s["phases.min_routing"] = "0"
	for _, k := range []string{"phases.encoder_steps", "phases.router_steps", "phases.joint_steps"} {
		s[k] = n
	}
	for _, task := range []string{"sentiment", "qa", "summarization", "code_generation", "translation"} {
		s["tasks."+task+".steps"] = n
		s["tasks."+task+".held_out"] = "16"
	}
	return s
}
