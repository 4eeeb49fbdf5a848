package cloudbase

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/metric"
	"github.com/snug-ml/snug/train/rundir"
)

// TestCollapse: a model that predicts almost a constant is called collapsed, and one that follows the truth
// is not.
func TestCollapse(t *testing.T) {
	r := &recording{Name: "a", Time: []float64{0, 1, 2, 3}}
	j := &measured{predictions: &predictions{Truth: []float64{0.5, 1, 1.5, 2}}}
	for i := range r.Time {
		j.windows = append(j.windows, window{r, i})
	}
	task := &task{}
	for _, c := range []struct {
		predicted []float64
		collapsed bool
	}{{[]float64{1.2, 1.25, 1.3, 1.35}, true}, {[]float64{0.6, 1, 1.4, 1.8}, false}} {
		j.Predicted = c.predicted
		s, err := task.side(j, math.Inf(1), 1)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(lead(&Outcome{Sides: map[string]Side{"test": s}, Interval: Interval{HalfWidth: s.MAE}}), "\n")
		if s.Collapsed != c.collapsed || strings.Contains(said, "COLLAPSED") != c.collapsed {
			t.Errorf("%v of %v: collapsed %v\n%s", c.predicted, j.Truth, s.Collapsed, said)
		}
		// Against a constant of 1 km, the mean squared error is (0.25+0+0.25+1)/4.
		near(t, "baseline", float64(s.Baseline), math.Sqrt(0.375), 1e-12)
		near(t, "skill", float64(s.Skill), metric.Skill(float64(s.MSE), 0.375), 1e-12)
	}
}

// TestInterval: without enough calibration examples there is no interval, and what is written to a run
// directory can be read back.
func TestInterval(t *testing.T) {
	task := &task{config: configure(t, "split.confidence", "0.5")}
	r := &recording{Name: "a"}
	i := task.interval(&measured{&predictions{Predicted: []float64{1, 1, 1}, Truth: []float64{1.1, 0.8, 1.3}}, []window{{r, 0}, {r, 1}, {r, 2}}}, 7)
	near(t, "half-width", float64(i.HalfWidth), 0.2, 1e-9) // the second of three
	if !math.IsInf(float64(task.interval(nil, 7).HalfWidth), 1) {
		t.Error("an interval from nothing")
	}
	dir := t.TempDir()
	run, err := rundir.Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(run.ReplaceJSON(IntervalFile, i), run.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := readInterval(dir); err != nil || got.HalfWidth != i.HalfWidth || got.Update != 7 || got.Flights[0] != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, IntervalFile), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = readInterval(dir)
	refused(t, "a torn file", err, IntervalFile)
	for _, half := range []string{`"NaN"`, `"-Inf"`, `-0.1`} {
		if err := os.WriteFile(filepath.Join(dir, IntervalFile), fmt.Appendf(nil, `{"update": 7, "half_width": %s}`, half), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = readInterval(dir)
		refused(t, half, err, "half_width is")
	}
}
