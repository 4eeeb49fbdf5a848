//go:build unix

package shard

import (
	"os"
	"path/filepath"
	"testing"
)

// A file that is truncated while it is mapped gives an error, not a crash.
func TestCutOffWhileMapped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, many(20_000), narrow, Options{})
	c := open(t, dir, Train)
	if err := os.Truncate(filepath.Join(dir, "train-00000.tokens"), headerSize); err != nil {
		t.Fatal(err)
	}
	wantError(t, c.Read(make([]int32, 100), c.Tokens()-100), "train-00000.tokens", "cut off")
}
