package cloudbase

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/metric"
	"github.com/snug-ml/snug/train/rundir"
)

// These are the files that a report leaves in a run directory.
const (
	OutcomeFile     = "report.json"
	PredictionsFile = "predictions.csv"
	IntervalFile    = "interval.json"
	FoldsFile       = "loo.json"
)

// Outcome is the content of report.json: the result of a run. Heights are in km.
type Outcome struct {
	Update     int64  `json:"update"`
	Parameters int64  `json:"parameters"`
	Phase      string `json:"phase"`
	// Trained lists the flights trained on, and Scaler has the scales fitted on them.
	Trained  []string        `json:"trained_flights"`
	Scaler   scaler          `json:"scaler"`
	Interval Interval        `json:"interval"`
	Sides    map[string]Side `json:"sides"`
}

// Side holds the model's results on the flights of one side of the split.
type Side struct {
	Figures
	// Baseline is the root mean squared error of predicting the mean of the training labels. Skill is the
	// share of its mean squared error that the model removes.
	Baseline  checkpoint.Float   `json:"baseline_rmse"`
	Skill     checkpoint.Float   `json:"skill"`
	Collapsed bool               `json:"collapsed"`
	Flights   map[string]Figures `json:"flights"`
}

// Figures holds the metrics of metric.Regression, with names as in the guide, and the share of true values
// that the intervals cover.
type Figures struct {
	MAE         checkpoint.Float   `json:"mae"`
	MSE         checkpoint.Float   `json:"mse"`
	RMSE        checkpoint.Float   `json:"rmse"`
	MAPE        checkpoint.Float   `json:"mape"`
	R2          checkpoint.Float   `json:"r2"`
	MeanError   checkpoint.Float   `json:"mean_error"`
	StdError    checkpoint.Float   `json:"std_error"`
	Percentiles map[string]float64 `json:"error_percentiles"`
	Spread      checkpoint.Float   `json:"spread"`
	Predicted   metric.Interval    `json:"prediction_range"`
	True        metric.Interval    `json:"true_range"`
	Samples     int                `json:"num_samples"`
	Coverage    checkpoint.Float   `json:"coverage"`
	full        metric.Regression
}

// Interval is the content of interval.json: how far the true value may be from a prediction.
type Interval struct {
	Update     int64            `json:"update"`
	Confidence float64          `json:"confidence"`
	HalfWidth  checkpoint.Float `json:"half_width"` // km; +Inf if there are too few examples
	// Flights and Examples tell what it was calibrated on. If there are none, there is no interval.
	Flights  []string `json:"flights"`
	Examples int      `json:"examples"`
}

// figures returns the metrics of predictions with intervals of half-width half.
func figures(predicted, truth []float64, half float64) (Figures, error) {
	r, err := metric.Regress(predicted, truth)
	if err != nil {
		return Figures{}, err
	}
	f := Figures{
		MAE: checkpoint.Float(r.MAE), MSE: checkpoint.Float(r.MSE), RMSE: checkpoint.Float(r.RMSE), MAPE: checkpoint.Float(r.MAPE), R2: checkpoint.Float(r.R2),
		MeanError: checkpoint.Float(r.MeanError), StdError: checkpoint.Float(r.StdError), Spread: checkpoint.Float(r.Spread), Samples: r.N,
		Predicted: r.PredictedRange, True: r.TrueRange, Percentiles: map[string]float64{}, full: r,
		Coverage: checkpoint.Float(metric.Coverage(predicted, truth, half)),
	}
	for k, q := range metric.ErrorQuantiles {
		f.Percentiles[fmt.Sprintf("%g", 100*q)] = r.Quantiles[k]
	}
	return f, nil
}

// side summarizes the predictions on one side of the split.
func (t *task) side(j *measured, half, mean float64) (s Side, err error) {
	if s.Figures, err = figures(j.Predicted, j.Truth, half); err != nil {
		return s, err
	}
	reference := constantError(j.Truth, mean)
	s.Baseline, s.Skill = checkpoint.Float(math.Sqrt(reference)), checkpoint.Float(metric.Skill(float64(s.MSE), reference))
	s.Collapsed = float64(s.Spread) < collapsed
	s.Flights = map[string]Figures{}
	for name, k := range j.byFlight() {
		if s.Flights[name], err = figures(k.Predicted, k.Truth, half); err != nil {
			return s, err
		}
	}
	return s, nil
}

// byFlight splits predictions by flight.
func (j *measured) byFlight() map[string]*measured {
	out := map[string]*measured{}
	for i, w := range j.windows {
		k := out[w.flight.Name]
		if k == nil {
			k = &measured{predictions: &predictions{}}
			out[w.flight.Name] = k
		}
		k.windows = append(k.windows, w)
		k.Predicted, k.Truth = append(k.Predicted, j.Predicted[i]), append(k.Truth, j.Truth[i])
	}
	return out
}

// flightNames returns the flights of windows, in their order.
func flightNames(list []window) (names []string) {
	for _, w := range list {
		if len(names) == 0 || names[len(names)-1] != w.flight.Name {
			names = append(names, w.flight.Name)
		}
	}
	return names
}

// sideNames lists the sides that are reported on, the most important first.
var sideNames = []string{"test", "validation", "calibration"}

// report measures every held-out flight with the weights in r and writes the reports to dir.
func (t *task) report(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error {
	scales, err := scalesOf(r)
	if err != nil {
		return err
	}
	o := &Outcome{
		Update: update, Phase: config.Of[Phases](t.config).Run, Trained: flightNames(t.sides.train), Scaler: scales, Sides: map[string]Side{},
	}
	o.Parameters, _ = r.Program().Parameters()
	bySide := map[string]*measured{}
	for name, list := range map[string][]window{"test": t.sides.test, "validation": t.sides.valid, "calibration": t.sides.calibration} {
		if len(list) == 0 {
			continue
		}
		j, err := t.reader.measure(ctx, r, list)
		if err != nil {
			return err
		}
		bySide[name] = j
	}
	o.Interval = t.interval(bySide["calibration"], update)
	for name, j := range bySide {
		s, err := t.side(j, float64(o.Interval.HalfWidth), scales.Base.Mean)
		if err != nil {
			return err
		}
		o.Sides[name] = s
	}
	if len(bySide) == 0 {
		return nil
	}
	history, err := train.ReadHistory(t.env.Dir.Path(), "rmse", "r2", "spread")
	if err != nil {
		return err
	}
	p := page(t.config, o, bySide, history)
	err = errors.Join(
		dir.ReplaceJSON(OutcomeFile, o), dir.ReplaceJSON(IntervalFile, o.Interval),
		t.predictions(dir, bySide, float64(o.Interval.HalfWidth)), p.Save(dir),
	)
	if err != nil {
		return err
	}
	for _, line := range lead(o) {
		t.env.Log("%s", line)
	}
	t.env.Log("report: %s", dir.Join(report.FileName))
	if o.Phase == "fold" && dir == t.env.Dir {
		return t.folds()
	}
	return nil
}

// interval calibrates the half-width on flights that were not used to choose anything else.
func (t *task) interval(j *measured, update int64) Interval {
	i := Interval{Update: update, Confidence: config.Of[Split](t.config).Confidence, HalfWidth: checkpoint.Float(math.Inf(1))}
	if j == nil {
		return i
	}
	var absolute []float64
	for k, p := range j.Predicted {
		absolute = append(absolute, math.Abs(p-j.Truth[k]))
	}
	i.Flights, i.Examples = flightNames(j.windows), len(absolute)
	i.HalfWidth = checkpoint.Float(metric.Conformal(absolute, i.Confidence))
	return i
}

// predictions writes predictions.csv, with a row for each window.
func (t *task) predictions(dir *rundir.Dir, bySide map[string]*measured, half float64) error {
	var buffer bytes.Buffer
	w := csv.NewWriter(&buffer)
	rows := [][]string{{"split", "flight_name", "local_index", "time", "sza", "saa", "y_true", "y_pred", "y_low", "y_high"}}
	number := func(v float64) string {
		if math.IsInf(v, 0) {
			return ""
		}
		return fmt.Sprintf("%.6g", v)
	}
	for _, name := range sideNames {
		j := bySide[name]
		if j == nil {
			continue
		}
		for k, x := range j.windows {
			i, f := x.middle(t.reader.model.Frames), x.flight
			rows = append(rows, []string{name, f.Name, fmt.Sprint(i), fmt.Sprintf("%.3f", f.Time[i]), number(f.SZA[i]), number(f.SAA[i]),
				number(j.Truth[k]), number(j.Predicted[k]), number(j.Predicted[k] - half), number(j.Predicted[k] + half)})
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return dir.Replace(PredictionsFile, buffer.Bytes())
}

// folds collects the reports of the folds next to this one.
func (t *task) folds() error {
	parent := filepath.Dir(filepath.Clean(t.env.Dir.Path()))
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	folds := map[string]Side{}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), folderFold)
		if !ok {
			continue
		}
		raw, err := regular.Read(filepath.Join(parent, e.Name(), OutcomeFile), regular.Text)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not finished yet
		}
		var o Outcome
		if err == nil {
			err = strictjson.Unmarshal(raw, &o)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(parent, e.Name(), OutcomeFile), err)
		}
		folds[name] = o.Sides["validation"]
	}
	whole, err := rundir.Look(parent)
	if err != nil {
		return err
	}
	return errors.Join(whole.ReplaceJSON(FoldsFile, folds), whole.Close())
}

// lead states the result in a few lines.
func lead(o *Outcome) (lines []string) {
	for _, name := range sideNames[:2] {
		s, ok := o.Sides[name]
		if !ok {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s flights: R2 %.3f, RMSE %.3f km (%.3f km for the mean of the training flights), skill %.3f, MAE %.3f km, bias %+.3f km, %s of %s",
			name, float64(s.R2), float64(s.RMSE), float64(s.Baseline), float64(s.Skill), float64(s.MAE), float64(s.MeanError), size.Of(s.Samples, "window"), size.Of(len(s.Flights), "flight")))
		if !math.IsInf(float64(o.Interval.HalfWidth), 0) {
			lines = append(lines, fmt.Sprintf("  intervals of +-%.3f km were calibrated for %.0f %% and cover %.0f %%", float64(o.Interval.HalfWidth), 100*o.Interval.Confidence, 100*float64(s.Coverage)))
		}
		if s.Collapsed {
			lines = append(lines, fmt.Sprintf("  COLLAPSED: the predictions vary %.0f %% as much as the true values: the model predicts almost the same for every image", 100*float64(s.Spread)))
		}
	}
	return lines
}

// intervalOf returns the interval of a checkpoint: that of its run, if it was calibrated for these weights,
// or else that of an evaluation of this checkpoint.
func intervalOf(path string, update int64) (Interval, error) {
	for _, dir := range []string{checkpoint.RunOf(path), checkpoint.Evaluated(path)} {
		i, err := readInterval(dir)
		if err != nil || i.Update == update {
			return i, err
		}
	}
	return Interval{HalfWidth: checkpoint.Float(math.Inf(1))}, nil
}

// readInterval returns the interval in a folder, which may have none.
func readInterval(dir string) (i Interval, err error) {
	i.HalfWidth = checkpoint.Float(math.Inf(1))
	path := filepath.Join(dir, IntervalFile)
	raw, err := regular.Read(path, regular.Text)
	if errors.Is(err, fs.ErrNotExist) {
		return i, nil
	}
	if err == nil {
		err = strictjson.Unmarshal(raw, &i)
	}
	if h := float64(i.HalfWidth); err == nil && !(h >= 0) {
		err = fmt.Errorf("half_width is %v, want 0 or more (\"+Inf\" where there is no interval); remove the file, and `snug eval` calibrates again", h)
	}
	if err != nil {
		return i, fmt.Errorf("%s: %w", path, err)
	}
	return i, nil
}
