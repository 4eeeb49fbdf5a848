package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// LockFile is the name of the lock in a run folder.
const LockFile = ".lock"

// Owner says who holds a run folder.
type Owner struct {
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Since string `json:"since"` // RFC 3339
}

// LockedError is returned when another process holds the run folder.
type LockedError struct {
	Dir   string
	Owner Owner // zero if the holder has not written its name yet
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.Owner.PID != 0 {
		who = fmt.Sprintf("process %d on host %s (since %s)", e.Owner.PID, e.Owner.Host, e.Owner.Since)
	}
	return fmt.Sprintf("run folder %s is in use by %s: wait for it, stop it, or choose another folder with --out", e.Dir, who)
}

// Lock holds a run folder for one process.
type Lock struct {
	file *os.File
	// remove is set where the file itself is the lock, for want of flock.
	remove bool
}

type flockFunc func(f *os.File, shared bool) (busy, unsupported bool, err error)

// LockRun takes the run folder, which must exist. The lock ends with the
// process, however it ends; a lock file left by a dead one is taken over.
func LockRun(dir string) (*Lock, error) { return lockRun(dir, flock) }

func lockRun(dir string, flock flockFunc) (*Lock, error) {
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock run folder: %w", err)
	}
	busy, unsupported, err := flock(f, false)
	if err == nil && busy {
		err = &LockedError{Dir: dir, Owner: readOwner(f)}
	}
	if err == nil && unsupported {
		if o := readOwner(f); o.running() {
			err = &LockedError{Dir: dir, Owner: o}
		}
	}
	if err == nil {
		err = writeOwner(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{file: f, remove: unsupported}, nil
}

// running tells whether the owner named in a lock file may still be there. Of
// another host nothing can be known, so that counts as yes.
func (o Owner) running() bool {
	if o.PID == 0 || o.PID == os.Getpid() && o.Host == hostname() {
		return false
	}
	return o.Host != hostname() || alive(o.PID)
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
		return Owner{} // not written yet: the holder stays unnamed
	}
	return o
}

func writeOwner(f *os.File) error {
	text, err := json.Marshal(Owner{PID: os.Getpid(), Host: hostname(), Since: time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}

// Unlock gives the run folder back.
func (l *Lock) Unlock() error {
	var err error
	if l.remove {
		if err = os.Remove(l.file.Name()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, l.file.Close())
}
