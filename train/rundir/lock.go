package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// LockFile is the name of the lock in a run folder.
const LockFile = ".lock"

// Owner is who has locked a run folder, and which run it belongs to.
type Owner struct {
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Since string `json:"since"` // RFC 3339
	Run   string `json:"run,omitempty"`
	// InPhases is set of a folder of a run in phases, each of which has a folder of its own
	// below it. Before are the runs that this one has started over, the latest first.
	InPhases bool     `json:"in_phases,omitempty"`
	Before   []string `json:"before,omitempty"`
}

// same reports whether two owners are one.
func (o Owner) same(as Owner) bool {
	return o.PID == as.PID && o.Host == as.Host && o.Since == as.Since && o.Run == as.Run && o.InPhases == as.InPhases
}

// LockedError is returned when another process has the run folder locked.
type LockedError struct {
	Dir   string
	Owner Owner // zero if the holder has not written its name yet
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("run folder %s is in use by %s: wait for it, stop it, or choose another folder with --out", e.Dir, e.Owner.who())
}

func (o Owner) who() string {
	if o.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d on host %s (since %s)", o.PID, o.Host, o.Since)
}

// lock is the lock of a folder, held.
type lock struct {
	file  *os.File
	flock flockFunc
	owner Owner
	// remove is set where the file itself is the lock, where there is no flock.
	remove bool
}

// flockFunc is Flock, or what a test puts in its place.
type flockFunc func(f *os.File, shared bool) (busy, unsupported bool, err error)

// takeLock takes a folder's lock.
func takeLock(d *Dir, flock flockFunc) (*lock, error) {
	l := &lock{flock: flock}
	for {
		busy, err := l.open(d.root)
		if err == nil && busy {
			err = &LockedError{Dir: d.name, Owner: readOwner(l.file)}
		}
		if err == nil && !l.named(d.root) {
			// A process that is exiting removed its file at this moment.
			if err = l.file.Close(); err == nil {
				continue
			}
		}
		if err == nil {
			l.owner = readOwner(l.file)
			l.owner.PID, l.owner.Host, l.owner.Since = os.Getpid(), hostname(), time.Now().UTC().Format(time.RFC3339)
			err = l.write()
		}
		if err == nil {
			return l, nil
		}
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
		if locked := (*LockedError)(nil); errors.As(err, &locked) {
			return nil, err
		}
		err = fmt.Errorf("lock run folder: %w", durable.Named(d.root, err))
		if errors.Is(err, regular.ErrKind) {
			err = fmt.Errorf("%w; remove it", err)
		}
		return nil, err
	}
}

// open opens the lock file and takes the lock on it.
func (l *lock) open(root *os.Root) (busy bool, err error) {
	if l.file, err = regular.OpenIn(root, LockFile, os.O_RDWR|os.O_CREATE); err != nil {
		return false, err
	}
	busy, l.remove, err = l.flock(l.file, false)
	if l.remove && err == nil {
		busy = readOwner(l.file).running()
	}
	return busy, err
}

// named reports whether the lock's file is the one in the folder.
func (l *lock) named(root *os.Root) bool {
	st, err := root.Lstat(LockFile)
	if err != nil {
		return false
	}
	own, err := l.file.Stat()
	return err == nil && os.SameFile(st, own)
}

// keep makes sure that the folder is still locked: it returns what is wrong, or
// nothing. A lock file that was removed is made again. Where the folder cannot be
// read, writes to it fail by themselves.
func (l *lock) keep(root *os.Root) (what string) {
	if l.named(root) {
		return ""
	}
	if _, err := root.Lstat(LockFile); err != nil && !missing(err) {
		return ""
	}
	again := &lock{flock: l.flock, owner: l.owner}
	busy, err := again.open(root)
	if again.file == nil {
		if missing(err) {
			return removed
		}
		return ""
	}
	o := readOwner(again.file)
	if err == nil && !busy && (o.same(Owner{}) || o.same(l.owner)) {
		if err = again.write(); err == nil {
			_ = l.file.Close() // it has no name any more
			l.file, l.remove = again.file, again.remove
			return ""
		}
	}
	_ = again.file.Close() // nothing was written to it
	if err != nil {
		return ""
	}
	return "was taken by " + o.who() // or was, by one that has ended
}

// running reports whether the owner named in a lock file may still be running. On
// another host nothing is known, which counts as yes.
func (o Owner) running() bool {
	if o.PID == 0 || o.PID == os.Getpid() && o.Host == hostname() {
		return false
	}
	return MayRun(o.PID, o.Host)
}

// MayRun reports whether a process of a host may exist. Of another host nothing can be
// known, so that counts as yes.
func MayRun(pid int, host string) bool {
	return host != hostname() || alive(pid)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func readOwner(f *os.File) Owner {
	var o Owner
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return Owner{} // not written yet: the owner stays unnamed
	}
	return o
}

// LastRun is the identity of the run that a folder belongs to, by its lock; empty
// if that is unknown.
func LastRun(dir string) string { return lastOwner(dir).Run }

// InPhases reports whether a folder has a run in phases, by its lock.
func InPhases(dir string) bool { return lastOwner(dir).InPhases }

// StartedOver reports whether the run of a folder, by its lock, has started another one over,
// whose checkpoints may still be there.
func StartedOver(dir, run string) bool { return slices.Contains(lastOwner(dir).Before, run) }

func lastOwner(dir string) Owner {
	f, err := regular.Open(filepath.Join(dir, LockFile))
	if err != nil {
		return Owner{}
	}
	defer f.Close()
	return readOwner(f)
}

// write writes the owner's name, so that it stays.
func (l *lock) write() error {
	text, err := json.Marshal(l.owner)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(append(text, '\n'), 0); err != nil {
		return err
	}
	return l.file.Sync()
}

// unlock unlocks the folder.
func (l *lock) unlock(root *os.Root) error {
	var err error
	if l.remove && l.named(root) {
		if err = root.Remove(LockFile); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, l.file.Close())
}
