package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Stage makes an empty folder next to dir, to be filled and then put in its place
// by [Swap] or [Place]. The parent is made if it is missing.
func Stage(dir string) (string, error) {
	parent, base := filepath.Dir(dir), filepath.Base(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", err
	}
	sweep(parent)
	tmp, err := os.MkdirTemp(parent, prefix(base)+"*")
	if err != nil {
		return "", err
	}
	return tmp, os.Chmod(tmp, 0o755)
}

// Swap puts a folder that [Stage] made in the place of dir, whatever is there, once all
// of its contents are on disk. Files of the old folder that are open stay readable.
func Swap(tmp, dir string) error {
	if err := syncAll(tmp); err != nil {
		return err
	}
	old := tmp + ".old"
	err := os.Rename(dir, old)
	moved := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if moved {
			err = errors.Join(err, os.Rename(old, dir))
		}
		return err
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// Place is Swap for when nothing is to be replaced: dir must be absent or empty.
func Place(tmp, dir string) error {
	if err := syncAll(tmp); err != nil {
		return err
	}
	// Unlike rename(2), os.Rename does not replace a folder, even an empty one.
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		if err := os.Remove(dir); err != nil { // it is not empty
			return err
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(dir))
}

// Folder makes a complete folder appear in place of dir, containing what write puts into
// the folder that it is passed.
func Folder(dir string, write func(tmp string) error) error {
	tmp, err := Stage(dir)
	if err != nil {
		return err
	}
	if err = write(tmp); err == nil {
		err = Swap(tmp, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// syncAll makes everything in a folder durable.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, SyncDir(path))
		}
		return SyncDir(path)
	})
}

// Scratch makes a folder among the system's temporary ones, for this user only; the
// caller removes it.
func Scratch(name string) (string, error) {
	parent := os.TempDir()
	sweep(parent)
	dir, err := os.MkdirTemp(parent, prefix(name)+"*")
	if err != nil {
		return "", fmt.Errorf("no temporary folder in %s, which TMPDIR chooses: %w", parent, err)
	}
	return dir, nil
}

// Temporary returns a name next to name that no one else uses, for a file that will be
// renamed to name.
func Temporary(name string) string {
	return filepath.Join(filepath.Dir(name), fmt.Sprintf("%s%x", prefix(filepath.Base(name)), rand.Uint64()))
}

// IsTemporary reports whether a path has such a name.
func IsTemporary(path string) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(base, ".") && strings.Contains(base, mark)
}

const mark = ".snug-"

// prefix begins the name of what this process makes: hidden, with its final name, the
// host and the process, so that leftovers can be recognized.
func prefix(base string) string { return fmt.Sprintf(".%s%s%d-", base, hostMark(), os.Getpid()) }

func hostMark() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return mark + strings.ReplaceAll(host, string(filepath.Separator), "_") + "-"
}

// sweep removes what dead processes of this host left. It may fail: leftovers take
// space but do no other harm.
func sweep(parent string) {
	if root, err := os.OpenRoot(parent); err == nil {
		SweepIn(root, ".")
		_ = root.Close()
	}
}

// SweepIn sweeps a folder in root. Every writer here calls it first for the folder that
// it writes to.
func SweepIn(root *os.Root, dir string) {
	entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(dir))
	if err != nil {
		return
	}
	here := hostMark()
	for _, e := range entries {
		_, rest, ok := strings.Cut(e.Name(), here)
		var pid int
		if !ok || !strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d-", &pid); err == nil && !alive(pid) {
			_ = root.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
