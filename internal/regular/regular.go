// Package regular opens what must be a regular file. Opening a named pipe waits for a
// writer, a device may have no end, and a folder fails only when it is read; here all of
// them are refused at once, saying what they are.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Text bounds files of settings, indexes and results, which are read whole and
// have no bound of their own.
const Text = 64 << 20

// Log bounds metrics.jsonl, which grows with a run: five million lines.
const Log = 1 << 30

// ErrKind is wrapped by errors about anything other than a regular file.
var ErrKind = errors.New("not a regular file")

// Open opens a regular file, or a link to one, for reading.
func Open(path string) (*os.File, error) {
	// Opening some devices does something (a tape rewinds, a watchdog starts), so the
	// name is checked first. What it leads to can change meanwhile: the open file is what
	// counts, and opening does not wait.
	if _, err := Stat(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	return checked(f, path)
}

// Create makes a file, or truncates an existing regular file.
func Create(path string) (*os.File, error) {
	if _, err := Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|noWait, 0o666)
	if err != nil {
		return nil, err
	}
	if f, err = checked(f, path); err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checked(f *os.File, path string) (*os.File, error) {
	st, err := f.Stat()
	if err == nil {
		err = check(path, st)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Stat is os.Stat of what must be a regular file.
func Stat(path string) (fs.FileInfo, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return st, check(path, st)
}

// Read reads a regular file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	text, err := readAll(f, path, limit)
	return text, errors.Join(err, f.Close())
}

// ReadIn is Read of a file below root.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	if f, err = checked(f, name); err != nil {
		return nil, err
	}
	text, err := readAll(f, name, limit)
	return text, errors.Join(err, f.Close())
}

// OpenIn opens a file of root for writing in place: not through a link, which may lead
// elsewhere. With os.O_CREATE it is created if missing.
func OpenIn(root *os.Root, name string, flag int) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
		f, err := root.OpenFile(name, flag|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		st, err = root.Lstat(name) // someone else just created it
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if err := check(path, st); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, flag&^os.O_CREATE|noWait, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(st, now) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", path), err, f.Close())
	}
	return f, nil
}

// Replaceable rejects a name of root where a new file must not take the place of what is there:
// a folder, a pipe, a socket, a device, or a link to one of the last three. A link to a file
// may be replaced, its target stays as it is.
func Replaceable(root *os.Root, name string) error {
	path := filepath.Join(root.Name(), name)
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		if st, err = os.Stat(path); err != nil || st.IsDir() {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return check(path, st)
}

// ReadAll reads an open file of at most limit bytes.
func ReadAll(f *os.File, limit int64) ([]byte, error) { return readAll(f, f.Name(), limit) }

func readAll(f *os.File, path string, limit int64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has %d bytes; at most %d are read", st.Size(), limit)}
	}
	// The size is a hint: a file may grow, and those of /proc say 0.
	text := make([]byte, 0, st.Size()+512)
	for {
		n, err := f.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case err == io.EOF:
			return text, nil
		case err != nil:
			return nil, err
		case int64(len(text)) > limit:
			return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it grows; at most %d bytes are read", limit)}
		case len(text) == cap(text):
			text = append(text, 0)[:len(text)]
		}
	}
}

func check(path string, st fs.FileInfo) error {
	if st.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w, but %s", ErrKind, Kind(st.Mode()))}
}

// Kind is what a file of a mode is, in words.
func Kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else (" + m.Type().String() + ")"
}
