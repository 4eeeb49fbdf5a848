// Package durable writes files that survive a crash, and folders that appear complete or
// not at all. What it writes goes through a handle on the folder, so that it stays with
// the folder when that is moved, and never follows a symbolic link that someone put in
// place of a file. Until it is complete it has a name that no other process uses (see
// [Temporary]), and what killed processes left under such names is removed by the next
// process that writes there.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/internal/regular"
)

// Replace writes a file so that a crash, power loss included, leaves the old one or the
// new one, never a part: under another name first, synced, then renamed, and the folder
// synced. Once it returns nil, the new one is permanent. Of several processes that
// replace a file at the same time, one wins.
func Replace(path string, content []byte) error {
	return Write(path, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// Overwrite is Write of a file that a user named: of a link, the file that it leads to is
// replaced.
func Overwrite(path string, write func(f *os.File) error) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	return Write(path, write)
}

// ReplaceIn is Replace in an open folder.
func ReplaceIn(root *os.Root, name string, content []byte) error {
	return WriteIn(root, name, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// Write is Replace with what write writes to the new file.
func Write(path string, write func(f *os.File) error) (err error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return WriteIn(root, filepath.Base(path), write)
}

// WriteIn is Write in an open folder.
func WriteIn(root *os.Root, name string, write func(f *os.File) error) (err error) {
	defer func() { err = Named(root, err) }()
	if err := regular.Replaceable(root, name); err != nil {
		return err
	}
	dir := filepath.Dir(name)
	SweepIn(root, dir)
	tmp := Temporary(name)
	f, err := root.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	return SyncIn(root, dir)
}

// CreateIn makes a new file in place of any of that name, without writing to the old one:
// a symbolic link is removed, and its target stays as it is.
func CreateIn(root *os.Root, name string) (_ *os.File, err error) {
	defer func() { err = Named(root, err) }()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// Named puts the folder's own name before the names in an error of its handle, which are
// relative to it.
func Named(root *os.Root, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) && !filepath.IsAbs(p.Path) && !within(root, p.Path) {
		p.Path = filepath.Join(root.Name(), p.Path)
	}
	if l := (*os.LinkError)(nil); errors.As(err, &l) && !filepath.IsAbs(l.Old) && !within(root, l.Old) {
		l.Old, l.New = filepath.Join(root.Name(), l.Old), filepath.Join(root.Name(), l.New)
	}
	return err
}

// within reports whether a path begins with the folder's name.
func within(root *os.Root, path string) bool {
	rel, err := filepath.Rel(root.Name(), path)
	return err == nil && filepath.IsLocal(rel)
}
