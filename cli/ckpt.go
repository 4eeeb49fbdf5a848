package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train/checkpoint"
)

type ckptCmd struct {
	List    ckptListCmd    `cmd:"" help:"List the checkpoints of a run."`
	Show    ckptShowCmd    `cmd:"" help:"Describe a checkpoint."`
	Verify  ckptVerifyCmd  `cmd:"" help:"Read everything and check it against the hashes."`
	Compare ckptCompareCmd `cmd:"" help:"Show how two checkpoints differ."`
	Plot    ckptPlotCmd    `cmd:"" help:"Draw the curves of a run: losses, learning rate, gradient norm, evaluations."`
	Push    ckptPushCmd    `cmd:"" help:"Copy a checkpoint to a folder or bucket and verify it there."`
	Pull    ckptPullCmd    `cmd:"" help:"Fetch a checkpoint into a run directory and verify it."`
	Remote  ckptRemoteCmd  `cmd:"" help:"List the checkpoints in a folder or bucket."`
}

type ckptListCmd struct {
	Dir string `arg:"" name:"run" help:"Run directory."`
}

// Run implements the command.
func (c *ckptListCmd) Run(a *app) error {
	dir, err := a.runWithModel(c.Dir)
	if err != nil {
		return err
	}
	list, err := checkpoint.List(dir)
	if err != nil {
		return err
	}
	type row struct {
		Path    string                      `json:"path"`
		Update  int64                       `json:"update"`
		Bytes   int64                       `json:"bytes,omitempty"`
		Created string                      `json:"created,omitempty"`
		Metrics map[string]checkpoint.Float `json:"metrics,omitempty"`
		Problem string                      `json:"problem,omitempty"`
	}
	rows := []row{}
	for _, e := range list {
		r := row{Path: e.Path, Update: e.Update}
		if e.Problem != nil {
			r.Problem = e.Problem.Error()
		} else if ck, err := checkpoint.Inspect(e.Path); err != nil {
			r.Problem = err.Error()
		} else {
			r.Bytes, r.Created, r.Metrics = e.Manifest.Bytes(), ck.Metadata.Created, ck.Metadata.Metrics
			if err := ck.Close(); err != nil {
				return err
			}
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w in %s", checkpoint.ErrNone, c.Dir)
	}
	if dir != c.Dir { // a phase was chosen
		runs, err := runsBelow(c.Dir)
		if err != nil {
			return err
		}
		a.warnf("%s is a run in phases: these are the checkpoints of %s, and the phases that have some are %s\n", c.Dir, filepath.Base(dir), strings.Join(runs, ", "))
	}
	if a.asJSON {
		return a.json(rows)
	}
	out := [][]string{{"CHECKPOINT", "UPDATE", "SIZE", "CREATED", "METRICS"}}
	for _, r := range rows {
		if r.Problem != "" {
			out = append(out, []string{filepath.Base(r.Path), fmt.Sprint(r.Update), "-", "-", "unusable: " + r.Problem})
			continue
		}
		out = append(out, []string{filepath.Base(r.Path), fmt.Sprint(r.Update), size.Bytes(r.Bytes).String(), r.Created, metricsLine(r.Metrics)})
	}
	return a.table(out)
}

func metricsLine(m map[string]checkpoint.Float) string {
	var parts []string
	for _, k := range sortedKeys(m) {
		parts = append(parts, fmt.Sprintf("%s %.4g", k, float64(m[k])))
	}
	return strings.Join(parts, ", ")
}

type ckptShowCmd struct {
	state
	Tensors bool `help:"List every tensor."`
}

// Run implements the command.
func (c *ckptShowCmd) Run(a *app) (err error) {
	at, err := a.stateOf(c.state)
	if err != nil {
		return err
	}
	ck, err := checkpoint.Inspect(at.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	if a.asJSON {
		return a.json(map[string]any{"path": ck.Path, "manifest": ck.Manifest, "state": ck.State, "metadata": ck.Metadata})
	}
	m := &ck.Metadata
	a.printf("%s\n", ck.Path)
	rows := [][]string{
		{"system", m.System + " " + m.Preset},
		{"update", fmt.Sprintf("%d of %d", ck.State.Update, m.MaxUpdates)},
		{"tokens", size.Count(float64(ck.State.Tokens))},
		{"parameters", size.Count(float64(m.Parameters))},
		{"metrics", metricsLine(m.Metrics)},
		{"created", m.Created},
		{"size", size.Bytes(ck.Manifest.Bytes()).String()},
	}
	if b := ck.State.Best; b != nil {
		rows = append(rows, []string{"best", fmt.Sprintf("%s %.4g after update %d", b.Name, float64(b.Value), ck.State.BestAt)})
	}
	if p := m.Performance; p != nil {
		rows = append(rows,
			[]string{"speed", fmt.Sprintf("%s %s/s over %s", size.Count(p.UnitsPerSecond), p.Unit, size.Of(p.Updates, "update"))},
			[]string{"memory", fmt.Sprintf("process peak %v of %v planned", size.Bytes(p.PeakRSS), size.Bytes(p.PlannedTotal))},
			[]string{"batch", fmt.Sprintf("%s a micro-batch, %d an update", size.Of(p.BatchSize, "row"), p.EffectiveBatch)})
	}
	for _, part := range []struct {
		name string
		m    map[string]any
	}{{"machine", m.Machine}, {"model", m.Model}, {"training", m.Training}} {
		for _, k := range sortedKeys(part.m) {
			rows = append(rows, []string{part.name + "." + k, fmt.Sprint(part.m[k])})
		}
	}
	if err := a.table(rows); err != nil {
		return err
	}
	a.printf("\nfiles\n")
	files := [][]string{{"FILE", "SIZE", "SHA-256"}}
	for _, f := range ck.Manifest.Files {
		files = append(files, []string{f.Name, size.Bytes(f.Size).String(), f.SHA256})
	}
	if err := a.table(files); err != nil || !c.Tensors {
		return err
	}
	a.printf("\ntensors\n")
	tensors := [][]string{{"FILE", "TENSOR", "TYPE", "SHAPE", "CRC-32C"}}
	for _, f := range ck.Manifest.Files {
		for _, t := range f.Tensors {
			tensors = append(tensors, []string{f.Name, t.Name, t.DType, fmt.Sprint(t.Shape), fmt.Sprintf("%08x", t.CRC32C)})
		}
	}
	return a.table(tensors)
}

type ckptVerifyCmd struct {
	Paths []string `arg:"" help:"Checkpoint folders or run directories (all their checkpoints)."`
}

// Run implements the command.
func (c *ckptVerifyCmd) Run(a *app) error {
	var reports []*checkpoint.Report
	for _, path := range c.Paths {
		list, err := allBelow(path)
		if err != nil {
			return err
		}
		for _, e := range list {
			r, err := checkpoint.Verify(e.Path)
			if err != nil {
				return err
			}
			reports = append(reports, r)
		}
	}
	damaged, bad := 0, 0
	type verdict struct {
		Path    string   `json:"path"`
		Whole   bool     `json:"whole"`
		Good    bool     `json:"good"`
		Bytes   int64    `json:"bytes"`
		Faults  []string `json:"faults"`
		Surplus []string `json:"surplus,omitempty"`
	}
	out := []verdict{}
	for _, r := range reports {
		v := verdict{r.Path, len(r.Faults) == 0, r.Err() == nil, r.Bytes, []string{}, r.Surplus}
		for _, f := range r.Faults {
			v.Faults = append(v.Faults, f.Error())
		}
		switch {
		case !v.Whole:
			damaged++
		case r.Bad != nil:
			bad++
			v.Faults = append(v.Faults, r.Bad.Error())
		}
		out = append(out, v)
		if a.asJSON {
			continue
		}
		switch {
		case v.Good:
			a.printf("%s: whole, %s read\n", v.Path, size.Bytes(v.Bytes))
		case v.Whole:
			a.printf("%s: whole, but NOT GOOD\n", v.Path)
		default:
			a.printf("%s: DAMAGED\n", v.Path)
		}
		for _, f := range v.Faults {
			a.printf("  %s\n", f)
		}
		for _, s := range v.Surplus {
			a.printf("  %s: not part of the checkpoint\n", s)
		}
	}
	if a.asJSON {
		if err := a.json(out); err != nil {
			return err
		}
	}
	if damaged > 0 {
		return fmt.Errorf("%d of %d checkpoints are damaged; --resume uses the newest whole one", damaged, len(out))
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checkpoints are not good; --resume uses the newest good one", bad, len(out))
	}
	return nil
}

// allBelow returns the checkpoints of a run directory, or of the runs of its phases. Any other path counts as
// a checkpoint.
func allBelow(path string) ([]checkpoint.Entry, error) {
	if list, err := checkpoint.List(path); err == nil && len(list) > 0 {
		return list, nil
	}
	runs, err := runsBelow(path)
	if len(runs) == 0 && !checkpoint.Meant(path) {
		return nil, fmt.Errorf("%w in %s: it has no %s, and no checkpoints below it", checkpoint.ErrNone, path, checkpoint.ManifestFile)
	}
	if err != nil || len(runs) == 0 {
		return []checkpoint.Entry{{Path: path}}, nil // Verify will report what is wrong with it
	}
	var all []checkpoint.Entry
	for _, dir := range runs {
		list, err := checkpoint.List(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

type ckptCompareCmd struct {
	A string `arg:"" help:"Checkpoint folder, or a run directory for its last checkpoint."`
	B string `arg:"" help:"Checkpoint folder, or a run directory for its last checkpoint."`
}

// Help implements kong.HelpProvider.
func (ckptCompareCmd) Help() string {
	return `Tensors, state, settings and other files are compared bit by bit. Of the state
(position in the data, schedules, statistics), only the parts that differ are named;
--json lists every field. Exit codes: 0 equal, 1 different, or one of them cannot be
read.

Example:
  snug ckpt compare runs/a runs/b/checkpoints/step-00000300`
}

// Run implements the command.
func (c *ckptCompareCmd) Run(a *app) error {
	x, err := a.stateOf(state{Path: c.A})
	if err != nil {
		return err
	}
	y, err := a.stateOf(state{Path: c.B})
	if err != nil {
		return err
	}
	cmp, err := checkpoint.Compare(x.Path, y.Path)
	if err != nil {
		return err
	}
	if a.asJSON {
		return errors.Join(a.json(cmp), differ(cmp))
	}
	a.printf("A %s\nB %s\n", cmp.A, cmp.B)
	if cmp.Equal() {
		a.printf("equal in every bit\n")
		return nil
	}
	rows := [][]string{{"WHAT", "FIELD", "A", "B"}}
	for _, part := range []struct {
		name string
		d    []checkpoint.Difference
	}{{"config", cmp.Config}, {"file", cmp.Files}} {
		for _, d := range part.d {
			rows = append(rows, []string{part.name, d.Field, d.A, d.B})
		}
	}
	if len(rows) > 1 {
		if err := a.table(rows); err != nil {
			return err
		}
		a.printf("\n")
	}
	rows = [][]string{{"TENSOR", "", "CHANGED", "MAX |A-B|", "|A-B|/|A|"}}
	for _, t := range cmp.Tensors {
		if t.Note != "same" {
			rows = append(rows, []string{t.Name, t.Note, fmt.Sprintf("%d of %d", t.Changed, t.Elements), fmt.Sprintf("%.3g", t.MaxAbs), fmt.Sprintf("%.3g", t.RelL2)})
		}
	}
	if len(rows) == 1 {
		a.printf("all %d tensors are equal in every bit\n", len(cmp.Tensors))
	} else if err := a.table(rows); err != nil {
		return err
	}
	if len(cmp.State) > 0 {
		a.printf("\nstate: %s of %s (--json lists them)\n", size.Of(len(cmp.State), "field"), few.Of(stateParts(cmp.State)))
	}
	return differ(cmp)
}

// stateParts names the parts of the state that differ, in order.
func stateParts(list []checkpoint.Difference) (parts []string) {
	for _, d := range list {
		name, _, _ := strings.Cut(d.Field, ".")
		parts = append(parts, name)
	}
	return slices.Compact(parts)
}

// differ returns an error if checkpoints are not equal.
func differ(c *checkpoint.Comparison) error {
	if c.Equal() {
		return nil
	}
	tensors := 0
	for _, t := range c.Tensors {
		if t.Note != "same" {
			tensors++
		}
	}
	return fmt.Errorf("the checkpoints differ: %d of %d tensors, %s of the state, %s, %s", tensors, len(c.Tensors), size.Of(len(c.State), "field"), size.Of(len(c.Config), "setting"), size.Of(len(c.Files), "file"))
}
