package npz

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
)

// Array is an array in C order.
type Array struct {
	DType DType
	Shape []int
	// Data is []bool, []uint8, []int32, []int64, []uint16 (Float16 bits),
	// []float32 or []float64.
	Data any
}

// chunkBytes is how much of an array is read at a time.
const chunkBytes = 1 << 20

// File is an open .npz archive.
type File struct {
	file    *os.File
	name    string
	members map[string]*zip.File
}

// Open reads the directory of an archive.
func Open(name string) (*File, error) {
	file, err := regular.Open(name)
	if err != nil {
		return nil, fmt.Errorf("npz: %w", err)
	}
	f := &File{file: file, name: name, members: map[string]*zip.File{}}
	if err := f.readDirectory(); err != nil {
		return nil, errors.Join(fmt.Errorf("npz: %s: %w", name, err), file.Close())
	}
	return f, nil
}

func (f *File) readDirectory() error {
	st, err := f.file.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f.file, st.Size())
	if err != nil {
		return err
	}
	for _, m := range z.File {
		short := strings.TrimSuffix(m.Name, ".npy")
		if _, twice := f.members[short]; twice {
			return fmt.Errorf("array %q twice", short)
		}
		f.members[short] = m
	}
	return nil
}

// Names lists the arrays, sorted.
func (f *File) Names() []string {
	var names []string
	for n := range f.members {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Close closes the archive.
func (f *File) Close() error { return f.file.Close() }

// Has reports whether the archive has an array.
func (f *File) Has(array string) bool { return f.members[array] != nil }

func (f *File) open(array string) (*elements, io.Closer, error) {
	m := f.members[array]
	if m == nil {
		return nil, nil, fmt.Errorf("npz: %s: no array %q; it has %s", f.name, array, few.Of(f.Names()))
	}
	r, err := m.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("npz: %s: %s: %w", f.name, array, err)
	}
	e, err := newElements(r)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("npz: %s: %s: %w", f.name, array, err), r.Close())
	}
	return e, r, nil
}

// Header reads an array's header, not its elements.
func (f *File) Header(array string) (Header, error) {
	e, c, err := f.open(array)
	if err != nil {
		return Header{}, err
	}
	return e.Header, c.Close()
}

// Read reads an array whose elements take at most limit bytes.
func (f *File) Read(array string, limit int64) (*Array, error) {
	e, c, err := f.open(array)
	if err != nil {
		return nil, err
	}
	a, err := e.array(limit)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("npz: %s: %s: %w", f.name, array, err), c.Close())
	}
	return a, c.Close()
}

// Rows streams an array of whole numbers along its first index.
type Rows struct {
	Header
	e     *elements
	c     io.Closer
	where string
	row   int // next
	raw   []byte
}

// Rows opens an array of 1 or 2 dimensions of type bool, u1, i4 or i8.
func (f *File) Rows(array string) (*Rows, error) {
	e, c, err := f.open(array)
	if err != nil {
		return nil, err
	}
	r := &Rows{Header: e.Header, e: e, c: c, where: f.name + ": " + array}
	switch {
	case len(e.Shape) != 1 && len(e.Shape) != 2:
		err = fmt.Errorf("npz: %s: shape %v, want 1 or 2 dimensions", r.where, e.Shape)
	case e.Shape[0] > 0 && e.Len() == 0:
		err = fmt.Errorf("npz: %s: shape %v has empty rows", r.where, e.Shape)
	case e.DType > Int64:
		err = fmt.Errorf("npz: %s: type %s, want whole numbers", r.where, e.DType)
	case e.Fortran && len(e.Shape) == 2:
		err = fmt.Errorf("npz: %s: is in Fortran order, which has no rows to stream; save numpy.ascontiguousarray of it", r.where)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return r, nil
}

// Width is the number of elements in a row.
func (r *Rows) Width() int {
	if len(r.Shape) == 1 {
		return 1
	}
	return r.Shape[1]
}

// Next appends the next row to dst, or returns io.EOF after the last. Elements
// that do not fit in 32 bits are an error.
func (r *Rows) Next(dst []int32) ([]int32, error) {
	if r.row == r.Shape[0] {
		if err := r.e.end(); err != nil {
			return dst, fmt.Errorf("npz: %s: %w", r.where, err)
		}
		return dst, io.EOF
	}
	size := r.DType.Size()
	for left := r.Width(); left > 0; {
		n := min(left, chunkBytes/size)
		r.raw = slices.Grow(r.raw[:0], n*size)[:n*size]
		if _, err := io.ReadFull(r.e.r, r.raw); err != nil {
			return dst, fmt.Errorf("npz: %s: row %d: cut off: %w", r.where, r.row, err)
		}
		for i := range n {
			v := r.e.integer(r.raw[i*size:])
			if v != int64(int32(v)) {
				return dst, fmt.Errorf("npz: %s: row %d: %d does not fit in 32 bits", r.where, r.row, v)
			}
			dst = append(dst, int32(v))
		}
		left -= n
	}
	r.row++
	return dst, nil
}

// Close closes the array.
func (r *Rows) Close() error { return r.c.Close() }

// elements reads the part after a header.
type elements struct {
	Header
	r     *bufio.Reader
	order binary.ByteOrder
}

func newElements(r io.Reader) (*elements, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	h, err := readHeader(b)
	if err != nil {
		return nil, err
	}
	e := &elements{Header: h, r: b, order: binary.LittleEndian}
	if h.bigEndian {
		e.order = binary.BigEndian
	}
	return e, nil
}

func (e *elements) integer(b []byte) int64 {
	switch e.DType {
	case Int32:
		return int64(int32(e.order.Uint32(b)))
	case Int64:
		return int64(e.order.Uint64(b))
	default: // Bool, Uint8
		return int64(b[0])
	}
}

// array reads all elements and puts them in C order.
func (e *elements) array(limit int64) (*Array, error) {
	if e.Bytes() > limit {
		return nil, fmt.Errorf("shape %v of %s takes %d bytes, more than the %d allowed", e.Shape, e.DType, e.Bytes(), limit)
	}
	a := &Array{DType: e.DType, Shape: e.Shape}
	var err error
	switch e.DType {
	case Bool:
		a.Data, err = gather(e, func(b []byte) bool { return b[0] != 0 })
	case Uint8:
		a.Data, err = gather(e, func(b []byte) uint8 { return b[0] })
	case Int32:
		a.Data, err = gather(e, func(b []byte) int32 { return int32(e.order.Uint32(b)) })
	case Int64:
		a.Data, err = gather(e, func(b []byte) int64 { return int64(e.order.Uint64(b)) })
	case Float16:
		a.Data, err = gather(e, func(b []byte) uint16 { return e.order.Uint16(b) })
	case Float32:
		a.Data, err = gather(e, func(b []byte) float32 { return math.Float32frombits(e.order.Uint32(b)) })
	default:
		a.Data, err = gather(e, func(b []byte) float64 { return math.Float64frombits(e.order.Uint64(b)) })
	}
	if err != nil {
		return nil, err
	}
	return a, e.end()
}

// end makes sure that nothing follows. Reading to the end also makes
// archive/zip check the sum.
func (e *elements) end() error {
	switch _, err := e.r.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("more bytes than shape %v of %s takes", e.Shape, e.DType)
	default:
		return err
	}
}

// gather reads the elements chunk by chunk, so that a claim without the bytes
// allocates no more than one chunk.
func gather[T any](e *elements, get func([]byte) T) ([]T, error) {
	size, left := e.DType.Size(), e.Len()
	raw := make([]byte, min(left*size, chunkBytes))
	all := make([]T, 0, min(left, chunkBytes/size))
	for left > 0 {
		n := min(left, len(raw)/size)
		if _, err := io.ReadFull(e.r, raw[:n*size]); err != nil {
			return nil, fmt.Errorf("cut off after %d of %d elements: %w", len(all), e.Len(), err)
		}
		for i := range n {
			all = append(all, get(raw[i*size:]))
		}
		left -= n
	}
	if e.Fortran {
		return transpose(all, e.Shape), nil
	}
	return all, nil
}

// transpose converts Fortran order to C order.
func transpose[T any](in []T, shape []int) []T {
	out := make([]T, len(in))
	index := make([]int, len(shape))
	for _, v := range in {
		at := 0
		for i, d := range shape {
			at = at*d + index[i]
		}
		out[at] = v
		for i := range index { // the first index runs fastest
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}
