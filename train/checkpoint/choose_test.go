package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// measured saves checkpoints of which some were the best at their time.
func measured(t *testing.T, values map[int64]float64, updates ...int64) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, Options{KeepLast: 9, KeepBest: 9})
	var best *Metric
	at := int64(0)
	for _, u := range updates {
		snap := testSnapshot(u)
		snap.Metric = nil
		if v, ok := values[u]; ok {
			best, at = &Metric{Name: "f1", Value: Float(v), HigherIsBetter: true}, u
			snap.Metric = best
		}
		snap.State.Best, snap.State.BestAt = best, at
		if err := s.Save(context.Background(), snap); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestChoose(t *testing.T) {
	dir := measured(t, map[int64]float64{10: 0.5, 20: 0.7}, 10, 20, 30)
	at := func(u int64) string { return At(dir, u) }
	for _, c := range []struct {
		path, want string
		update     int64
		why        string
	}{
		{dir, "", 20, "the best, f1 0.7"},
		{dir, "best", 20, "the best"},
		{dir, "last", 30, "the last"},
		{dir, "10", 10, "as named"},
		{dir, "step-10", 10, "as named"},
		{dir, "step-00000010", 10, "as named"},
		{dir, at(10), 10, "as named"},
		{at(30), "", 30, "as named"},
		{filepath.Join(dir, Folder), "", 20, "the best"},
	} {
		got, err := Choose(c.path, c.want)
		if err != nil || got.Update != c.update || got.Path != at(c.update) || !strings.HasPrefix(got.Why, c.why) {
			t.Errorf("Choose(%s, %q) is %v, %v; want update %d, %s", c.path, c.want, got, err, c.update, c.why)
		}
	}
	for _, c := range []struct{ path, want, says string }{
		{dir, "11", "only step-00000010, step-00000020, step-00000030"},
		{dir, "newest", "want best, last"},
		{dir, "-1", "want best, last"},
		{at(10), "best", "is a checkpoint already"},
	} {
		var wish *WantError
		if _, err := Choose(c.path, c.want); !errors.As(err, &wish) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("Choose(%s, %q): %v; want %q", c.path, c.want, err, c.says)
		}
	}
	if _, err := Choose(filepath.Join(dir, "none"), ""); !errors.Is(err, ErrNone) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := Choose(filepath.Join(at(10), ManifestFile), ""); err == nil || !strings.Contains(err.Error(), "a file: want the folder of a run") {
		t.Errorf("a file: %v", err)
	}
}

// A damaged best one is skipped for the next best and reported; a damaged one that
// was named is an error.
func TestChoosePassesOverDamage(t *testing.T) {
	dir := measured(t, map[int64]float64{10: 0.5, 20: 0.7}, 10, 20, 30)
	weights := filepath.Join(At(dir, 20), WeightsFile)
	raw, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(weights, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := Choose(dir, "")
	if err != nil || got.Update != 10 || len(got.Rejected) != 1 || !strings.Contains(got.Why, "update 20 had 0.7") {
		t.Errorf("chose %+v, %v; want update 10, with update 20 rejected and told", got, err)
	}
	var damage *DamagedError
	if _, err := Choose(dir, "20"); !errors.As(err, &damage) {
		t.Errorf("the damaged one by its number: %v", err)
	}
	if _, err := Choose(At(dir, 20), ""); !errors.As(err, &damage) {
		t.Errorf("the damaged one by its folder: %v", err)
	}
}

// Where the best was not kept the last is used, and the reason says so.
func TestChooseWithoutTheBest(t *testing.T) {
	dir := measured(t, map[int64]float64{20: 0.7}, 10, 20, 30)
	if err := os.RemoveAll(At(dir, 20)); err != nil {
		t.Fatal(err)
	}
	got, err := Choose(dir, "")
	if err != nil || got.Update != 30 || got.Why != "the last; the best, of update 20, is gone" {
		t.Errorf("chose %+v, %v", got, err)
	}
}

func TestRunOf(t *testing.T) {
	for path, want := range map[string]string{
		"runs/a/checkpoints/step-00000001":  "runs/a",
		"runs/a/checkpoints/step-00000001/": "runs/a",
		"copy/step-00000001":                "copy",
		At("r", 7):                          "r",
	} {
		if got := RunOf(path); got != want {
			t.Errorf("RunOf(%s) is %s, want %s", path, got, want)
		}
	}
	if got := Evaluated(At("r", 7)); got != "r/eval/step-00000007" {
		t.Errorf("Evaluated is %s", got)
	}
}
