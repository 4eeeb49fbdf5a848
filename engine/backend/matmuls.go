package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/cpu/blas"
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

// processor is the CPU with its kernels, and with a BLAS library if one is asked for.
func (o Options) processor() (engine.Backend, error) {
	b := cpu.Backend{Threads: o.Threads}
	if o.BLAS == "" || o.BLAS == "off" {
		return b, nil
	}
	path := o.BLAS
	if path == "auto" {
		path = ""
	}
	l, err := blas.Open(path)
	var absent *blas.Absent
	switch {
	case err == nil:
		return b.UseLibrary(l), nil
	case path == "" && errors.As(err, &absent):
		if o.Note != nil {
			o.Note("snug's kernels compute every matmul: " + err.Error())
		}
		return b, nil
	}
	return nil, fmt.Errorf("hardware.blas %s: %w (want off, auto or the path of one)", o.BLAS, err)
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
	if p, ok := b.(cpu.Backend); ok {
		return p.Begin(record)
	}
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
	switch b := b.(type) {
	case *cuda.Backend:
		return b.LibraryText()
	case cpu.Backend:
		return b.LibraryText()
	}
	return ""
}
