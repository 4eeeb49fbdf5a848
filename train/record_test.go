package train

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A resumed run drops the lines behind its checkpoint, and a line torn by a
// crash, and then writes them again.
func TestRecorderContinues(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, MetricsFile)
	write := func(keep int64, updates ...int64) {
		t.Helper()
		r, err := NewRecorder(dir, keep)
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
	if got := strings.Join(updates, " "); got != "1 2 3 4 5" {
		t.Errorf("updates logged: %s", got)
	}
	if !strings.Contains(string(raw), `"grad_norm":"NaN"`) {
		t.Error("a NaN is not in the log")
	}
}
