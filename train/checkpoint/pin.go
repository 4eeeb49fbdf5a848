package checkpoint

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/rundir"
)

// pins counts the readers of this process by folder; it is for file systems without
// flock. Other processes are kept out by the lock alone.
var pins struct {
	sync.Mutex
	count map[string]int
}

// Pin keeps retention, also that of another process, from deleting the
// checkpoint until release is called. Readers share it.
func Pin(dir string) (release func(), err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f, err := regular.Open(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	busy, _, err := rundir.Flock(f, true)
	if err == nil && busy { // being deleted at this moment
		err = &os.PathError{Op: "pin", Path: dir, Err: os.ErrNotExist}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	pins.Lock()
	defer pins.Unlock()
	if pins.count == nil {
		pins.count = map[string]int{}
	}
	pins.count[dir]++
	return sync.OnceFunc(func() {
		pins.Lock()
		defer pins.Unlock()
		if pins.count[dir]--; pins.count[dir] == 0 {
			delete(pins.count, dir)
		}
		_ = f.Close() // read-only: nothing can be lost
	}), nil
}

// unlessPinned calls do if nobody reads the checkpoint, while new readers are
// kept from starting, and reports whether somebody does.
func unlessPinned(dir string, do func() error) (pinned bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	pins.Lock()
	defer pins.Unlock()
	if pins.count[dir] > 0 {
		return true, nil
	}
	f, err := regular.Open(filepath.Join(dir, ManifestFile))
	if err != nil {
		return false, do() // without a manifest nobody can pin it
	}
	defer f.Close()
	busy, _, err := rundir.Flock(f, false)
	if err != nil || busy {
		return busy, err
	}
	return false, do()
}
