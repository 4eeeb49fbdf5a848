// Package durable writes files that survive a crash.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file so that a crash, power loss included, leaves the old
// one or the new one, never a part: under another name first, synced, then
// renamed, and the folder synced. When it returns nil the new one stays.
func Replace(path string, content []byte) error {
	tmp := path + ".tmp"
	// What is in the way is left over from a crash, or is not ours: a link is
	// not followed, a pipe is not waited for.
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}
