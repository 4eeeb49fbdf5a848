package tensorboard

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/rundir"
)

var update = flag.Bool("update", false, "write the fixture anew; read it with tools/tensorboard/read.py then")

var at = time.Unix(1795348800, 250_000_000)

// session writes a session of a run: some updates, and an evaluation at the last.
func session(t *testing.T, path string, now time.Time, from, to int64) {
	t.Helper()
	dir, err := rundir.Look(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(dir, now, from)
	if err != nil {
		t.Fatal(err)
	}
	for u := from + 1; u <= to; u++ {
		err = errors.Join(err, w.Add(now.Add(time.Duration(u)*time.Second), u, []Scalar{{"train/loss", 10 / float64(u)}, {"train/learning_rate", 1e-3}}))
	}
	err = errors.Join(err, w.Add(now.Add(time.Minute), to, []Scalar{{"eval/eval_loss", 2.5}, {"eval/größe", math.NaN()}}))
	if err := errors.Join(err, w.Close(), dir.Close()); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, Folder, prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The bytes are those of the fixture, which TensorBoard's own reader has read: see
// tools/tensorboard/read.py.
func TestFixture(t *testing.T) {
	dir := t.TempDir()
	session(t, dir, at, 0, 5)
	session(t, dir, at.Add(-time.Hour), 3, 4) // by a clock that went back
	list := files(t, dir)
	if len(list) != 2 {
		t.Fatalf("%d files, want 2", len(list))
	}
	for i, name := range []string{"first", "resumed"} {
		got, err := os.ReadFile(list[i])
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", prefix+name)
		if *update {
			if err := os.WriteFile(path, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes that are not the %d of the fixture", name, len(got), len(want))
		}
	}
}

// A new run in the folder removes the files of the previous one, and leaves other files.
func TestNewRun(t *testing.T) {
	dir := t.TempDir()
	session(t, dir, at, 0, 5)
	other := filepath.Join(dir, Folder, "notes.txt")
	if err := os.WriteFile(other, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	session(t, dir, at.Add(time.Hour), 0, 2)
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d files, want 1", n)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if n := min(len(p), f.left); n < len(p) {
		f.left = 0
		return n, fs.ErrInvalid
	}
	f.left -= len(p)
	return len(p), nil
}

func (*full) Close() error { return nil }

// After a truncated record nothing is written: a reader would take it for damage.
func TestFull(t *testing.T) {
	f := &full{left: 20}
	w := &Writer{f: f}
	if err := w.Add(at, 1, []Scalar{{"a", 1}}); !errors.Is(err, fs.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	f.left = 1000
	if err := w.Add(at, 2, nil); !errors.Is(err, errTorn) || f.left != 1000 {
		t.Errorf("%v, %d bytes left", err, f.left)
	}
}
