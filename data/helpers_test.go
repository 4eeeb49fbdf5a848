package data

import (
	"bytes"
	"compress/gzip"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// writeFiles makes a folder of files and returns it.
func writeFiles(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t testing.TB, text string, opts ...zstd.EOption) string {
	t.Helper()
	z, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// collect reads a stream to its end or first error.
func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for v, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func writeFile(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
