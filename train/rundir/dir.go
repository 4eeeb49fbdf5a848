package rundir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// Dir is a run folder that this process has opened.
type Dir struct {
	name  string // as it was given
	root  *os.Root
	self  fs.FileInfo
	lock  *lock        // nil after Look
	moved func(string) // gets the new path after the folder was moved
	// blind is set where the system gives a folder another identity each time it
	// is asked, so that it identifies nothing.
	blind bool

	mu     sync.Mutex
	path   string // where it was last seen
	unsaid string // where it was moved to, until that is reported
	gone   error
}

// GoneError means that the folder is no longer there to be written to.
type GoneError struct {
	Path, What string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("run folder %s %s: this process writes nothing more there and leaves a folder of that name alone; continue the run from a copy or an upload (snug ckpt pull), or start it again with another --out", e.Path, e.What)
}

// NewID is a new identity.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ValidID reports whether a text is an identity, or empty.
func ValidID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && (len(raw) == 16 || len(raw) == 0)
}

// Open locks the run folder, which must exist. The lock ends with the process,
// however it ends; a lock file left by a dead one is taken over. moved, which may
// be nil, is called with the new path after the folder was moved.
func Open(path string, moved func(to string)) (*Dir, error) { return open(path, moved, Flock) }

func open(path string, moved func(to string), flock flockFunc) (*Dir, error) {
	d, err := Look(path)
	if err != nil {
		return nil, err
	}
	if moved != nil {
		d.moved = moved
	}
	if d.lock, err = takeLock(d, flock); err != nil {
		return nil, errors.Join(err, d.root.Close())
	}
	return d, nil
}

// Look opens a run folder without locking it, to read it or to add what no training
// run writes.
func Look(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	self, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run folder: %w", durable.Named(root, err)), root.Close())
	}
	d := &Dir{name: path, path: path, root: root, self: self, moved: func(string) {}}
	there, _ := d.at(path)
	d.blind = !there
	return d, nil
}

// Root is the handle on the folder.
func (d *Dir) Root() *os.Root { return d.root }

// Path is where the folder was at the last Check.
func (d *Dir) Path() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.path
}

// Join is the path of a file in the folder.
func (d *Dir) Join(name ...string) string {
	return filepath.Join(append([]string{d.Path()}, name...)...)
}

// ID is the identity of the run that the folder belongs to; empty if that is
// not known.
func (d *Dir) ID() string {
	if d.lock == nil {
		return LastRun(d.Path())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lock.owner.Run
}

// Begin makes the folder that of another run.
func (d *Dir) Begin(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := &d.lock.owner
	o.Run, o.Before = id, slices.DeleteFunc(o.Before, func(before string) bool { return before == id })
	return d.lock.write()
}

// StartOver makes the folder that of a new run, which takes the place of the one that it belongs to
// and of those before; an empty identity stands for runs of versions that had none. What is left of
// them is recognized by the lock.
func (d *Dir) StartOver(before ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := &d.lock.owner
	if o.Run != "" {
		before = append(before, o.Run)
	}
	for _, id := range before {
		if !slices.Contains(o.Before, id) {
			o.Before = append([]string{id}, o.Before...)
		}
	}
	o.Run, o.Before = NewID(), o.Before[:min(len(o.Before), mostBefore)]
	return d.lock.write()
}

// mostBefore bounds the runs that a lock names.
const mostBefore = 64

// InPhases makes the folder that of a run in phases.
func (d *Dir) InPhases() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lock.owner.InPhases = true
	return d.lock.write()
}

// StartedOver reports whether the run of the folder has started another one over.
func (d *Dir) StartedOver(run string) bool {
	if d.lock == nil {
		return StartedOver(d.Path(), run)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.lock.owner.Before, run)
}

// Holds reports whether a folder that is open is the one of a name in this folder, and no link.
func (d *Dir) Holds(name string, sub *Dir) bool {
	st, err := d.root.Lstat(name)
	return err == nil && (os.SameFile(st, sub.self) || d.blind && st.IsDir())
}

// Unlinked refuses a path in the folder of which a part is there and no folder, but a link, say:
// what it leads to is not the run's.
func (d *Dir) Unlinked(name string) error {
	at := ""
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
		at = filepath.Join(at, part)
		st, err := d.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return durable.Named(d.root, err)
		}
		if !st.IsDir() {
			return fmt.Errorf("%s is %s, where the run has a folder: remove it", d.Join(at), regular.Kind(st.Mode()))
		}
	}
	return nil
}

// Sub opens a folder in this one, which is made if need be, to write to it.
func (d *Dir) Sub(name string) (*Dir, error) {
	err := d.Check()
	if err == nil {
		err = d.Unlinked(name)
	}
	if err != nil {
		return nil, err
	}
	if err := d.root.MkdirAll(name, 0o777); err != nil {
		return nil, durable.Named(d.root, err)
	}
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, durable.Named(d.root, err)
	}
	self, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	path := d.Join(name)
	return &Dir{name: path, path: path, root: root, self: self, moved: func(string) {}, blind: d.blind}, nil
}

// Check reports whether the folder is still there and locked by this process: nil,
// or a *GoneError, which stays. One that was moved is found again where the system
// knows its path.
func (d *Dir) Check() error {
	err := d.check()
	d.mu.Lock()
	to := d.unsaid
	d.unsaid = ""
	d.mu.Unlock()
	if to != "" {
		d.moved(to)
	}
	return err
}

// check leaves a move to be reported by the next Check.
func (d *Dir) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone != nil || d.blind {
		return d.gone
	}
	if d.lock != nil {
		if what := d.lock.keep(d.root); what != "" {
			return d.lost(what)
		}
	}
	if there, certain := d.at(d.path); there || !certain {
		return nil
	}
	to, ok := d.where()
	if there, _ := d.at(to); !ok || !there {
		return d.lost(d.instead("was removed or moved away"))
	}
	d.path, d.unsaid = to, to
	return nil
}

// lost remembers that the folder is gone. The mutex is held.
func (d *Dir) lost(what string) error {
	if what == removed {
		what = d.instead(removed)
	}
	d.gone = &GoneError{d.path, what}
	return d.gone
}

const removed = "was removed"

// instead adds what has the folder's name now.
func (d *Dir) instead(what string) string {
	if _, err := os.Lstat(d.path); err == nil {
		return what + ", and another took its place"
	}
	return what
}

// at reports whether the folder has a path; for a path that cannot be read, as
// while a network is down, nothing is certain.
func (d *Dir) at(path string) (there, certain bool) {
	st, err := os.Stat(path)
	if err != nil {
		return false, missing(err)
	}
	return os.SameFile(st, d.self), true
}

// missing reports whether an error means that a file or its folder is gone, and not
// only unreachable.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOTDIR)
}

// Blind reports that the file system does not distinguish folders.
func (d *Dir) Blind() bool { return d.blind }

// Replace writes a file of the folder, completely or not at all.
func (d *Dir) Replace(name string, content []byte) error {
	if err := d.Check(); err != nil {
		return err
	}
	return durable.ReplaceIn(d.root, name, content)
}

// ReplaceJSON is Replace with a value as JSON that people can read.
func (d *Dir) ReplaceJSON(name string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return d.Replace(name, append(raw, '\n'))
}

// Append opens a file of the folder to add to it.
func (d *Dir) Append(name string) (*os.File, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	return d.append(name)
}

func (d *Dir) append(name string) (*os.File, error) {
	f, err := regular.OpenIn(d.root, name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	return f, durable.Named(d.root, err)
}

// Named reports whether an open file is the one that the folder has under a name: what is added to
// one that was removed is lost.
func (d *Dir) Named(name string, f *os.File) bool {
	st, err := d.root.Lstat(name)
	if err != nil {
		return !missing(err)
	}
	own, err := f.Stat()
	return err != nil || os.SameFile(st, own)
}

// Again opens a file of the folder to go on adding to it, after its name was lost: f is the one
// that had it. Where nothing has the name now, all of f is written again; what took its place is
// added to. A move of the folder is left to the next Check to report: whoever writes a log may hold
// its lock, which a report would wait for.
func (d *Dir) Again(name string, f *os.File) (*os.File, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if _, err := d.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		err = durable.WriteIn(d.root, name, func(to *os.File) error {
			_, err := io.Copy(to, io.NewSectionReader(f, 0, 1<<62))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return d.append(name)
}

// Read reads a file of the folder of at most so many bytes, not through a link.
func (d *Dir) Read(name string, most int64) ([]byte, error) {
	f, err := regular.OpenIn(d.root, name, os.O_RDONLY)
	if err != nil {
		return nil, durable.Named(d.root, err)
	}
	text, err := regular.ReadAll(f, most)
	return text, errors.Join(err, f.Close())
}

// Close unlocks the folder.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.lock != nil {
		err = d.lock.unlock(d.root)
	}
	return errors.Join(err, d.root.Close())
}
