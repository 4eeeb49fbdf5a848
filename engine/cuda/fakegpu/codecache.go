package fakegpu

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/snug-ml/snug/engine/cuda/driver"
)

// codeCache is the folder in which this driver keeps assembled code, as NVIDIA's does: errors there are not
// reported, the code is assembled again. Without CUDA_CACHE_PATH nothing is kept, so that tests do not share
// a folder of the user's.
type codeCache struct {
	folder string // empty: nothing is kept
	bound  int64
}

// variable is an environment variable as libraries in C see it.
func (d *Driver) variable(name string) string {
	if v, ok := d.variables[name]; ok {
		return v
	}
	return os.Getenv(name)
}

func (d *Driver) codeCache() codeCache {
	c := codeCache{d.variable(driver.CachePath), 256 << 20}
	if d.variable(driver.CacheDisable) == "1" {
		c.folder = ""
	}
	if n, err := strconv.ParseInt(d.variable(driver.CacheSize), 10, 64); err == nil {
		c.bound = min(n, 4<<30)
	}
	return c
}

// file is the path of the code assembled from PTX for a card.
func (c codeCache) file(on *Context, ptx string) string {
	key := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", on.driver.Version(), on.card.Capability(), ptx))
	return filepath.Join(c.folder, fmt.Sprintf("%x", key[:1]), fmt.Sprintf("%x", key[1:16]))
}

func (c codeCache) has(on *Context, ptx string) bool {
	if c.folder == "" {
		return false
	}
	_, err := os.Stat(c.file(on, ptx))
	return err == nil
}

// keep writes a file for PTX, and removes the oldest files if they would take too much space.
func (c codeCache) keep(on *Context, ptx string) {
	if c.folder == "" || int64(len(ptx)) > c.bound {
		return
	}
	path := c.file(on, ptx)
	if os.MkdirAll(filepath.Dir(path), 0o777) != nil || os.WriteFile(path, []byte(ptx), 0o666) != nil {
		return
	}
	files, err := filepath.Glob(filepath.Join(c.folder, "*", "*"))
	if err != nil {
		return
	}
	slices.SortFunc(files, func(a, b string) int { return modified(a).Compare(modified(b)) })
	var all int64
	for _, f := range slices.Backward(files) {
		if st, err := os.Stat(f); err == nil {
			if all += st.Size(); all > c.bound {
				_ = os.Remove(f)
			}
		}
	}
}

// modified is a file's modification time; the zero time if it is gone.
func modified(path string) (t time.Time) {
	if st, err := os.Stat(path); err == nil {
		t = st.ModTime()
	}
	return t
}
