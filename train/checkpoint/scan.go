package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/snug-ml/snug/train/rundir"
)

const (
	stepPrefix = "step-"
	tmpSuffix  = ".tmp" // being written
	oldSuffix  = ".old" // being replaced
	delSuffix  = ".del" // being deleted
)

func stepName(update int64) string { return fmt.Sprintf("%s%08d", stepPrefix, update) }

// parseStep is the inverse of stepName; suffix is what follows the number.
func parseStep(name string) (update int64, suffix string, ok bool) {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	if !ok {
		return 0, "", false
	}
	if i := strings.IndexByte(digits, '.'); i >= 0 {
		digits, suffix = digits[:i], digits[i:]
	}
	update, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || stepName(update) != stepPrefix+digits {
		return 0, "", false
	}
	return update, suffix, true
}

// Entry is a checkpoint as List sees it, by its manifest and the sizes of its
// files; only Verify reads the bytes.
type Entry struct {
	Path     string
	Update   int64
	Manifest *Manifest // nil if there is a Problem with it
	Problem  error     // why it cannot be used, if that is visible without reading it
}

// bad reports whether the checkpoint is bad by its manifest.
func (e *Entry) bad() bool { return e.Manifest != nil && e.Manifest.Health.err(e.Path) != nil }

// folderOf accepts a run folder for its folder of checkpoints.
func folderOf(dir string) string {
	sub := filepath.Join(dir, Folder)
	if st, err := os.Stat(sub); err == nil && st.IsDir() {
		return sub
	}
	return dir
}

// absent is a folder that does not exist.
type absent string

func (path absent) Error() string {
	return string(path) + ": no such folder: want that of a run or a checkpoint (runs are in runs/PRESET unless --out says otherwise)"
}

// Is makes it an [fs.ErrNotExist].
func (path absent) Is(target error) bool { return target == fs.ErrNotExist }

// noFolder says of a path that is no folder what it should be.
func noFolder(err error) error {
	var of *fs.PathError
	switch {
	case !errors.As(err, &of):
	case errors.Is(err, fs.ErrNotExist):
		return absent(of.Path)
	case errors.Is(err, syscall.ENOTDIR):
		return &fs.PathError{Op: of.Op, Path: of.Path, Err: errors.New("a file: want the folder of a run or a checkpoint")}
	}
	return err
}

// List lists the checkpoints in a run folder or a folder of checkpoints, newest
// first by number. Unfinished and foreign folders are not among them.
func List(dir string) ([]Entry, error) {
	dir = folderOf(dir)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", noFolder(err))
	}
	var found []Entry
	names := map[string]bool{}
	for _, e := range list {
		names[e.Name()] = true
	}
	for _, e := range list {
		update, suffix, ok := parseStep(e.Name())
		if !ok || suffix != "" && suffix != oldSuffix {
			continue
		}
		// The old one counts only until the new one has taken its place.
		if suffix == oldSuffix && names[stepName(update)] {
			continue
		}
		c := Entry{Path: filepath.Join(dir, e.Name()), Update: update}
		c.Manifest, c.Problem = glance(c.Path, update)
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b Entry) int { return cmp.Compare(b.Update, a.Update) })
	tellApart(found, rundir.LastRun(filepath.Dir(filepath.Clean(dir))))
	return found, nil
}

// Meant reports whether a path is meant to be a checkpoint, intact or not: whether it has the
// name of one, or is anything other than a folder without a manifest.
func Meant(path string) bool {
	_, _, named := parseStep(filepath.Base(path))
	st, err := os.Stat(path)
	if named || err != nil || !st.IsDir() {
		return true
	}
	_, err = os.Lstat(filepath.Join(path, ManifestFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// glance checks what can be checked without reading the files.
func glance(path string, update int64) (*Manifest, error) {
	m, err := ReadManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: it is not a checkpoint, or an incomplete one", path, ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	if m.Update != update {
		return m, fmt.Errorf("%s has update %d: the folder was renamed", path, m.Update)
	}
	for _, f := range m.Files {
		if fault, _ := statFile(path, f); fault != nil {
			return m, fault
		}
	}
	return m, m.Health.err(path)
}

// Rejected is a checkpoint that Latest skipped.
type Rejected struct {
	Path string
	Err  error
}

// ErrNone is returned where no usable checkpoint exists.
var ErrNone = errors.New("no usable checkpoint")

// Latest loads the newest checkpoint, by number, that is intact and good. Newer ones
// that are not are returned in rejected with the reason, to be reported to the user. If
// none is intact the error is ErrNone. dir is a run folder or a folder of checkpoints;
// it need not exist.
func Latest(dir string) (c *Checkpoint, rejected []Rejected, err error) {
	list, err := List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		problem := e.Problem
		if problem == nil {
			if c, problem = Load(e.Path); problem == nil {
				return c, rejected, nil
			}
		}
		rejected = append(rejected, Rejected{e.Path, problem})
	}
	return nil, rejected, fmt.Errorf("%w in %s: %d found, none is intact and good", ErrNone, folderOf(dir), len(rejected))
}

// Name is the folder name of the checkpoint of an update.
func Name(update int64) string { return stepName(update) }

// ParseName is the inverse of Name.
func ParseName(name string) (update int64, ok bool) {
	update, suffix, ok := parseStep(name)
	return update, ok && suffix == "" && update >= 0
}
