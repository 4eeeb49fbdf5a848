package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train"
)

type lossesCmd struct {
	Want   string  `arg:"" type:"existingdir" help:"Run directory that is held to be right."`
	Got    string  `arg:"" type:"existingdir" help:"Run directory that is compared with it."`
	Within float64 `default:"0.02" help:"Largest relative difference of a loss."`
}

// compared is how far the losses of two runs are from each other.
type compared struct {
	Losses  int     `json:"losses"`
	First   float64 `json:"first"` // of the run that is held to be right
	Last    float64 `json:"last"`
	Largest float64 `json:"largest_difference"` // relative
	Where   string  `json:"where"`
}

// Run implements the command.
func (c *lossesCmd) Run() error {
	d, err := compare(c.Want, c.Got)
	if err != nil {
		return err
	}
	if !math.IsNaN(d.Largest) { // which is not within anything, and no JSON
		if err := json.NewEncoder(os.Stdout).Encode(d); err != nil {
			return err
		}
	}
	if !(d.Largest <= c.Within) {
		return fmt.Errorf("%s: the losses differ by %.3g, more than %.3g", d.Where, d.Largest, c.Within)
	}
	return nil
}

// compare compares the logs of two run directories and of the phases below them.
func compare(want, got string) (compared, error) {
	var d compared
	err := filepath.WalkDir(want, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != train.MetricsFile {
			return err
		}
		below, err := filepath.Rel(want, path)
		if err != nil {
			return err
		}
		a, err := losses(path)
		if err != nil {
			return err
		}
		b, err := losses(filepath.Join(got, below))
		if err != nil {
			return err
		}
		return d.add(filepath.Dir(below), a, b)
	})
	if err == nil && d.Losses == 0 {
		err = fmt.Errorf("%s: no losses in it", want)
	}
	return d, err
}

// loss is that of an update.
type loss struct {
	update int64
	value  float64
}

// add compares the losses of a phase.
func (d *compared) add(phase string, want, got []loss) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d losses in one run, %d in the other", phase, len(want), len(got))
	}
	for i, w := range want {
		g := got[i]
		if g.update != w.update {
			return fmt.Errorf("%s: a loss of update %d in one run, of %d in the other", phase, w.update, g.update)
		}
		if d.Losses == 0 {
			d.First = w.value
		}
		d.Losses++
		d.Last = w.value
		if x := math.Abs(g.value-w.value) / math.Abs(w.value); x > d.Largest || math.IsNaN(x) && !math.IsNaN(d.Largest) {
			d.Largest, d.Where = x, fmt.Sprintf("%s, update %d: %.6g and %.6g", phase, w.update, w.value, g.value)
		}
	}
	return nil
}

// losses are those that a log has.
func losses(path string) (out []loss, err error) {
	raw, err := regular.Read(path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(raw) {
		var l train.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if l.Event == "update" && l.Loss != nil {
			out = append(out, loss{l.Update, float64(*l.Loss)})
		}
	}
	return out, nil
}
