package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// A resumed run drops the lines after its checkpoint, and a line torn by a
// crash, and then writes them again.
func TestRecorderContinues(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, MetricsFile)
	run, err := rundir.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Close() }() // nothing to lose
	if err := run.Begin(rundir.NewID()); err != nil {
		t.Fatal(err)
	}
	write := func(keep int64, updates ...int64) {
		t.Helper()
		r, err := NewRecorder(run, keep, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range updates {
			if err := r.Record(Step{Update: u, Log: true, Loss: float64(u), GradNorm: math.NaN(), Took: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 1, 2, 3, 4)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"event":"update","update":2,"lo`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(2, 3, 4, 5)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var updates []string
	for line := range strings.Lines(string(raw)) {
		_, n, ok := strings.Cut(line, `"update":`)
		if !ok || !strings.HasSuffix(line, "}\n") {
			t.Errorf("line %q", line)
		}
		updates = append(updates, n[:strings.IndexByte(n, ',')])
	}
	if got := strings.Join(updates, " "); got != "0 1 2 3 4 5" { // 0 is the head's
		t.Errorf("updates logged: %s", got)
	}
	if !strings.Contains(string(raw), `"grad_norm":"NaN"`) {
		t.Error("a NaN is not in the log")
	}
	// The lines of another run are not continued as this one's.
	id := rundir.NewID()
	if err := run.Begin(id); err != nil {
		t.Fatal(err)
	}
	write(2, 3)
	write(3, 4)
	if err := run.Begin(rundir.NewID()); err != nil {
		t.Fatal(err)
	}
	write(4, 5)
	if raw, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), `"event":"update"`); n != 1 || strings.Contains(string(raw), id) || !strings.HasPrefix(string(raw), `{"event":"run","update":0,"run":"`+run.ID()+`"`) {
		t.Errorf("after another run:\n%s", raw)
	}
}

// A run that stopped before an evaluation repeats it when it is resumed once more, and logs it once.
func TestRecorderRepeatsAnEvaluation(t *testing.T) {
	dir := t.TempDir()
	run, err := rundir.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Close() }() // nothing to lose
	if err := run.Begin(rundir.NewID()); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		evaluated bool // after update 7, according to the checkpoint
		again     bool
		evals     int
	}{{false, true, 1}, {false, true, 1}, {true, false, 1}, {false, false, 0}} {
		r, err := NewRecorder(run, 7, c.evaluated)
		if err != nil {
			t.Fatal(err)
		}
		if c.again {
			err = r.Record(Evaluated{Update: 7, Metrics: map[string]float64{"eval_loss": 1}})
		}
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, MetricsFile))
		if n := strings.Count(string(raw), `"event":"eval"`); err != nil || n != c.evals {
			t.Errorf("resumed %d times: %v, %d evaluations, want %d:\n%s", i, err, n, c.evals, raw)
		}
	}
}

// The log is never written through anything but a regular file.
func TestRecorderRefusesALink(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := errors.Join(os.WriteFile(outside, []byte("text"), 0o600), os.Symlink(outside, filepath.Join(dir, MetricsFile))); err != nil {
		t.Skip(err)
	}
	run, err := rundir.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Close() }() // nothing to lose
	if _, err := NewRecorder(run, 0, false); err == nil || !strings.Contains(err.Error(), "not a regular file, but a symbolic link") {
		t.Error(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "text" {
		t.Errorf("what the link leads to is %q %v", text, err)
	}
}

// disk is a log on a disk that power may be cut from: only what was synced is
// on it for sure.
type disk struct {
	mu              sync.Mutex
	written, synced strings.Builder
	fail            error
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written.Write(p)
}

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		d.synced.Reset()
		d.synced.WriteString(d.written.String())
	}
	return d.fail
}

func (d *disk) Close() error { return nil }

// holds reports whether the line of an update is on the disk.
func (d *disk) holds(update int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.synced.String(), fmt.Sprintf(`{"event":"update","update":%d,`, update))
}

// When a checkpoint gets its name, the metrics that led to it are on the disk;
// where they cannot be, the weights are saved anyway and it is reported.
func TestMetricsAreDurableBeforeTheCheckpoint(t *testing.T) {
	for _, fail := range []error{nil, errors.New("no such device")} {
		log := &disk{fail: fail}
		rec := &Recorder{f: log}
		dir := t.TempDir()
		var saved, troubled []int64
		store, err := checkpoint.Open(dir, checkpoint.Options{
			KeepLast: 9,
			SyncLog: func() error {
				err := rec.Sync()
				list, e := os.ReadDir(filepath.Join(dir, checkpoint.Folder))
				if e != nil {
					t.Error(e)
				}
				if len(list) != len(saved) {
					t.Errorf("%d checkpoints are there before the log is synced, %d are saved", len(list), len(saved))
				}
				return err
			},
			OnEvent: func(e checkpoint.Event) {
				switch e.Kind {
				case checkpoint.Saved:
					saved = append(saved, e.Update)
					if log.holds(e.Update) != (fail == nil) {
						t.Errorf("update %d is saved, its metrics are on the disk: %v", e.Update, log.holds(e.Update))
					}
				case checkpoint.Warning:
					troubled = append(troubled, e.Update)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := classifier(t, 12, 1)
		j := job(r, &classes{micro: 1, rows: 12, updates: 6}, 6)
		j.Save.Store, j.Save.Every, j.LogEvery = store, 2, 1
		j.OnEvent = func(e Event) {
			if err := rec.Record(e); err != nil {
				t.Error(err)
			}
			if s, ok := e.(Step); ok && s.Update%j.Save.Every == 1 { // none is skipped because the last is still written
				if err := store.Flush(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := j.Run(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		want := "[]"
		if fail != nil {
			want = "[2 4 6]"
		}
		if fmt.Sprint(saved) != "[2 4 6]" || fmt.Sprint(troubled) != want {
			t.Errorf("saved %v, told trouble at %v, want [2 4 6] and %s", saved, troubled, want)
		}
	}
}
