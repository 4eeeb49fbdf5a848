package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// ofRun makes a resumed run use the configuration in its directory if the command line names none. If there
// is no run, there is nothing to resume: the default preset is not what was asked for. With a named
// configuration a new run may begin, so that a script that restarts a job until it is done need not know
// whether it has begun.
func (t *training) ofRun() error {
	if !t.Resume || t.Sources.Preset != "" || t.Sources.File != "" {
		return nil
	}
	dir := t.Dir
	for _, o := range t.Sources.Overrides {
		if o.Key == "run.out" {
			dir = o.Text
		}
	}
	if dir == "" {
		dir = filepath.Join("runs", DefaultPreset)
	}
	path, err := configOf(dir)
	if err != nil {
		return err
	}
	t.Sources.File, t.Dir = path, dir
	return nil
}

// configOf returns the configuration file of the run in dir: its own or, if a checkpoint was copied to an
// empty folder, that of the newest checkpoint.
func configOf(dir string) (string, error) {
	path := filepath.Join(dir, checkpoint.ConfigFile)
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	what := "it has no " + checkpoint.ConfigFile + " and no checkpoint"
	list, err := checkpoint.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		what = "there is no such folder"
	case err != nil:
		return "", err
	case len(list) > 0:
		what = fmt.Sprintf("it has no %s, and none of its checkpoints can be used (%s: %v)", checkpoint.ConfigFile, filepath.Base(list[0].Path), list[0].Problem)
	}
	for _, e := range list {
		if e.Problem == nil {
			return filepath.Join(e.Path, checkpoint.ConfigFile), nil
		}
	}
	return "", usage("nothing to resume in %s: %s; name the directory of a run with --out, or start one there: snug train PRESET --out %s (or --config FILE in place of the preset)", dir, what, shell.Path(dir))
}

// change is a setting whose value has changed since the run last began.
type change struct {
	config.Value
	was   string
	phase string // the phase that has the setting; empty for the run
}

func (c change) String() string {
	return fmt.Sprintf("%s is %s, %s has %s", c.Key, c.Text, cmp.Or(c.phase, "the run"), c.was)
}

// changed compares a configuration with the one that a run was made with.
func changed(old, c *config.Config) []change {
	if old.System != c.System { // the keys differ too
		return []change{{Value: c.Values()[0], was: old.System}}
	}
	before := map[string]string{}
	for _, v := range old.Values() {
		before[v.Key] = v.Text
	}
	var list []change
	for _, v := range c.Values() {
		if before[v.Key] != v.Text {
			list = append(list, change{Value: v, was: before[v.Key]})
		}
	}
	return list
}

// recorded returns the configuration that the run in dir was made with. It does not fetch its data. The weights
// that adapters belong to are those that are named now: they may have moved, and are compared when they are loaded.
func (t *training) recorded(dir string) (*config.Config, error) {
	from := config.Sources{Systems: Configs(), File: filepath.Join(dir, checkpoint.ConfigFile), Fetch: notData(t.Sources.Fetch)}
	if system.HasBase(dir) {
		for _, o := range t.Sources.Overrides {
			if o.Key == system.FolderKey {
				from.Overrides = append(from.Overrides, o)
			}
		}
	}
	return config.Load(from)
}

// recordedBy returns the configuration in the newest of the checkpoints where it is readable. A checkpoint
// whose configuration is damaged is never resumed from.
func (t *training) recordedBy(list []checkpoint.Entry) (c *config.Config, err error) {
	for _, e := range list {
		c, unread := t.recorded(e.Path)
		if unread == nil {
			return c, nil
		}
		err = cmp.Or(err, unread)
	}
	return nil, err
}

// settled reports whether a setting is fixed once a run of the system begins: what the model is, what it
// learns from, and what its state consists of.
func (c change) settled(s *system.System) bool {
	switch section, _, _ := strings.Cut(c.Key, "."); section {
	case "system", "model":
		return true
	case "data":
		return !slices.Contains(howDataIsRead, c.Key)
	}
	switch c.Key {
	case "training.seed", "training.optimizer", "training.master_weights", "training.gradient_dtype", "training.gradient_accumulation_steps":
		return true
	case "training.diloco.inner_steps": // the momentum and each process's moments are part of the state
		return c.was == "0" || c.Text == "0"
	case "training.clip_norm": // the norm is part of the state
		return c.was == string(engine.ClipPrevious) || c.Text == string(engine.ClipPrevious)
	case "training.mixed_precision": // the loss scale is part of the state
		return c.was == "fp16" || c.Text == "fp16"
	}
	return s.Fixed != nil && s.Fixed(c.Key)
}

// howDataIsRead lists the settings of data that do not affect its content.
var howDataIsRead = []string{"data.workers", "data.prefetch", "data.cache_dir", "data.max_record"}

// matters reports whether a setting affects what a run learns, or the decision whether that is good enough.
func (c change) matters() bool {
	switch section, _, _ := strings.Cut(c.Key, "."); section {
	case "hardware", "metrics", "run", "checkpoint":
		return false
	}
	return !slices.Contains(howDataIsRead, c.Key) && c.Key != "phases.run" && c.Key != "phases.stage"
}

// ofModel reports whether a setting belongs to what all phases of a run share.
func (c change) ofModel() bool {
	section, _, _ := strings.Cut(c.Key, ".")
	return section == "system" || section == "model" || c.Key == "training.seed"
}

// cannotResume returns an error that lists changes with both values; out is the value for --out.
func cannotResume(dir, out string, list []change) error {
	with, lines := "another model", make([]string, len(list))
	for i, c := range list {
		if lines[i] = c.String(); !c.ofModel() {
			with = "other settings, which cannot change after a run starts"
		}
	}
	return usage("cannot resume %s with %s:\n  %s\nstart a new run with another --out, or omit them: snug train --resume --out %s", dir, with, strings.Join(lines, "\n  "), shell.Path(out))
}

// dataSource is where the data is that a run learns from. It may have moved; whether it is the same is seen when
// it is opened (see [system.Env.Continues]).
const dataSource = "data.source"

// sameRun rejects resuming with an incompatible configuration before anything is touched, and remembers other
// changes.
func (r *run) sameRun() error {
	list, err := checkpoint.List(r.dir)
	list = slices.DeleteFunc(list, func(e checkpoint.Entry) bool { return e.Problem != nil })
	if err != nil || len(list) == 0 || rundir.StartedOver(r.dir, list[0].Manifest.Run) {
		return nil // nothing to resume, so any new run is fine
	}
	// The file in the run directory may belong to a run that never saved.
	old, err := r.recordedBy(list)
	if err != nil {
		return fmt.Errorf("the configuration of the run to resume: %w", err)
	}
	var settled []change
	for _, c := range changed(old, r.Config) {
		switch section, _, _ := strings.Cut(c.Key, "."); {
		case c.settled(&r.System) && c.Key != dataSource:
			settled = append(settled, c)
		case section != "hardware" && section != "metrics" && section != "run":
			r.changed = append(r.changed, c)
		}
	}
	if len(settled) > 0 {
		return cannotResume(r.dir, r.asOut(r.dir), settled)
	}
	return nil
}

// resumable compares the checkpoint to resume from with the configuration. It reports changes, because with
// them the run takes another course.
func (r *run) resumable(c *checkpoint.Checkpoint) error {
	if done, last := c.State.Update, int64(r.Config.Training.MaxSteps); last < done {
		return usage("cannot resume %s: training.max_steps is %d, the run has done %s", r.dir, last, size.Of(done, "update"))
	}
	for _, x := range r.changed {
		r.infof("changed on resume: %s %s, was %s (%v)", x.Key, x.Text, x.was, x.Origin)
	}
	r.infof("resuming from %s", filepath.Base(c.Path))
	return nil
}

// computeAs makes the device compute matmuls as the run of a checkpoint did, so that the bits are the same;
// nil means a new run.
func (s *Setup) computeAs(c *checkpoint.Checkpoint) error {
	if c == nil {
		return backend.ComputeAs(s.Backend, nil)
	}
	record, err := c.File(backend.MatmulsFile)
	was, _ := slicesOf(c.Manifest.Arithmetic)
	switch {
	case errors.Is(err, fs.ErrNotExist) && was == s.arithmetic(s.Backend.Arithmetic()):
		record = []byte{} // same arithmetic, and nothing was chosen
	case errors.Is(err, fs.ErrNotExist):
		return backend.ComputeAs(s.Backend, nil)
	case err != nil:
		return err
	}
	if err := backend.ComputeAs(s.Backend, record); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(c.Path, backend.MatmulsFile), err)
	}
	return nil
}

// sameBits warns about a run that is resumed with other arithmetic.
func (r *run) sameBits(c *checkpoint.Checkpoint) {
	if c == nil {
		return
	}
	now, before := r.computed(), c.Manifest.Arithmetic
	if n, m := ownOptimizers(before), ownOptimizers(now); n > 0 && n != m {
		r.otherBits = fmt.Sprintf("updates up to %d of this run were computed by %s that trained on their own (DiLoCo), later ones are by %d: results differ from those of an uninterrupted run. The checkpoint has the optimizers of %d; process r continues with that of r modulo %d", c.State.Update, size.Of(n, "process"), m, n, n)
		r.warnf("%s", r.otherBits)
		return
	}
	if before != "" && before != now {
		r.otherBits = fmt.Sprintf("updates up to %d of this run were computed in %s, later ones are in %s: results match those of an uninterrupted run up to rounding, not bit for bit", c.State.Update, before, now)
		if now := r.sums(); r.Group == nil && (now == train.Ordered && strings.Contains(before, addedUpInOrder) || now == train.Tree && strings.Contains(before, addedUpInPairs)) {
			r.otherBits += "; --nproc 1 goes on with the bits of several processes"
		}
		r.warnf("%s", r.otherBits)
	}
}

// position returns where a run continues in its data; nil for a new run.
func position(c *checkpoint.Checkpoint) json.RawMessage {
	if c == nil {
		return nil
	}
	return c.State.Loader
}

// misfit explains why the state of a checkpoint does not fit; if settings were changed, by those settings.
func (r *run) misfit(err error) error {
	switch {
	case len(r.changed) == 0:
		return fmt.Errorf("cannot resume %s, though none of its settings changed: %w", r.dir, err)
	case errors.As(err, new(*train.MisfitError)): // the error names tensors of the program, which the user does not know
		return cannotResume(r.dir, r.asOut(r.dir), r.changed)
	}
	return errors.Join(cannotResume(r.dir, r.asOut(r.dir), r.changed), err)
}

// blocksInSlices ends the arithmetic string of a run whose blocks are computed in slices.
const blocksInSlices = ", blocks in %d slices"

// exchangedBF16 ends the arithmetic string of a run whose processes exchange rounded gradients.
const exchangedBF16 = ", gradients exchanged in bf16"

// sumsWiden ends the arithmetic string of a run whose processes keep gradients in 16 bits but add them up in
// float32.
const sumsWiden = ", gradients of bf16 added up in fp32"

// addedUpInOrder ends the arithmetic string of a run whose processes add up the gradients of whole
// micro-batches in order. A single process adds them up inside its matmuls, which rounds differently.
const addedUpInOrder = ", gradients added up by micro-batches"

// addedUpInPairs ends the arithmetic string of a run whose processes add up gradients as a tree.
const addedUpInPairs = ", gradients added up in pairs"

// addedUpBy ends the arithmetic string of a run whose processes add up their own micro-batches first.
const addedUpBy = ", gradients added up by "

// changesInt8 is before it if they send what weights changed by in 8 bits.
const changesInt8 = ", changes sent in int8"

// averagedOver ends the arithmetic string of a run whose processes train on their own between synchronizations, with
// their number.
const averagedOver = ", weights averaged over "

// ownOptimizers returns how many processes trained on their own, by the string from computed; 0 if none did.
func ownOptimizers(computed string) (n int) {
	if _, rest, ok := strings.Cut(computed, averagedOver); ok {
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return 0
		}
	}
	return n
}

// normByHost ends the arithmetic string of a run that shares its optimizer on a device that adds up the norm
// of gradients in another order than the processor does.
const normByHost = ", their norm added up by the host"

// computed identifies everything that decides how results of the run are rounded.
func (r *run) computed() string {
	text := r.arithmetic(r.runner.Arithmetic())
	if n := r.report.Run.Settings.Slices; n > 0 {
		text += fmt.Sprintf(blocksInSlices, n)
	}
	if r.exchange() == graph.BF16 {
		text += exchangedBF16
	}
	if r.Group != nil && r.narrowGradients() && !(r.sums() == train.Fast && r.World == 1) {
		text += sumsWiden
	}
	switch {
	case r.Group == nil:
	case r.diloco():
		if r.exchange() == graph.Int8 {
			text += changesInt8
		}
		text += fmt.Sprint(averagedOver, r.World, " processes")
	case r.sums() == train.Ordered:
		text += addedUpInOrder
	case r.sums() == train.Tree:
		text += addedUpInPairs
	case r.World > 1:
		text += fmt.Sprintf("%s%d processes", addedUpBy, r.World)
	}
	if r.program.Shards != nil && r.Backend.Traits().Name != engine.CPU.Name && !r.onCards {
		text += normByHost
	}
	return text
}

// slicesOf splits the string from computed into the kernels and the number of slices, 0 if there are none.
func slicesOf(computed string) (kernels string, slices int) {
	for _, end := range []string{exchangedBF16, sumsWiden, addedUpInOrder, addedUpInPairs, addedUpBy, normByHost, changesInt8, averagedOver} {
		computed, _, _ = strings.Cut(computed, end)
	}
	i := strings.LastIndex(computed, ", blocks in ")
	if i < 0 {
		return computed, 0
	}
	if _, err := fmt.Sscanf(computed[i:], blocksInSlices, &slices); err != nil {
		return computed, 0
	}
	return computed[:i], slices
}

// arithmetic identifies how kernels round results in the precision.
func (s *Setup) arithmetic(kernels string) string {
	return fmt.Sprintf("%s with %s", s.Precision, kernels)
}
