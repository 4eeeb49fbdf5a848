package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train/checkpoint"
)

// An evaluation that is the best so far is saved regardless of SaveEvery, even while the
// store is busy, but not if keep_best is off.
func TestBestIsSaved(t *testing.T) {
	values := []float64{5, 3, 4, 2, 6, 7} // after updates 2, 4 ... and at the end
	for _, tt := range []struct {
		name      string
		keepBest  int
		saveEvery int64
		slow      time.Duration
		best      int64
		saved     []int64 // of those after even updates
	}{
		{name: "saves between evaluations", saveEvery: 5, best: 8, saved: []int64{2, 4, 8}},
		{name: "saves at the end only", best: 8, saved: []int64{2, 4, 8}},
		{name: "busy", saveEvery: 3, slow: 20 * time.Millisecond, best: 8, saved: []int64{2, 4, 6, 8}},
		{name: "off", keepBest: -1, saveEvery: 5, best: 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			var saved []int64
			store, err := checkpoint.Open(dir, checkpoint.Options{KeepBest: tt.keepBest,
				SyncLog: func() error { time.Sleep(tt.slow); return nil },
				OnEvent: func(e checkpoint.Event) {
					if e.Kind == checkpoint.Saved && e.Update%2 == 0 && e.Update != 10 {
						saved = append(saved, e.Update)
					}
				}})
			if err != nil {
				t.Fatal(err)
			}
			r := classifier(t, 12, 1)
			j := job(r, &classes{micro: 1, rows: 12, updates: 11}, 11)
			j.Save.Store, j.Eval.Every, j.Save.Every = store, 2, tt.saveEvery
			n := 0
			j.Eval.Evaluator = evaluates(func() (float64, error) {
				n++
				return values[n-1], nil
			})
			if _, err := j.Run(context.Background(), 0); err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(saved, tt.saved) {
				t.Errorf("saved after %v, want %v", saved, tt.saved)
			}
			c, err := checkpoint.Choose(dir, checkpoint.Best)
			if err != nil || c.Update != tt.best {
				t.Errorf("the best checkpoint is %v (%v), want that of update %d", c, err, tt.best)
			}
		})
	}
}

// A run that is stopped during an evaluation repeats it when it is resumed, and its
// result then belongs to the checkpoint.
func TestBestIsSavedOnResume(t *testing.T) {
	dir := t.TempDir()
	part := func(resume bool) error {
		store, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		r := classifier(t, 12, 1)
		j := job(r, &classes{micro: 1, rows: 12, updates: 7}, 7)
		j.Save.Store, j.Eval.Every = store, 4
		values := []float64{1, 2}
		j.Eval.Evaluator = evaluates(func() (float64, error) {
			if !resume {
				stop()
				return 0, ctx.Err()
			}
			v := values[0]
			values = values[1:]
			return v, nil
		})
		start := int64(0)
		if resume {
			c, _, err := store.Latest()
			if err != nil {
				t.Fatal(err)
			}
			if start, err = j.Resume(c); err != nil || start != 4 {
				t.Fatalf("resumed at %d: %v", start, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		_, err = j.Run(ctx, start)
		return err
	}
	if err := part(false); !errors.Is(err, ErrStopped) {
		t.Fatalf("the first part ended with %v", err)
	}
	if err := part(true); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Choose(dir, checkpoint.Best)
	if err != nil || c.Update != 4 {
		t.Errorf("the best checkpoint is %v (%v), want that of update 4", c, err)
	}
}

// Evaluations with the same monitored value are ranked by their loss, before and after a resume.
func TestBestOfEqualsHasTheLowestLoss(t *testing.T) {
	dir := t.TempDir()
	losses := []float64{3, 2, 2.5, math.NaN(), 2} // after updates 2, 4 ...
	n := 0
	for _, until := range []int64{5, 0} {
		store, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := classifier(t, 12, 1)
		j := job(r, &classes{micro: 1, rows: 12, updates: 10}, 10)
		j.Save.Store, j.Eval.Every, j.Until = store, 2, until
		j.Eval.Monitor = Metric{Name: "f1", Higher: true}
		j.Eval.Evaluator = both(func() map[string]float64 {
			n++
			return map[string]float64{"f1": 0, "eval_loss": losses[n-1]}
		})
		start := int64(0)
		if until == 0 {
			c, _, err := store.Latest()
			if err != nil {
				t.Fatal(err)
			}
			if start, err = j.Resume(c); err != nil || start != 5 {
				t.Fatalf("resumed at %d: %v", start, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := j.Run(context.Background(), start); until == 0 && err != nil || until > 0 && !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	c, err := checkpoint.Choose(dir, checkpoint.Best)
	if err != nil || c.Update != 4 || n != len(losses) {
		t.Errorf("of %d evaluations the best checkpoint is %v (%v), want that of update 4", n, c, err)
	}
	if at := checkpoint.Foremost(dir); at != c.Path {
		t.Errorf("the foremost is %s, the chosen %s", at, c.Path)
	}
}

// both is an evaluation that measures several figures.
type both func() map[string]float64

func (e both) Accumulate(context.Context, *engine.Executable, int, Part) (EvalAccumulator, error) {
	m := e()
	return &Records[float64]{metrics: func([]float64) (map[string]float64, error) { return m, nil }}, nil
}

func (both) Count(context.Context, *engine.Executable) (map[string]int, error) {
	return map[string]int{engine.FuncEval: 1}, nil
}
