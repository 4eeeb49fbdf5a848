//go:build unix

package regular

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// odd makes one of each kind of file that is not regular, by name.
func odd(t *testing.T) map[string]string {
	t.Helper()
	dir, err := os.MkdirTemp("", "odd") // short: names of sockets have a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pipe, link, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "s")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return map[string]string{pipe: "a pipe", link: "a pipe", socket: "a socket", dir: "a folder", "/dev/zero": "a device", "/dev/full": "a device"}
}

// Only regular files are opened, and the refusal does not wait: with a plain open the
// pipe would block this test forever.
func TestOnlyRegularFiles(t *testing.T) {
	for path, kind := range odd(t) {
		root, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for name, open := range map[string]func() error{
			"Open":   func() error { _, err := Open(path); return err },
			"Create": func() error { _, err := Create(path); return err },
			"Stat":   func() error { _, err := Stat(path); return err },
			"Read":   func() error { _, err := Read(path, 100); return err },
			"ReadIn": func() error { _, err := ReadIn(root, filepath.Base(path), 100); return err },
		} {
			err := open()
			if name == "ReadIn" && err != nil && (errors.Is(err, syscall.ENXIO) || strings.Contains(err.Error(), "escapes")) {
				continue // a socket or a link out of the folder: refused by the system itself
			}
			if !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s of %s (%s): %v", name, path, kind, err)
			}
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, n := range []int{0, 1, 511, 512, 513, 100_000} {
		want := bytes.Repeat([]byte{'x'}, n)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path, int64(n)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
		if n == 0 {
			continue
		}
		if _, err := Read(path, int64(n)-1); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%d bytes, one more than allowed: %v", n, err)
		}
	}
	if _, err := Read(path+"none", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// A file that takes no room on the disk may claim any size.
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip(err)
	}
	if _, err := Read(path, Log); err == nil {
		t.Error("a terabyte was read")
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, text := range []string{"longer", "short", ""} {
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
}
