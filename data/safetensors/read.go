package safetensors

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/snug-ml/snug/internal/filemap"
)

// Tensor is a tensor with its bytes: little-endian, row-major, not aligned to
// anything in particular.
type Tensor struct {
	Info
	Data   []byte
	path   string // of its file; empty: in memory
	mapped []byte // Data within the map of a file
}

// Release gives back the memory that holds the bytes of a mapped tensor, which are read from
// the file again if they are used again: copying one tensor after the other does not need
// memory for the whole file.
func (t *Tensor) Release() {
	filemap.Release(t.mapped)
}

// NewTensor returns a tensor from a file of another format; path names the file in
// errors.
func NewTensor(path string, info Info, data []byte) Tensor {
	return Tensor{Info: info, Data: data, path: path}
}

// File is an open safetensors file. Its methods may be called from several
// goroutines until Close.
type File struct {
	path  string
	head  *header
	raw   []byte // the whole file
	unmap func() error
}

// Open maps the file and checks all of its header. Close it to unmap.
func Open(path string) (*File, error) {
	raw, unmap, err := filemap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	s, err := Parse(raw)
	if err != nil {
		return nil, errors.Join(atPath(err, path), unmap())
	}
	s.path, s.unmap = path, unmap
	return s, nil
}

// Parse checks a whole file in memory. The tensors point into raw.
func Parse(raw []byte) (*File, error) {
	n, err := headerLength(raw, int64(len(raw)))
	if err != nil {
		return nil, err
	}
	head, err := parseHeader(raw[8:8+n], int64(len(raw))-8-n)
	if err != nil {
		return nil, err
	}
	return &File{head: head, raw: raw}, nil
}

// ReadHeader reads and checks only the header of a file of the given size,
// for callers that list a file without having all of it.
func ReadHeader(r io.ReaderAt, size int64) (tensors []Info, metadata map[string]string, err error) {
	var first [8]byte
	if _, err := r.ReadAt(first[:min(8, max(size, 0))], 0); err != nil && err != io.EOF {
		return nil, nil, err
	}
	n, err := headerLength(first[:], size)
	if err != nil {
		return nil, nil, err
	}
	// Bounded by the true size of the file, which headerLength has compared.
	text := make([]byte, n)
	if got, err := r.ReadAt(text, 8); int64(got) < n {
		return nil, nil, fmt.Errorf("safetensors: header: %d of %d bytes: %w", got, n, err)
	}
	head, err := parseHeader(text, size-8-n)
	if err != nil {
		return nil, nil, err
	}
	return head.tensors, head.metadata, nil
}

// Close unmaps the file; tensors taken from it must no longer be touched.
func (f *File) Close() error {
	unmap := f.unmap
	f.raw, f.unmap = nil, nil
	if unmap == nil {
		return nil
	}
	if err := unmap(); err != nil {
		return fmt.Errorf("safetensors: unmap %s: %w", f.path, err)
	}
	return nil
}

// Path is the file's name as given to Open, empty after Parse.
func (f *File) Path() string { return f.path }

// Tensors lists the tensors in the order of their bytes.
func (f *File) Tensors() []Info { return slices.Clone(f.head.tensors) }

// Has reports whether the file has a tensor called name.
func (f *File) Has(name string) bool { _, ok := f.head.byName[name]; return ok }

// Metadata returns a copy of __metadata__, empty if the file has none.
func (f *File) Metadata() map[string]string {
	if f.head.metadata == nil {
		return map[string]string{}
	}
	return maps.Clone(f.head.metadata)
}

// DataStart is the offset of the data in the file: that of tensor t is
// DataStart() + t.Offset.
func (f *File) DataStart() int64 { return f.head.data }

// Tensor returns a tensor by name. Its Data must not be written to (the map is
// read-only) nor be used after Close.
func (f *File) Tensor(name string) (Tensor, error) {
	i, ok := f.head.byName[name]
	if !ok {
		return Tensor{}, &Error{Path: f.path, Tensor: name, Problem: fmt.Sprintf("is not among the file's %d tensors", len(f.head.tensors))}
	}
	if f.raw == nil {
		return Tensor{}, &Error{Path: f.path, Tensor: name, Problem: "the file has been closed"}
	}
	t := f.head.tensors[i]
	lo := f.head.data + t.Offset
	hi := lo + t.Size
	x := Tensor{Info: t, Data: f.raw[lo:hi:hi], path: f.path}
	if f.unmap != nil {
		x.mapped = x.Data
	}
	return x, nil
}

// atPath completes an Error with the file's name.
func atPath(err error, path string) error {
	if e := (*Error)(nil); errors.As(err, &e) && e.Path == "" {
		e.Path = path
	}
	return err
}
