//go:build unix

package durable

import (
	"errors"
	"os"
)

// SyncDir makes creations, renames and removals in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SyncIn is SyncDir of a folder in root.
func SyncIn(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
