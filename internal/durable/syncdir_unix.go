//go:build unix

package durable

import (
	"errors"
	"os"
)

// SyncDir makes what was created, renamed and removed in a folder last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
