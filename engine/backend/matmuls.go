package backend

import (
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
)

// MatmulsFile is the name under which checkpoints keep what computes the matmuls of
// their run.
const MatmulsFile = "matmuls.json"

// librarian is a simulated driver with a simulated cuBLASLt.
type librarian interface {
	Library() (cublaslt.Library, error)
}

// matmuls lets a card use cuBLASLt.
func (o Options) matmuls(d driver.Driver, b *cuda.Backend) {
	if o.NoCublas {
		return
	}
	m := cuda.Matmuls{Driver: d.Version()}
	if dir, err := os.UserCacheDir(); err == nil {
		m.Folder = filepath.Join(dir, "snug")
	}
	if l, ok := d.(librarian); ok {
		m.Open, m.Once = l.Library, true
	} else {
		m.Open = func() (cublaslt.Library, error) { return cublaslt.Open(d.Version(), installed("libcublasLt.so")) }
	}
	b.UseLibrary(m)
}

// installed is where a library is on this machine.
func installed(name string) []string {
	for _, l := range device.DiscoverNVIDIA().Libraries {
		if l.Name == name {
			return l.Seen
		}
	}
	return nil
}

// ComputeAs makes a device compute the matmuls of the programs that are loaded from now
// on as a run did: record is its [MatmulsFile], empty where snug's kernels computed all
// of them. Nil ends that.
func ComputeAs(b engine.Backend, record []byte) error {
	card, ok := b.(*cuda.Backend)
	switch {
	case !ok:
		return nil
	case record == nil:
		card.Begun(nil)
		return nil
	case len(record) == 0:
		card.Begun(&cuda.Choices{})
		return nil
	}
	c, err := cuda.ParseChoices(record)
	if err != nil {
		return err
	}
	card.Begun(c)
	return nil
}

// Matmuls describes what may compute matmuls on a device; empty where there is no choice.
func Matmuls(b engine.Backend) string {
	if card, ok := b.(*cuda.Backend); ok {
		return card.LibraryText()
	}
	return ""
}
