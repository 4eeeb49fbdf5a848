package cloudbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// task is a prepared run.
type task struct {
	config *config.Config
	env    system.Env
	store  *store
	sides  *sides
	scaler scaler // scales of the training windows
	reader *reader
}

// scalerFile is the file of a checkpoint that lists its scales for users.
const scalerFile = "scaler.json"

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (run *system.Run, err error) {
	key, err := storeKey(c)
	if err != nil {
		return nil, err
	}
	s, err := prepare(ctx, env.Cache, key, config.Of[Data](c).FlatField, func() ([]*flight, error) { return flights(c) }, env.Log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	t := &task{config: c, env: env, store: s, reader: newReader(c)}
	if t.sides, err = divide(c, s); err != nil {
		return nil, err
	}
	dataLoader := newDataLoader(c, t.sides.train, m.Shape.MicroBatch, m.Shape.Accumulation, s.id)
	if err := env.Continues(dataLoader); err != nil {
		return nil, err
	}
	if err := s.keep(); err != nil {
		return nil, err
	}
	t.scaler = fitScaler(t.sides.train, config.Of[Model](c).Frames)
	t.announce()
	base, scales := baseOf(c), t.scaler
	if base.Dir != "" {
		if scales, err = savedScaler(base.Dir); err != nil {
			return nil, fmt.Errorf("%s: %w", system.FolderKey, err)
		}
	}
	shown, err := json.MarshalIndent(scales, "", "  ")
	if err != nil {
		return nil, err
	}
	run = &system.Run{
		Loader:     dataLoader,
		Rows:       int64(len(t.sides.train)),
		LoaderKeys: []string{system.WorkersKey},
		Monitor:    monitored(c), Files: map[string][]byte{scalerFile: append(shown, '\n')}, Close: s.Close, Load: t.load,
	}
	if err := config.Of[system.LoRA](c).Attach(run, base); err != nil {
		return nil, err
	}
	if len(t.sides.valid) > 0 {
		run.Evaluator = t.reader.evaluation(t.sides.valid, c.Training.EvalBatches)
	}
	switch {
	case t.reader.masked:
		// This is the error of predicting each pixel as the mean of its image, whose pixels have variance 1.
		if config.Of[Data](c).Normalize == "zscore" {
			run.Baselines = []system.Baseline{{Name: "the mean of each image", Value: 1}}
		}
	default:
		run.Report = t.report
		if n := len(t.sides.valid); n > 0 {
			run.ReportPasses = 1 + float64(len(t.sides.calibration)+len(t.sides.test))/float64(n)
		}
		if truth := t.truth(t.sides.valid); len(truth) > 0 {
			run.Baselines = []system.Baseline{{Name: "rmse of the mean", Value: math.Sqrt(constantError(truth, t.scaler.Base.Mean))}}
		}
	}
	return run, nil
}

// announce logs what was found in the data.
func (t *task) announce() {
	for _, s := range []struct {
		name string
		list []window
	}{{"train", t.sides.train}, {"validation", t.sides.valid}, {"calibration", t.sides.calibration}, {"test", t.sides.test}} {
		if len(s.list) == 0 {
			continue
		}
		names := map[string]bool{}
		for _, w := range s.list {
			names[w.flight.Name] = true
		}
		m := momentsOf(t.truth(s.list))
		t.env.Log("data: %-11s %13s of %s, cloud base %.2f +- %.2f km", s.name, size.Of(len(s.list), "window"), size.Of(len(names), "flight"), m.Mean, m.Std)
	}
}

// truth returns the known labels of windows.
func (t *task) truth(list []window) (km []float64) {
	return knownBases(list, t.reader.model.Frames)
}

// load copies the scales of the training flights and the weights of phases.init to a loaded program. If a run
// is adapted, it copies everything from that run, including the scales.
func (t *task) load(r *engine.Executable) error {
	if base := baseOf(t.config); base.Dir != "" {
		return config.Of[system.LoRA](t.config).Begin(r, base, t.env.Log)
	}
	path := config.Of[Phases](t.config).Init
	if len(t.env.From) > 0 { // an earlier phase, wherever its run is now
		var err error
		if path, err = t.env.From[0].Find(filepath.Dir(filepath.Clean(t.env.Dir.Path()))); err != nil {
			return err
		}
	}
	if path != "" {
		if err := t.start(r, path); err != nil {
			return fmt.Errorf("phases.init: %w", err)
		}
	}
	return t.scaler.set(r)
}

// start copies the weights of a run or checkpoint that also exist in this model.
func (t *task) start(r *engine.Executable, path string) (err error) {
	chosen, err := checkpoint.Choose(path, "")
	if err != nil {
		return err
	}
	c, err := checkpoint.Load(chosen.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	taken, missing := 0, 0
	for _, s := range r.Program().States {
		if s.Role != graph.Weight && s.Role != graph.Buffer {
			continue
		}
		x, err := c.Weights.Tensor(s.Name)
		if err != nil {
			missing++
			continue
		}
		if int64(len(x.Data)) != s.Type.Bytes() {
			return fmt.Errorf("%s: %s is %v, this model has %v", c.Path, s.Name, x.Shape, s.Type.Shape)
		}
		if err := r.WriteState(s.Name, x.Data); err != nil {
			return err
		}
		taken++
	}
	if taken == 0 {
		return fmt.Errorf("%s has no tensor of this model", c.Path)
	}
	t.env.Log("weights: %s from %v, %d start at random", size.Of(taken, "tensor"), chosen, missing)
	return nil
}
