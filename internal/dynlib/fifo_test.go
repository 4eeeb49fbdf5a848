//go:build (linux || darwin) && (amd64 || arm64) && !nocuda

package dynlib

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/snug-ml/snug/internal/regular"
)

// What is no regular file is no library: the loader would wait at a FIFO for ever.
func TestLoadFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Skip(err)
	}
	for _, load := range []func(string) (uintptr, error){Load, LoadGlobal} {
		if _, err := load(path); !errors.Is(err, regular.ErrKind) {
			t.Errorf("got %v, want that it is no regular file", err)
		}
	}
}
