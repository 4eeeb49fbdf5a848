package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Folder is a folder with a file in it that names others: an index, a manifest. The
// author of that file may not have a right to everything here, so the named files are
// opened only if they are in the folder, both by name and by where their links lead.
type Folder struct {
	dir    string
	bounds string // links must not lead out of it
}

// ErrOutside is wrapped by errors about files outside their folder.
var ErrOutside = errors.New("leads out of the folder")

// commit is the name of a folder with the files of a commit in the cache of the
// hub: all of them are links into the folder of the repository.
var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// NewFolder returns the folder dir, which must exist.
func NewFolder(dir string) (*Folder, error) {
	bounds, err := filepath.Abs(dir)
	if err == nil {
		bounds, err = filepath.EvalSymlinks(bounds)
	}
	if err != nil {
		return nil, err
	}
	for at := bounds; at != filepath.Dir(at); at = filepath.Dir(at) {
		up := filepath.Dir(at)
		if st, err := os.Lstat(filepath.Join(filepath.Dir(up), "blobs")); commit.MatchString(filepath.Base(at)) && filepath.Base(up) == "snapshots" && err == nil && st.IsDir() {
			bounds = filepath.Dir(up)
			break
		}
	}
	return &Folder{dir, bounds}, nil
}

// Path returns the path of a file whose name uses slashes.
func (f *Folder) Path(name string) (string, error) {
	local := filepath.FromSlash(name)
	if local == "." || !filepath.IsLocal(local) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q %w %s: want the name of a file in it", name, ErrOutside, f.dir)
	}
	path := filepath.Join(f.dir, local)
	real, err := filepath.Abs(path)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			err = &fs.PathError{Op: "open", Path: path, Err: p.Err} // by the given name
		}
		return "", err
	}
	if rel, err := filepath.Rel(f.bounds, real); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%q %w %s: it is a symbolic link to %s; put the file itself there", name, ErrOutside, f.dir, real)
	}
	return path, nil
}
