package checkpoint

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// destroyed is the snapshot of an update with one value that is not finite.
func destroyed(update int64, of func(*Snapshot) []Tensor, value float64) *Snapshot {
	snap := testSnapshot(update)
	x := of(snap)[0]
	binary.LittleEndian.PutUint32(x.Data[4*9:], math.Float32bits(float32(value)))
	return snap
}

func weightsOf(s *Snapshot) []Tensor   { return s.Weights }
func optimizerOf(s *Snapshot) []Tensor { return s.Optimizer }

// A value that is not finite anywhere in a state, or as its evaluation, makes a
// checkpoint bad: the save reports tensor and place, the manifest records it, and
// nothing that loads checkpoints takes it.
func TestBadIsNeverUsed(t *testing.T) {
	unevaluated := testSnapshot(4)
	unevaluated.Problem = "its evaluation is not a number: eval_loss is NaN"
	for want, snap := range map[string]*Snapshot{
		`tensor "embed.weight" of model.safetensors has 1 of 64 values that are NaN or infinite, the first is NaN at index [2 1]`:        destroyed(4, weightsOf, math.NaN()),
		`tensor "m/embed.weight" of optimizer.safetensors has 1 of 64 values that are NaN or infinite, the first is -Inf at index [2 1]`: destroyed(4, optimizerOf, math.Inf(-1)),
		"eval_loss is NaN": unevaluated,
	} {
		dir := t.TempDir()
		var told []EventKind
		s := open(t, dir, Options{KeepLast: 1, KeepBest: -1, OnEvent: func(e Event) { told = append(told, e.Kind) }})
		save(t, s, 3)
		good := s.Status().Last
		told = nil
		err := s.Save(context.Background(), snap)
		var bad *BadError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Fatalf("saved with %v, want it to say %s", err, want)
		}
		if s.Status().Last != good || s.Bad() != bad || !slices.Equal(told, []EventKind{Bad}) {
			t.Errorf("the last good one is %s, events %v", s.Status().Last, told)
		}
		// keep_last 1 keeps the good one, though it is the older.
		if got := updates(t, s.Dir()); !slices.Equal(got, []int64{3, 4}) {
			t.Fatalf("%v are kept", got)
		}
		path := filepath.Join(s.Dir(), Name(4))
		c, rejected, err := Latest(dir)
		if err != nil || c.State.Update != 3 || len(rejected) != 1 || !strings.Contains(rejected[0].Err.Error(), want) {
			t.Fatalf("the latest is %v; rejected %v; %v", c, rejected, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		report, err := Verify(path)
		if err != nil || len(report.Faults) > 0 || !errors.As(report.Err(), &bad) {
			t.Errorf("verified as %+v, %v", report, err)
		}
		for name, err := range map[string]error{"Load": second(Load(path)), "Good": Good(path), "List": problemOf(t, dir, 4)} {
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s gives %v", name, err)
			}
		}
		if cmp, err := Compare(good, path); err != nil || cmp.Equal() {
			t.Errorf("a bad one cannot be compared: %v", err)
		}
	}
}

func second(_ *Checkpoint, err error) error { return err }

func problemOf(t *testing.T, dir string, update int64) error {
	t.Helper()
	list, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Update == update {
			return e.Problem
		}
	}
	t.Fatalf("%d is not listed", update)
	return nil
}

// A bad state does not replace a good one, removes no other life of the run, and is
// removed itself once something newer is saved.
func TestBadReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{KeepLast: 2, KeepBest: -1})
	save(t, s, 3, 4)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir, Options{KeepLast: 2, KeepBest: -1})
	s.ContinuedFrom(2)
	bad := func(u int64) {
		t.Helper()
		if err := s.Save(context.Background(), destroyed(u, weightsOf, math.NaN())); !errors.As(err, new(*BadError)) {
			t.Fatalf("update %d: %v", u, err)
		}
	}
	bad(4)
	bad(5)
	bad(6)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{3, 4, 6}) {
		t.Fatalf("%v are kept", got)
	}
	c, err := Load(filepath.Join(s.Dir(), Name(4)))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// A good one of this life: the other life ends, and so do the bad ones.
	save(t, s, 7)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{7}) {
		t.Fatalf("%v are kept", got)
	}
	bad(8)
	save(t, s, 8)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{7, 8}) {
		t.Fatalf("%v are kept", got)
	}
}

// Manifests of older versions have no record of health: the numbers are looked at.
func TestBadWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{KeepLast: 1, KeepBest: -1})
	save(t, s, 3)
	if err := s.Save(context.Background(), destroyed(4, optimizerOf, math.NaN())); err == nil {
		t.Fatal("saved as good")
	}
	for _, u := range []int64{3, 4} {
		forget(t, filepath.Join(s.Dir(), Name(u)))
	}
	c, rejected, err := Latest(dir)
	if err != nil || c.State.Update != 3 || len(rejected) != 1 || !errors.As(rejected[0].Err, new(*BadError)) {
		t.Fatalf("the latest is %v; rejected %v; %v", c, rejected, err)
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	// Nor do they count where old ones are removed.
	s = open(t, dir, Options{KeepLast: 2, KeepBest: -1})
	save(t, s, 5)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{3, 4, 5}) {
		t.Errorf("%v are kept", got)
	}
}

// forget removes the record of a checkpoint's health.
func forget(t *testing.T, dir string) {
	t.Helper()
	m, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Health = nil
	text, err := m.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ManifestFile), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The best by the metric is never one whose figure is not finite.
func TestNoNumberIsNeverBetter(t *testing.T) {
	nan, inf := Float(math.NaN()), Float(math.Inf(1))
	for _, higher := range []bool{false, true} {
		for _, x := range []Float{nan, inf, -inf} {
			a, b := Metric{Value: x, HigherIsBetter: higher}, Metric{Value: 1, HigherIsBetter: higher}
			if a.Better(b) || !b.Better(a) {
				t.Errorf("%v beats 1 (higher is better: %v)", x, higher)
			}
		}
	}
	var h Health
	if err := json.Unmarshal([]byte(`{}`), &h); err != nil || h.err("x") != nil {
		t.Errorf("an empty record is bad")
	}
}
