package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
)

// cacheFolder keeps what was measured and assembled for cards; empty: the user has none.
func cacheFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "snug")
}

// keep lets a card keep its assembled kernels.
func (o Options) keep(d driver.Driver, b *cuda.Backend) {
	b.KeepAssembled(cuda.Assembled{
		Folder: cacheFolder(), Note: o.Note,
		// CUDA's version alone does not change with every driver, and the kernel module's
		// is not known everywhere.
		Driver: fmt.Sprintf("%d %s", d.Version(), device.NVIDIADriver()),
	})
}

// Assembled is what is kept of kernels that drivers assembled.
type Assembled struct {
	Folder string `json:"folder"` // empty: the user has none
	Cubins int    `json:"cubins"`
	Bytes  int64  `json:"bytes"`
	Bound  int64  `json:"bound_bytes"`
}

// FindAssembled looks at the user's cache folder.
func FindAssembled() (a Assembled, err error) {
	a = Assembled{Folder: cacheFolder(), Bound: cuda.AssembledBound}
	if a.Folder != "" {
		a.Cubins, a.Bytes, err = cuda.CountAssembled(a.Folder)
	}
	return a, err
}

// CodeTime is what [TimeCode] measures.
type CodeTime = cuda.CodeTime

// TimeCode measures what making the kernels of a program ready takes on a card.
func TimeCode(b engine.Backend, p *engine.Program, cubin bool) (CodeTime, error) {
	card, ok := b.(*cuda.Backend)
	if !ok {
		return CodeTime{}, errors.New("only cards have kernels to assemble")
	}
	return card.TimeCode(p, cubin)
}
