package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/internal/size"
)

// cacheFolder keeps what was measured and assembled for cards; empty: the user has none.
func cacheFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "snug")
}

// codeBound is how many bytes the driver may keep. A program's code has 0.5 to 2.6 MB, and takes
// a core most of a minute to assemble where it has all of the attention kernels: the last 400
// programs and more are found again. Drivers before 495 would keep 256 MiB, of all programs of
// the user; 4 GiB is the most that a driver takes.
const codeBound = 1 << 30

// CodeCache is where the driver keeps the code that it assembles of kernels.
type CodeCache struct {
	// Folder is empty where the driver keeps nothing, or in a folder of its own.
	Folder string `json:"folder"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Bound  int64  `json:"bound_bytes"` // 0: the driver's own
	// Problem is why Folder is empty, or cannot be read.
	Problem string `json:"problem,omitempty"`

	off       bool              // as the environment has it
	variables map[string]string // that tell the driver
}

// driver is the installed driver, which keeps code in a folder of snug's from the first time on
// that it is opened in a process.
func (o Options) driver() (driver.Driver, error) {
	return openDriver(func() map[string]string {
		c := findCodeCache()
		if c.Problem != "" && !c.off && o.Note != nil {
			o.Note(c.Problem)
		}
		return c.variables
	})
}

// findCodeCache is what the environment says, and a folder of snug's where it says nothing.
func findCodeCache() (c CodeCache) {
	c.variables = map[string]string{}
	if off := os.Getenv(driver.CacheDisable); off != "" && off != "0" {
		c.off = true
		c.Problem = fmt.Sprintf("%s=%s in the environment: the driver keeps no code, so each process assembles its own", driver.CacheDisable, off)
		return c
	}
	folder, named := os.LookupEnv(driver.CachePath)
	if !named {
		if folder = cacheFolder(); folder != "" {
			folder = filepath.Join(folder, "kernels")
		}
	}
	var err error
	if folder == "" {
		err = errors.New("no folder for caches is known (XDG_CACHE_HOME or HOME names it)")
	} else if err = writable(folder); err != nil {
		err = fmt.Errorf("%s cannot be written: %w", folder, reason(err))
	}
	switch {
	case err != nil && named:
		c.Problem = fmt.Sprintf("%v (%s in the environment): the driver keeps no code, so each process assembles its own", err, driver.CachePath)
		return c
	case err != nil:
		c.Problem = fmt.Sprintf("%v: assembled kernels are kept where the driver keeps those of all programs", err)
		return c
	case !named:
		c.variables[driver.CachePath] = folder
	}
	c.Folder = folder
	if text, ok := os.LookupEnv(driver.CacheSize); ok {
		c.Bound, _ = strconv.ParseInt(text, 10, 64) // else it is the driver's own
	} else {
		c.Bound, c.variables[driver.CacheSize] = codeBound, strconv.Itoa(codeBound)
	}
	return c
}

// writable makes a folder, and tries whether a file can be kept there: the driver would not say.
func writable(folder string) (err error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "snug-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4<<10))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// reason is an error without the name of the file, which may be a temporary one.
func reason(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// FindCodeCache looks at what is kept for the programs of this user.
func FindCodeCache() CodeCache {
	c := findCodeCache()
	if c.Folder == "" {
		return c
	}
	err := filepath.WalkDir(c.Folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err == nil {
			c.Files++
			c.Bytes += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		c.Problem = reason(err).Error()
	}
	return c
}

// ignoreGone is an error, unless it says that another process has removed a file.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (c CodeCache) String() string {
	if c.Folder == "" {
		return c.Problem
	}
	text := fmt.Sprintf("kept by the driver in %s: %d files, %s", c.Folder, c.Files, size.Bytes(c.Bytes))
	if c.Bound > 0 {
		text += fmt.Sprintf(" of at most %s", size.Bytes(c.Bound))
	}
	if c.Problem != "" {
		text += " (" + c.Problem + ")"
	}
	return text
}

// CodeTime is what [TimeCode] measures.
type CodeTime = cuda.CodeTime

// TimeCode measures what making the kernels of a program ready takes on a card.
func TimeCode(b engine.Backend, p *engine.Program) (CodeTime, error) {
	card, ok := b.(*cuda.Backend)
	if !ok {
		return CodeTime{}, errors.New("only cards have kernels to assemble")
	}
	return card.TimeCode(p)
}
