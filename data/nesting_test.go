package data

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// grown returns what f allocates, in bytes.
func grown(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Small files that would become large are refused, saying what to check, and cost little.
func TestRecordsThatGrow(t *testing.T) {
	deep := strings.Repeat("[", 1<<20)
	wide := strings.Repeat(",", 32<<20)
	for name, c := range map[string]struct{ text, want string }{
		"wide.csv":         {"text\n" + wide, "more than 65536 columns"},
		"quotes.csv":       {`"te,xt"` + wide, "more than 65536 columns"},
		"wide.tsv":         {strings.ReplaceAll(wide, ",", "\t"), "more than 65536 columns"},
		"deep.jsonl":       {`{"text": "a", "x": ` + deep, "exceeded max depth"},
		"deep.json":        {`[{"text": "a", "x": ` + deep, "exceeded max depth"},
		"deepobject.jsonl": {strings.Repeat(`{"text":`, 1<<18), "exceeded max depth"},
	} {
		path := filepath.Join(t.TempDir(), name+".gz")
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write([]byte(c.text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		took := grown(func() {
			var f *Files
			if f, err = OpenFiles([]string{path}, Options{}); err != nil {
				return
			}
			for _, e := range f.Records() {
				if err = e; err != nil {
					return
				}
			}
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if took > 256<<20 {
			t.Errorf("%s: %d MiB are allocated for a file of %d bytes", name, took>>20, packed.Len())
		}
	}
}

// A row with many separators within quotes, and one with as many columns as allowed, are
// ordinary rows.
func TestManyColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	text := "\"" + strings.Repeat("a,", 1<<17) + "\"" + strings.Repeat(",b", maxColumns-1) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFiles([]string{path}, Options{NoHeader: true})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range f.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.Text("1"); err != nil || len(s) != 1<<18 {
			t.Errorf("%d bytes, %v", len(s), err)
		}
		if s, err := r.Text("65536"); err != nil || s != "b" {
			t.Errorf("%q, %v", s, err)
		}
	}
}
