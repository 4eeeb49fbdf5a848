// Package durable writes files that survive a crash.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file so that a crash, power loss included, leaves the old
// one or the new one, never a part: under another name first, synced, then
// renamed, and the folder synced. When it returns nil the new one stays.
func Replace(path string, content []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
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
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
