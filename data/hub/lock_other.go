//go:build !unix

package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// lockPoll is how often a lock that another process holds is tried.
const lockPoll = 100 * time.Millisecond

// lock makes a file that no other process may make meanwhile. One left by a killed
// process has to be removed by hand, as the error says.
func lock(ctx context.Context, path string) (unlock func() error, err error) {
	path += ".held"
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		switch {
		case err == nil:
			return func() error { return errors.Join(f.Close(), os.Remove(path)) }, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another process fetches the same file; if none does, remove %s: %w", path, context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}
