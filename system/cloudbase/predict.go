package cloudbase

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// predictor applies a checkpoint to flights. It is for one goroutine.
type predictor struct {
	config   *config.Config
	reader   *reader
	runner   *engine.Executable
	interval Interval
	// calibrated means that the interval is for these weights.
	calibrated bool
}

// predictRows is the number of windows computed at a time.
const predictRows = 8

// flightField is the field of a record that names a flight, by NPZ file or folder of images, for all of its
// windows. Followed by #N, it names the window whose middle is frame N.
const flightField = "flight"

// pretrains reports whether a configuration trains on masked images, whose heights are not predicted.
func pretrains(c *config.Config) bool { return config.Of[Phases](c).Run == "mae" }

// newPredictor loads the weights and scales of a checkpoint folder, and the interval of its run if that is
// for these weights.
func newPredictor(c *config.Config, dir string, on engine.Backend) (_ inference.Predictor, err error) {
	if pretrains(c) {
		return nil, fmt.Errorf("%s was trained on masked images without labels and cannot predict; continue from it with phases.init", dir)
	}
	n := &net{Model: config.Of[Model](c), rows: predictRows}
	b := graph.NewBuilder(engine.FuncEval)
	if err := graph.Catch(func() {
		o := n.objective(b, config.Of[Loss](c))
		b.Output(engine.OutputSum, o.Sum)
		b.F.Outputs = append(b.F.Outputs, o.Outputs...)
	}); err != nil {
		return nil, err
	}
	p := &predictor{config: c, reader: newReader(c)}
	ck, err := checkpoint.Load(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	if p.interval, err = intervalOf(dir, ck.State.Update); err != nil {
		return nil, err
	}
	p.calibrated = p.interval.Update == ck.State.Update
	p.runner, err = inference.Load(on, func(x *engine.Executable) error {
		if len(config.Of[system.LoRA](c).Targets) > 0 {
			return fillMerged(x, c, dir)
		}
		return train.LoadStates(x, ck, graph.Weight, graph.Buffer)
	}, b.F)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Batch implements [inference.Predictor]. It is 1, because a flight fills batches by itself.
func (p *predictor) Batch() int { return 1 }

// TextField implements [inference.Predictor].
func (p *predictor) TextField() string { return flightField }

// Remark implements [inference.Predictor].
func (p *predictor) Remark() string {
	if p.calibrated || len(config.Of[Split](p.config).Calibration) == 0 {
		return ""
	}
	return "answers have no low and high: no interval is calibrated for these weights; run `snug eval` on this checkpoint"
}

// Close implements [inference.Predictor].
func (p *predictor) Close() error { return p.runner.Close() }

// Find implements [inference.Finder].
func (p *predictor) Find(pattern string) ([]string, error) {
	names, err := match(pattern)
	if err != nil || !slices.ContainsFunc(names, isSource) {
		return nil, err
	}
	return expand(names...)
}

// Predict implements [inference.Predictor]. For each window of a flight, it returns the flight, the number and
// the time of its middle frame, and cbh in km, with low and high if the run has an interval.
func (p *predictor) Predict(ctx context.Context, inputs []inference.Input) ([][]inference.Answer, error) {
	var out [][]inference.Answer
	for _, in := range inputs {
		text, err := in.Text(flightField)
		if err != nil {
			return nil, err
		}
		a, err := p.flight(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.Where(), err)
		}
		out = append(out, a)
	}
	return out, nil
}

// flight returns the answers for PATH or PATH#FRAME.
func (p *predictor) flight(ctx context.Context, text string) (out []inference.Answer, err error) {
	path, only := text, -1
	if i := strings.LastIndexByte(text, '#'); i >= 0 {
		if n, err := strconv.Atoi(text[i+1:]); err == nil {
			path, only = text[:i], n
		}
	}
	found, err := expand(path)
	if err != nil {
		return nil, err
	}
	dir, err := durable.Scratch("flight")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := prepare(ctx, dir, "predict", config.Of[Data](p.config).FlatField, func() ([]*flight, error) { return readFlights(p.config, found) }, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	frames := p.reader.model.Frames
	var list []window
	for _, r := range s.Flights {
		list = append(list, windows(p.config, r, true)...)
	}
	if only >= 0 {
		list = slices.DeleteFunc(list, func(w window) bool { return w.middle(frames) != only })
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no window of %d frames without a gap in time%s", path, frames, map[bool]string{true: fmt.Sprintf(" around frame %d", only)}[only >= 0])
	}
	j, err := p.reader.measure(ctx, p.runner, list)
	if err != nil {
		return nil, err
	}
	half := float64(p.interval.HalfWidth)
	for i, w := range list {
		m, cbh := w.middle(frames), j.Predicted[i]
		a := inference.Answer{{Name: "flight", Value: w.flight.Name}, {Name: "frame", Value: m}, {Name: "time", Value: w.flight.Time[m]}, {Name: "cbh", Value: cbh}}
		if !math.IsInf(half, 0) {
			a = append(a, inference.Field{Name: "low", Value: cbh - half}, inference.Field{Name: "high", Value: cbh + half})
		}
		out = append(out, a)
	}
	return out, nil
}
