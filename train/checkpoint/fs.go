package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/internal/durable"
)

// fsys is every way in which this package changes a disk. Tests put one in
// between that fails or stops at a chosen operation; reading needs none.
type fsys interface {
	Mkdir(path string) error
	Create(path string) (syncWriter, error)
	Rename(from, to string) error
	Remove(path string) error // a file or an empty folder
	SyncDir(path string) error
	Free(path string) (int64, error) // bytes that may still be written
}

type syncWriter interface {
	io.Writer
	Sync() error
	Close() error
}

type osFS struct{}

func (osFS) Mkdir(path string) error      { return os.Mkdir(path, 0o777) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(path string) error     { return os.Remove(path) }

func (osFS) Create(path string) (syncWriter, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

func (osFS) SyncDir(path string) error       { return durable.SyncDir(path) }
func (osFS) Free(path string) (int64, error) { return freeBytes(path) }

// handleFS changes a folder through a handle on it: a path below one of the names
// that the folder has had goes there, whatever the path leads to now.
type handleFS struct {
	root  *os.Root
	names func() []string
}

// rel is a path below the folder.
func (h handleFS) rel(path string) (string, error) {
	for _, name := range h.names() {
		if rel, err := filepath.Rel(name, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("is not in the folder of checkpoints")}
}

// do calls functions on names below the handle.
func (h handleFS) do(work func(rel ...string) error, paths ...string) error {
	var rels []string
	for _, path := range paths {
		rel, err := h.rel(path)
		if err != nil {
			return err
		}
		rels = append(rels, rel)
	}
	return durable.Named(h.root, work(rels...))
}

func (h handleFS) Mkdir(path string) error {
	return h.do(func(rel ...string) error { return h.root.Mkdir(rel[0], 0o777) }, path)
}

func (h handleFS) Rename(from, to string) error {
	return h.do(func(rel ...string) error { return h.root.Rename(rel[0], rel[1]) }, from, to)
}

func (h handleFS) Remove(path string) error {
	return h.do(func(rel ...string) error { return h.root.Remove(rel[0]) }, path)
}

func (h handleFS) Create(path string) (f syncWriter, err error) {
	err = h.do(func(rel ...string) (err error) {
		f, err = h.root.OpenFile(rel[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		return err
	}, path)
	return f, err
}

func (h handleFS) SyncDir(path string) error {
	return h.do(func(rel ...string) error { return durable.SyncIn(h.root, rel[0]) }, path)
}

func (h handleFS) Free(path string) (int64, error) { return freeBytes(path) }

// mkdirAll makes a folder and its parents, each one durable.
func mkdirAll(fsys fsys, path string) error {
	st, err := os.Stat(path)
	if err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: errors.New("exists and is not a folder")}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := mkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// removeTree deletes a folder of plain files, the manifest first, so that what
// is left of an interrupted deletion cannot be taken for a checkpoint. A path
// that does not exist is fine.
// For a symbolic link only the link is removed.
func removeTree(fsys fsys, dir string) error {
	if st, err := os.Lstat(dir); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return fsys.Remove(dir)
	}
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, ManifestFile)); err == nil {
		if err := fsys.Remove(filepath.Join(dir, ManifestFile)); err != nil {
			return err
		}
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Name() == ManifestFile:
		case e.IsDir():
			if err := removeTree(fsys, path); err != nil {
				return err
			}
		default:
			if err := fsys.Remove(path); err != nil {
				return err
			}
		}
	}
	return fsys.Remove(dir)
}
