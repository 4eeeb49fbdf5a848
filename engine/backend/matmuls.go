package backend

import (
	"errors"
	"fmt"

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
	m := cuda.Matmuls{Driver: d.Version(), Folder: cacheFolder()}
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

// BLAS is the library of this machine that hardware.blas: auto would use.
type BLAS struct {
	Library string `json:"library,omitempty"` // with its version
	Path    string `json:"path,omitempty"`
	// Compared are matmuls of a model's size, as they would be chosen now.
	Compared []cpu.Comparison `json:"compared,omitempty"`
	// Problem is why there is none, or why it cannot be used.
	Problem string `json:"problem,omitempty"`
}

// FindBLAS measures the library at path, or that of the system (""), against snug's kernels.
func FindBLAS(path string, threads int) (b BLAS) {
	l, err := blas.Open(path)
	if err == nil {
		b.Library, b.Path = l.String(), l.Path()
		b.Compared, err = cpu.CompareLibrary(l, threads)
	}
	if err != nil {
		b.Problem = err.Error()
	}
	return b
}

func (b BLAS) String() string {
	const set = "hardware.blas: off unless set to auto or to the PATH of a library"
	if b.Library == "" {
		return fmt.Sprintf("none (%s); %s", b.Problem, set)
	}
	text := fmt.Sprintf("%s (%s)", b.Library, b.Path)
	if b.Problem != "" {
		return fmt.Sprintf("%s, which cannot be used: %s; %s", text, b.Problem, set)
	}
	for i, c := range b.Compared {
		text += [2]string{": ", ", "}[min(i, 1)] + c.String()
	}
	return text + "; " + set
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

// Software names what a card computes with: the driver, and NVIDIA's library of matmuls; empty
// for any other device.
func Software(b engine.Backend) []string {
	c, ok := b.(*cuda.Backend)
	if !ok {
		return nil
	}
	version := "driver of " + c.CUDA()
	if v := device.NVIDIADriver(); v != "" {
		version = fmt.Sprintf("driver %s of %s", v, c.CUDA())
	}
	return []string{version, c.LibraryName()}
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
