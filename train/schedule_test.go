package train

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
)

const goldens = "../engine/testdata/goldens/schedule"

// Every schedule gives PyTorch's (or transformers') learning rate at every
// update.
func TestSchedulesEqualPyTorch(t *testing.T) {
	raw, err := os.ReadFile(goldens + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Cases []struct {
			Op, Case string
			Attrs    struct {
				LR        float64
				Factor    float64
				Width     int     `json:"d_model"`
				Warmup    int64   `json:"warmup_steps"`
				Max       int64   `json:"max_steps"`
				Patience  int     `json:"patience"`
				Threshold float64 `json:"threshold"`
				Min       float64 `json:"min_lr"`
			}
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(goldens + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	read := func(name string) []float32 {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, x.Shape[0])
		if err := x.Float32s(v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range list.Cases {
		a := c.Attrs
		s := Schedule{Kind: ScheduleKind(c.Op), Peak: a.LR, Warmup: a.Warmup, Total: a.Max, Width: a.Width,
			Factor: a.Factor, Patience: a.Patience, Threshold: a.Threshold}
		switch s.Kind {
		case Noam:
			s.Peak = a.Factor
		case Plateau:
			s.Floor = a.Min / a.LR
		}
		want := read(c.Op + "." + c.Case + ".out.lr")
		var losses []float32
		if s.Kind == Plateau {
			losses = read(c.Op + "." + c.Case + ".in.loss")
		}
		for u, w := range want {
			if losses != nil {
				s.Observe(Metric{Name: "eval_loss"}, float64(losses[u])) // the rate after this evaluation
			}
			if got := s.LR(int64(u)); math.Abs(got-float64(w)) > 1e-6*float64(w)+1e-12 {
				t.Errorf("%s %s: update %d has rate %v, PyTorch %v", c.Op, c.Case, u, got, w)
				break
			}
		}
	}
	if len(list.Cases) < 7 {
		t.Errorf("only %d cases", len(list.Cases))
	}
}

func TestScheduleEnds(t *testing.T) {
	s := Schedule{Kind: Cosine, Peak: 1, Warmup: 10, Total: 100, Floor: 0.1}
	if got := s.LR(0); got != 0 {
		t.Errorf("warm-up starts at %v", got)
	}
	if got := s.LR(10); got != 1 {
		t.Errorf("the peak is %v", got)
	}
	if got := s.LR(100); math.Abs(got-0.1) > 1e-12 {
		t.Errorf("the end is %v", got)
	}
	updates, rates := s.Preview(5)
	if len(updates) != 5 || updates[4] != 99 || rates[0] != 0 {
		t.Errorf("preview %v %v", updates, rates)
	}
	if w := s.Warning(); w != "" {
		t.Errorf("10 of 100 updates of warm-up give a warning: %s", w)
	}
	s.Warmup = 30
	if w := s.Warning(); !strings.Contains(w, "30 of 100") {
		t.Errorf("30 of 100 updates of warm-up give %q", w)
	}
}

// The plateau schedule and early stopping continue from their state as if they had
// not stopped.
func TestMemoriesSurvive(t *testing.T) {
	losses := []float64{3, 2.5, 2.6, 2.7, 2.4, 2.5, 2.5, 2.5, 2.5, 2.6, 2.7}
	goal := Metric{Name: "eval_loss"}
	for cut := range losses {
		a := Schedule{Kind: Plateau, Peak: 1, Factor: 0.5, Patience: 1, Threshold: 1e-4}
		b := a
		ea, eb := EarlyStopping{Patience: 3}, EarlyStopping{Patience: 3}
		var oa, ob Outliers
		for i, l := range losses {
			if i == cut {
				state, err := b.State()
				if err != nil {
					t.Fatal(err)
				}
				b = Schedule{Kind: Plateau, Peak: 1, Factor: 0.5, Patience: 1, Threshold: 1e-4}
				if err := b.Restore(state); err != nil {
					t.Fatal(err)
				}
				if state, err = eb.State(); err != nil {
					t.Fatal(err)
				}
				eb = EarlyStopping{Patience: 3}
				if err := eb.Restore(state); err != nil {
					t.Fatal(err)
				}
				raw, err := json.Marshal(ob)
				if err != nil {
					t.Fatal(err)
				}
				ob = Outliers{}
				if err := json.Unmarshal(raw, &ob); err != nil {
					t.Fatal(err)
				}
			}
			a.Observe(goal, l)
			b.Observe(goal, l)
			if a.LR(9) != b.LR(9) || ea.Observe(goal, l) != eb.Observe(goal, l) || oa.Observe(l) != ob.Observe(l) {
				t.Fatalf("cut before evaluation %d: they differ after evaluation %d", cut, i)
			}
		}
	}
}

func TestEarlyStopping(t *testing.T) {
	e := EarlyStopping{Patience: 2, MinDelta: 0.1}
	up := Metric{Name: "f1", Higher: true}
	for i, c := range []struct {
		value float64
		stop  bool
	}{{0.5, false}, {0.7, false}, {0.75, false}, {0.79, true}} {
		if got := e.Observe(up, c.value); got != c.stop {
			t.Errorf("evaluation %d (%v): stop is %t", i, c.value, got)
		}
	}
	never := EarlyStopping{}
	for range 100 {
		if never.Observe(up, 0) {
			t.Fatal("patience 0 stops")
		}
	}
	nan := EarlyStopping{Patience: 2}
	nan.Observe(up, math.NaN())
	if nan.Observe(up, 0.1); nan.memory.Best != 0.1 {
		t.Error("a NaN counted as the best value")
	}
}

func TestOutliers(t *testing.T) {
	var o Outliers
	for i := range 200 {
		if z := o.Observe(2 + 0.01*float64(i%7)); math.Abs(z) > 3 {
			t.Fatalf("ordinary value %d has z-score %v", i, z)
		}
	}
	if z := o.Observe(4); z < 20 {
		t.Errorf("a spike has z-score %v", z)
	}
	o.Observe(math.NaN())
	if z := o.Observe(2.03); math.IsNaN(z) {
		t.Error("a NaN spoils the scores after it")
	}
}

// The plateau schedule lowers the rate when the monitored metric stops improving,
// whichever way is better, and never while it improves; a value that is not finite
// is no improvement.
func TestPlateauFollowsTheGoal(t *testing.T) {
	for _, c := range []struct {
		name   string
		goal   Metric
		values []float64
		rates  []float64 // after each
	}{
		{"a loss that falls", Metric{Name: "eval_loss"}, []float64{3, 2, 1, 0.5, 0.4}, []float64{1, 1, 1, 1, 1}},
		{"a loss that rises", Metric{Name: "eval_loss"}, []float64{1, 2, 3, 4, 5}, []float64{1, 1, 0.5, 0.5, 0.25}},
		{"F1 that rises", Metric{"f1", true}, []float64{0.5, 0.6, 0.7, 0.8, 0.9}, []float64{1, 1, 1, 1, 1}},
		{"F1 that falls", Metric{"f1", true}, []float64{0.9, 0.8, 0.7, 0.6, 0.5}, []float64{1, 1, 0.5, 0.5, 0.25}},
		{"F1 that stands", Metric{"f1", true}, []float64{0.5, 0.50001, 0.50002, 0.6, 0.7}, []float64{1, 1, 0.5, 0.5, 0.5}},
		{"R2 below 0 that rises", Metric{"r2", true}, []float64{-3, -2, -1, -0.5, 0.1}, []float64{1, 1, 1, 1, 1}},
		{"a first value that is no number", Metric{"f1", true}, []float64{math.NaN(), 0.1, 0.2, 0.3, 0.4}, []float64{1, 1, 1, 1, 1}},
	} {
		s := Schedule{Kind: Plateau, Peak: 1, Factor: 0.5, Patience: 1, Threshold: 1e-4}
		for i, v := range c.values {
			s.Observe(c.goal, v)
			if got := s.LR(9); got != c.rates[i] {
				t.Errorf("%s: after %v the rate is %v, want %v", c.name, c.values[:i+1], got, c.rates[i])
			}
		}
	}
}
