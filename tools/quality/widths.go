package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/tools/bits"
	"github.com/snug-ml/snug/train"
)

// A width is what grows with the width of a quickstart: settings with their values in it.
type width struct {
	system   string
	settings map[string][]int
	updates  int      // 0: all, and what is promised must be kept
	args     []string // further arguments
	part     string   // the folder of the run that trains; empty: the run itself
}

// widths are those of all quickstarts; heads keep their size. Wide networks of cloudbase have
// larger losses in training, and predict as well.
var widths = []width{
	{system: "refocused", settings: map[string][]int{"model.d_model": {256}, "model.d_ff": {1024}, "model.n_heads": {4}}, updates: 100},
	{system: "moderation", settings: map[string][]int{"model.d_model": {128}, "model.d_ff": {512}, "model.n_heads": {4}}, updates: 300},
	{system: "agiformer", settings: map[string][]int{"model.d_model": {128}, "model.d_ff": {384}, "model.n_heads": {4}, "model.d_relation": {32}}, updates: 100},
	{system: "cloudbase", settings: map[string][]int{"model.channels": {8, 16, 32}}},
	{system: "dynamo", settings: map[string][]int{"model.d_model": {128}, "model.d_ff": {512}, "model.n_heads": {4}}, updates: 100, args: []string{"--phase", "0"}, part: "phase0-encoder"},
}

// times are the settings of a quickstart that is so many times as wide.
func (w *width) times(x float64) map[string]string {
	set := map[string]string{}
	for key, values := range w.settings {
		var list []string
		for _, v := range values {
			list = append(list, strconv.Itoa(int(math.Round(x*float64(v)))))
		}
		set[key] = strings.Join(list, ",")
		if len(list) > 1 {
			set[key] = "[" + set[key] + "]"
		}
	}
	return set
}

// measured is the figure that is printed: a loss, or the first that is promised.
func (w *width) measured() string {
	if w.updates > 0 {
		return fmt.Sprintf("loss, %d updates", w.updates)
	}
	for _, p := range promises {
		if p.system == w.system {
			return p.name
		}
	}
	return ""
}

// collapsed is the loss of a model that has not learned, of the quickstart's loss.
const collapsed = 1.5

// trainWidths begins the training of quickstarts at several widths, with all else as shipped, and compares the
// losses of the last tenth of the updates. It fails if a wider model has not learned what the quickstart has.
func (o *options) trainWidths(ctx context.Context) (err error) {
	work, binary, remove, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	fmt.Print("| system | |")
	for _, x := range o.Widths {
		fmt.Printf(" %g times as wide |", x)
	}
	fmt.Printf("\n|---|---|%s\n", strings.Repeat("--:|", len(o.Widths)))
	var bad []error
	for _, w := range widths {
		if !slices.Contains(o.Systems, w.system) {
			continue
		}
		losses := map[float64]float64{}
		fmt.Printf("| %s | %s |", w.system, w.measured())
		for _, x := range o.Widths {
			r, err := o.trainWidth(ctx, binary, work, w, x)
			if err != nil {
				fmt.Println() // the row ends here
				return err
			}
			losses[x] = r.Figures[w.measured()]
			fmt.Printf(" %.3f |", losses[x])
			if w.updates == 0 {
				for _, miss := range r.misses() {
					bad = append(bad, fmt.Errorf("%s, %g times as wide: %s", w.system, x, miss))
				}
			}
		}
		fmt.Println()
		for _, x := range o.Widths {
			if base, ok := losses[1]; ok && x > 1 && w.updates > 0 && !(losses[x] <= base*collapsed) {
				bad = append(bad, fmt.Errorf("%s, %g times as wide, has a loss of %.4g after %d updates, as shipped %.4g", w.system, x, losses[x], w.updates, base))
			}
		}
	}
	return errors.Join(bad...)
}

func (o *options) trainWidth(ctx context.Context, binary, work string, w width, x float64) (r *result, err error) {
	dir := filepath.Join(work, fmt.Sprintf("width-%s-%g", w.system, x))
	if !o.Keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	set := w.times(x)
	set["training.log_steps"], set["training.mixed_precision"] = "1", o.Precisions[0]
	set["hardware.threads"], set["data.cache_dir"] = strconv.Itoa(o.Threads), filepath.Join(work, "data-"+w.system)
	args := append([]string{"train", presetOf(w.system), "--out", dir}, w.args...)
	if w.updates > 0 {
		args = append(args, "--until", strconv.Itoa(w.updates))
	}
	out, err := exec.CommandContext(ctx, binary, append(args, bits.Flags(set)...)...).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitStopped) {
		return nil, fmt.Errorf("%s, %g times as wide: %w: %s", w.system, x, err, tail(string(out)))
	}
	r = &result{cell: cell{program: program{System: w.system}}, Figures: map[string]float64{}}
	if w.updates == 0 {
		return r, r.read(dir)
	}
	h, err := train.ReadHistory(filepath.Join(dir, w.part))
	if err != nil {
		return nil, err
	}
	n := w.updates / 10
	if len(h.Loss) < w.updates {
		return nil, fmt.Errorf("%s, %g times as wide: %d losses were logged, want %d", w.system, x, len(h.Loss), w.updates)
	}
	for _, l := range h.Loss[w.updates-n:] {
		r.Figures[w.measured()] += l / float64(n)
	}
	return r, nil
}

// exitStopped is the exit code of a run that was stopped by --until.
const exitStopped = 4
