//go:build unix

package shard

import (
	"errors"
	"os"
	"syscall"
)

// syncDir makes renames in a folder last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// alive reports whether a process of this host may exist.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
