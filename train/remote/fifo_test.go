//go:build linux || darwin

package remote

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A FIFO in the place of the folder, or of an object, is refused at once and for good.
func TestFileRemoteOfFIFO(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error) {
		t.Helper()
		var final *PermanentError
		if !errors.As(err, &final) {
			t.Errorf("%s: got %v, want a permanent error", what, err)
		}
	}
	for _, name := range []string{"fifo", "file"} {
		r := &fileRemote{filepath.Join(dir, name)}
		_, err := r.List(t.Context(), "")
		check("a list in a "+name, err)
		_, err = r.Stat(t.Context(), "key")
		check("a look into a "+name, err)
		text := strings.NewReader("x")
		err = r.Put(t.Context(), "key", io.NewSectionReader(text, 0, 1), 1, "", PutOptions{})
		check("a write into a "+name, err)
	}
	_, err := (&fileRemote{dir}).Get(t.Context(), "fifo", 0)
	check("an object that is a FIFO", err)
}
