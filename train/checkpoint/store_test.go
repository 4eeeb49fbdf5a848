package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/snug-ml/snug/data/safetensors"
)

func updates(t testing.TB, dir string) []int64 {
	t.Helper()
	list, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var u []int64
	for _, e := range list {
		u = append(u, e.Update)
	}
	slices.Sort(u)
	return u
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	s := open(t, dir, Options{})
	save(t, s, 0, 7, 100_000_000)
	for _, u := range []int64{0, 7, 100_000_000} {
		path := filepath.Join(s.Dir(), stepName(u))
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, c)
		if c.Manifest.ConfigSHA256 == "" || c.Manifest.PlanHash != "plan" || c.Metadata.Created == "" {
			t.Errorf("manifest %+v", c.Manifest)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		report, err := Verify(path)
		if err != nil || report.Err() != nil || len(report.Surplus) != 0 || report.Bytes != c.Manifest.Bytes() {
			t.Errorf("verify: %+v %v", report, err)
		}
	}
	if u, rejected := latest(t, dir); u != 100_000_000 || rejected != nil {
		t.Errorf("latest %d, %v", u, rejected)
	}
	st := s.Status()
	if st.Saves != 3 || st.LastAt != 100_000_000 || st.Writing || st.Err != nil || st.Took <= 0 || st.Bytes <= 0 {
		t.Errorf("status %+v", st)
	}
}

// TestCopyIsTaken: what the caller does after SaveAsync does not matter.
func TestCopyIsTaken(t *testing.T) {
	gate := make(chan struct{})
	dir := t.TempDir()
	s := open(t, dir, Options{fsys: &gatedFS{fsys: osFS{}, gate: gate}})
	snap := testSnapshot(5)
	if err := s.SaveAsync(snap); err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]Tensor{snap.Weights, snap.Optimizer} {
		for i := range list {
			clear(list[i].Data)
			list[i].Shape[0] = 99
			list[i].Name = "gone"
		}
	}
	clear(snap.Files[ConfigFile])
	snap.State.Loader = json.RawMessage("{}")
	snap.Metadata.History["loss"].Value[0] = 77
	close(gate)
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if u, _ := latest(t, dir); u != 5 {
		t.Errorf("latest %d", u)
	}
}

// TestSaveWaitsForTheFormer: none is skipped.
func TestSaveWaitsForTheFormer(t *testing.T) {
	gate := make(chan struct{})
	dir := t.TempDir()
	s := open(t, dir, Options{fsys: &gatedFS{fsys: osFS{}, gate: gate}})
	if err := s.SaveAsync(testSnapshot(5)); err != nil {
		t.Fatal(err)
	}
	second := make(chan error)
	go func() { second <- s.SaveAsync(testSnapshot(6)) }()
	gate <- struct{}{} // the first save can only now make its folder
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	close(gate)
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := updates(t, dir); !slices.Equal(got, []int64{5, 6}) {
		t.Errorf("saved %v", got)
	}
}

// gatedFS blocks the creation of folders whose name ends in .tmp.
type gatedFS struct {
	fsys
	gate chan struct{}
}

func (g *gatedFS) Mkdir(path string) error {
	if strings.HasSuffix(path, tmpSuffix) {
		<-g.gate
	}
	return g.fsys.Mkdir(path)
}

// TestStagingIsReused: after the first save no buffer is made.
func TestStagingIsReused(t *testing.T) {
	const size = 8 << 20
	m := newMemory(1, Tensor{Name: "big", DType: safetensors.U8, Shape: []int{size}})
	snap := testSnapshot(1)
	snap.Weights, snap.Live = append(snap.Weights, m.tensors...), m
	s := open(t, t.TempDir(), Options{})
	if err := s.Reserve(StagingBytes(size)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 3 {
		snap.State.Update++
		if err := s.Save(context.Background(), snap); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 3<<20 {
		t.Errorf("three saves of %d bytes allocated %d", size, got)
	}
}

func TestSnapshotIsChecked(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for want, change := range map[string]func(*Snapshot){
		"without weights":            func(s *Snapshot) { s.Weights = nil },
		"is negative":                func(s *Snapshot) { s.State.Update = -1 },
		"given twice":                func(s *Snapshot) { s.Weights = append(s.Weights, s.Weights[0]) },
		"needs 256 bytes, got 255":   func(s *Snapshot) { s.Optimizer[0].Data = s.Optimizer[0].Data[1:] },
		"not a plain name":           func(s *Snapshot) { s.Files["../x"] = nil },
		"reserved":                   func(s *Snapshot) { s.Files[StateFile] = nil },
		"state.json: json: error":    func(s *Snapshot) { s.State.Loader = json.RawMessage("{") },
		"metadata.json: json: unsup": func(s *Snapshot) { s.Metadata.Model = map[string]any{"f": math.NaN()} },
	} {
		snap := testSnapshot(1)
		change(snap)
		if err := s.SaveAsync(snap); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant it to say %q", err, want)
		}
	}
	if got := updates(t, s.Dir()); got != nil {
		t.Errorf("saved %v", got)
	}
}

func TestNaNCanBeSaved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	snap := testSnapshot(1)
	inf := Float(math.Inf(-1))
	snap.Metadata.Metrics = map[string]Float{"loss": Float(math.NaN()), "x": inf, "y": -inf, "z": 1e-300}
	snap.Metric = &Metric{Name: "eval_loss", Value: Float(math.NaN())}
	snap.Metadata.History.Add("loss", 1, math.NaN())
	if err := s.Save(context.Background(), snap); err != nil {
		t.Fatal(err)
	}
	c, _, err := Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := c.Metadata.Metrics
	if !math.IsNaN(float64(m["loss"])) || m["x"] != inf || m["y"] != -inf || m["z"] != 1e-300 {
		t.Errorf("metrics %v", m)
	}
}

func TestRetention(t *testing.T) {
	metric := func(u int64, v float64) *Snapshot {
		snap := testSnapshot(u)
		snap.Metric = &Metric{Name: "eval_loss", Value: Float(v)}
		return snap
	}
	for _, c := range []struct {
		name string
		opts Options
		do   func(t *testing.T, s *Store)
		want []int64
	}{
		{"by number, not by name or time", Options{KeepLast: 2, KeepBest: -1}, func(t *testing.T, s *Store) {
			save(t, s, 999_999_999, 100, 1_000_000_000)
		}, []int64{999_999_999, 1_000_000_000}},
		{"best stays", Options{KeepLast: 1, KeepBest: 1}, func(t *testing.T, s *Store) {
			for u, v := range []float64{3, 1, math.NaN(), 2, 5} {
				if err := s.Save(context.Background(), metric(int64(u), v)); err != nil {
					t.Fatal(err)
				}
			}
		}, []int64{1, 4}},
		{"highest is best", Options{KeepLast: 1, KeepBest: 2}, func(t *testing.T, s *Store) {
			for u, v := range []float64{3, 9, 8, math.NaN(), 2} {
				snap := metric(int64(u), v)
				snap.Metric.HigherIsBetter = true
				if err := s.Save(context.Background(), snap); err != nil {
					t.Fatal(err)
				}
			}
		}, []int64{1, 2, 4}},
		{"without metric", Options{KeepLast: 1, KeepBest: 1}, func(t *testing.T, s *Store) {
			for u := range int64(4) {
				snap := testSnapshot(u)
				snap.Metric = nil
				if err := s.Save(context.Background(), snap); err != nil {
					t.Fatal(err)
				}
			}
		}, []int64{3}},
		{"damaged ones do not count", Options{KeepLast: 2, KeepBest: -1}, func(t *testing.T, s *Store) {
			save(t, s, 10, 20)
			damage(t, s, 30, 40) // appear from nowhere, as copied in by hand
			save(t, s, 25)
		}, []int64{20, 25, 30, 40}},
		{"damaged and overtaken", Options{KeepLast: 2, KeepBest: -1}, func(t *testing.T, s *Store) {
			save(t, s, 10, 20)
			damage(t, s, 30)
			save(t, s, 40, 50)
		}, []int64{40, 50}},
		{"future that was left", Options{KeepLast: 2, KeepBest: -1}, func(t *testing.T, s *Store) {
			save(t, s, 10, 20, 30)
			s.retained.written = map[string]bool{} // as after a restart
			s.ContinuedFrom(20)
			if got := updates(t, s.Dir()); !slices.Equal(got, []int64{20, 30}) {
				t.Errorf("before the first save: %v", got)
			}
			save(t, s, 25)
		}, []int64{20, 25}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trouble []Event
			c.opts.OnEvent = func(e Event) {
				if e.Kind == Warning {
					trouble = append(trouble, e)
				}
			}
			s := open(t, t.TempDir(), c.opts)
			c.do(t, s)
			if got := updates(t, s.Dir()); !slices.Equal(got, c.want) || trouble != nil {
				t.Errorf("left %v, want %v; trouble %v", got, c.want, trouble)
			}
		})
	}
}

// damage puts checkpoints into the store's folder of which one byte is wrong.
func damage(t *testing.T, s *Store, updates ...int64) {
	t.Helper()
	other := open(t, t.TempDir(), Options{KeepLast: 100})
	if err := other.home.Begin(s.home.ID()); err != nil { // as if this run had saved them
		t.Fatal(err)
	}
	for _, u := range updates {
		save(t, other, u)
		from, to := filepath.Join(other.Dir(), stepName(u)), filepath.Join(s.Dir(), stepName(u))
		weights := filepath.Join(from, WeightsFile)
		data, err := os.ReadFile(weights)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(weights, flip(data, len(data)*8-1), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignFoldersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	names := []string{"notes", "step-", "step-12", "step-00000001.bak", "step-00000002", "step-0000000x", "step--0000001"}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, Folder, name, "inner"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, Folder, "step-00000009"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{KeepLast: 1, Attempts: 2})
	save(t, s, 3, 4, 5)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(s.Dir(), name, "inner")); err != nil {
			t.Error(err)
		}
	}
	u, rejected := latest(t, dir)
	if u != 5 || len(rejected) != 1 || !strings.HasSuffix(rejected[0].Path, "step-00000009") {
		t.Errorf("latest %d, rejected %v", u, rejected)
	}
	if _, _, err := Latest(filepath.Join(dir, "nowhere")); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	err := s.Save(context.Background(), testSnapshot(2))
	if err == nil || !strings.Contains(err.Error(), "step-00000002 exists and is not a checkpoint: move it away") {
		t.Error(err)
	}
}

func TestSaveOverTheSameNumber(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	save(t, s, 10, 20)
	damage(t, s, 30)
	save(t, s, 30, 20, 30)
	if u, rejected := latest(t, dir); u != 30 || rejected != nil {
		t.Errorf("latest %d %v", u, rejected)
	}
	list, err := os.ReadDir(s.Dir())
	if err != nil || len(list) != 3 {
		t.Errorf("%v %v", list, err)
	}
}

func TestPinnedIsNotDeleted(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepLast: 1, KeepBest: -1})
	save(t, s, 1)
	release, err := Pin(filepath.Join(s.Dir(), stepName(1)))
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, 2, 3)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{1, 3}) {
		t.Errorf("with a pin: %v", got)
	}
	release()
	release() // more often than needed does no harm
	save(t, s, 4)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{4}) {
		t.Errorf("without: %v", got)
	}
	if _, err := Pin(filepath.Join(s.Dir(), stepName(1))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pin of a deleted one: %v", err)
	}
}

// TestFailedSaveKeepsRunning: errors are retried, shown, given up, and the next
// save works again.
func TestFailedSaveKeepsRunning(t *testing.T) {
	var mu sync.Mutex
	var events []EventKind
	var waits []time.Duration
	bad := &failingFS{fsys: osFS{}}
	dir := t.TempDir()
	s := open(t, dir, Options{Attempts: 4, fsys: bad, OnEvent: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e.Kind)
		if e.Kind == Retry {
			waits = append(waits, e.Wait)
		}
	}})
	save(t, s, 1)
	bad.set(syscall.ENOSPC)
	err := s.Save(context.Background(), testSnapshot(2))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "update 2 was not saved after 4 attempts") {
		t.Errorf("%v", err)
	}
	st := s.Status()
	if st.Failures != 1 || st.Retries != 4 || st.Writing || !errors.Is(st.Err, syscall.ENOSPC) || st.LastAt != 1 {
		t.Errorf("status %+v", st)
	}
	bad.set(nil)
	if u, _ := latest(t, dir); u != 1 {
		t.Errorf("latest %d", u)
	}
	save(t, s, 3)
	if u, _ := latest(t, dir); u != 3 || s.Status().Err != nil || s.Flush(context.Background()) != nil {
		t.Errorf("latest %d, %+v", u, s.Status())
	}
	if diff := cmp.Diff([]EventKind{Saved, Retry, Retry, Retry, Failed, Saved}, events); diff != "" {
		t.Error(diff)
	}
	for i, w := range waits {
		if hi := time.Second << i; w < hi/2 || w > hi {
			t.Errorf("pause %d is %v, want between %v and %v", i, w, hi/2, hi)
		}
	}
}

// failingFS fails every write while an error is set.
type failingFS struct {
	fsys
	mu  sync.Mutex
	err error
}

func (f *failingFS) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failingFS) Create(path string) (syncWriter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: f.err}
	}
	return f.fsys.Create(path)
}

// TestNewerReplacesWaiting: a snapshot that waits for its next attempt is replaced
// by a newer one.
func TestNewerReplacesWaiting(t *testing.T) {
	bad := &failingFS{fsys: osFS{}}
	bad.set(syscall.EIO)
	gate := make(chan time.Time)
	dir := t.TempDir()
	retry := make(chan struct{}, 9)
	s := open(t, dir, Options{fsys: bad, sleep: func(time.Duration) <-chan time.Time { return gate }, OnEvent: func(e Event) {
		if e.Kind == Retry {
			retry <- struct{}{}
		}
	}})
	if err := s.SaveAsync(testSnapshot(1)); err != nil {
		t.Fatal(err)
	}
	<-retry
	if err := s.SaveAsync(testSnapshot(2)); err != nil {
		t.Fatal(err)
	}
	bad.set(nil)
	gate <- time.Time{}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := updates(t, dir); !slices.Equal(got, []int64{2}) {
		t.Errorf("saved %v", got)
	}
	latest(t, dir)
}

// TestFlushCutsThePause: Flush does not wait for the back-off of a save, and a
// deadline is kept.
func TestFlushCutsThePause(t *testing.T) {
	bad := &failingFS{fsys: osFS{}}
	bad.set(syscall.EIO)
	never := func(time.Duration) <-chan time.Time { return nil }
	s, err := Open(t.TempDir(), Options{fsys: bad, Attempts: 2, sleep: never})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SaveAsync(testSnapshot(1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := s.Flush(ctx); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if err := s.SaveAsync(testSnapshot(2)); err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Flush(done); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if st := s.Status(); st.Writing || st.Failures != 2 {
		t.Errorf("%+v", st)
	}
	if err := s.SaveAsync(testSnapshot(3)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v", err)
	}
}

func TestNoSpaceIsSeenBeforehand(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Attempts: 1, fsys: fullFS{osFS{}}})
	err := s.Save(context.Background(), testSnapshot(1))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "needs 1 MB, 0 MB are free") {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(s.Dir()); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

type fullFS struct{ fsys }

func (fullFS) Free(string) (int64, error) { return 1000, nil }

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, Options{}); err == nil || !strings.Contains(err.Error(), "exists and is not a folder") {
		t.Errorf("run folder is a file: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Folder), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time shows that the lock was given back
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "exists and is not a folder") {
			t.Errorf("checkpoints is a file: %v", err)
		}
	}
	if _, err := Open(t.TempDir(), Options{KeepLast: -1}); err == nil {
		t.Error("KeepLast -1 accepted")
	}
	_, err := Open(t.TempDir(), Options{fsys: readOnlyFS{osFS{}}})
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), Folder) {
		t.Errorf("read-only: %v", err)
	}
	if os.Geteuid() != 0 {
		ro := t.TempDir()
		if err := os.Chmod(ro, 0o555); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(ro, Options{}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), ro) {
			t.Errorf("no permission: %v", err)
		}
	}
}

type readOnlyFS struct{ fsys }

func (readOnlyFS) Mkdir(path string) error {
	return &os.PathError{Op: "mkdir", Path: path, Err: syscall.EROFS}
}

// TestClock: file times and the machine's clock play no role in the order.
func TestClock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{KeepLast: 2, KeepBest: -1})
	save(t, s, 1, 2)
	for i, u := range []int64{2, 1} { // the newest looks the oldest
		when := time.Unix(int64(1e9*i), 0)
		if err := os.Chtimes(filepath.Join(s.Dir(), stepName(u)), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if u, _ := latest(t, dir); u != 2 {
		t.Errorf("latest %d", u)
	}
	future := time.Now().Add(9000 * time.Hour)
	if err := os.Chtimes(filepath.Join(s.Dir(), stepName(1)), future, future); err != nil {
		t.Fatal(err)
	}
	save(t, s, 3)
	if got := updates(t, dir); !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("kept %v", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := History{}
	const n = 1_000_000
	for u := range int64(n) {
		h.Add("loss", u, float64(u))
	}
	s := h["loss"]
	if len(s.Update) > maxHistory || len(s.Update) < maxHistory/2-1 || s.Update[0] != 0 || s.Update[len(s.Update)-1] < n-2*s.Stride {
		t.Fatalf("%d points, from %d to %d", len(s.Update), s.Update[0], s.Update[len(s.Update)-1])
	}
	for i, u := range s.Update {
		if u != int64(i)*s.Stride || float64(s.Value[i]) != float64(u) {
			t.Fatalf("point %d is %d, %v: want equal steps of %d", i, u, s.Value[i], s.Stride)
		}
	}
	// Continued after a reload, it is the curve of the uninterrupted run.
	a, b := History{}, History{}
	for u := range int64(10000) {
		a.Add("x", u, 0)
		if u%1777 == 0 {
			var c History
			if err := json.Unmarshal([]byte(asJSON(t, b)), &c); err != nil {
				t.Fatal(err)
			}
			b = c.Clone()
		}
		b.Add("x", u, 0)
	}
	if asJSON(t, a) != asJSON(t, b) {
		t.Error("an interrupted curve differs")
	}
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	save(t, s, 1)
	other := testSnapshot(1)
	other.State.Update = 2
	other.State.Best = &Metric{Name: "eval_loss", Value: 2}
	other.Weights[0].Data[3] = 0x40 // the first float is larger now
	other.Weights = other.Weights[:2]
	other.Optimizer[1].Shape = []int{64}
	other.Files[ConfigFile] = []byte("model:\n  d_model: 8\n  layers: [1, 2]\ntraining:\n  max_steps: 1\n")
	other.Files["tokenizer.json"] = []byte("{ }")
	if err := s.Save(context.Background(), other); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(s.Dir(), stepName(1)), filepath.Join(s.Dir(), stepName(2))
	same, err := Compare(a, a)
	if err != nil || !same.Equal() || len(same.Tensors) != 5 {
		t.Fatalf("with itself: %+v %v", same, err)
	}
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if c.Equal() {
		t.Error("equal")
	}
	if diff := cmp.Diff([]Difference{{"best.name", "-", "eval_loss"}, {"best.value", "-", "2"}, {"update", "1", "2"}}, c.State); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Difference{{"model.d_model", "4", "8"}, {"model.layers[0]", "-", "1"}, {"model.layers[1]", "-", "2"}}, c.Config); diff != "" {
		t.Error(diff)
	}
	if len(c.Files) != 1 || c.Files[0].Field != "tokenizer.json" {
		t.Error(c.Files)
	}
	var got []string
	for _, d := range c.Tensors {
		got = append(got, fmt.Sprintf("%s %s: %s %d/%d", d.File, d.Name, d.Note, d.Changed, d.Elements))
	}
	if diff := cmp.Diff([]string{
		"model.safetensors embed.weight: differs 1/64",
		"model.safetensors mask: only in A 0/0",
		"model.safetensors norm.bias: same 0/4",
		"optimizer.safetensors m/embed.weight: same 0/64",
		"optimizer.safetensors v/embed.weight: F32 [16 4] and F32 [64] 0/0",
	}, got); diff != "" {
		t.Error(diff)
	}
	if d := c.Tensors[0]; d.MaxAbs <= 1 || d.RelL2 <= 0 {
		t.Errorf("%+v", d)
	}
}

// TestCompareWithZero: a difference relative to a tensor of zeros is infinite, which JSON numbers are not.
func TestCompareWithZero(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	zero := testSnapshot(1)
	clear(zero.Weights[0].Data)
	if err := s.Save(context.Background(), zero); err != nil {
		t.Fatal(err)
	}
	save(t, s, 2)
	c, err := Compare(filepath.Join(s.Dir(), stepName(1)), filepath.Join(s.Dir(), stepName(2)))
	if err != nil {
		t.Fatal(err)
	}
	if text := asJSON(t, c); !strings.Contains(text, `"relative":"+Inf"`) {
		t.Error(text)
	}
}
