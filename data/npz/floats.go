package npz

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/snug-ml/snug/internal/float16"
)

// Floats streams the elements of an array in C order as float32.
type Floats struct {
	Header
	e     *elements
	c     io.Closer
	where string
	left  int
	raw   []byte
}

// Floats opens an array of any type for streaming. Whole numbers beyond 2^24
// and float64 lose digits.
func (f *File) Floats(array string) (*Floats, error) {
	e, c, err := f.open(array)
	if err != nil {
		return nil, err
	}
	s := &Floats{Header: e.Header, e: e, c: c, where: f.name + ": " + array, left: e.Len()}
	if e.Fortran && len(e.Shape) > 1 {
		return nil, errors.Join(fmt.Errorf("npz: %s: is in Fortran order, which cannot be streamed; save numpy.ascontiguousarray of it", s.where), c.Close())
	}
	return s, nil
}

// Next reads the next elements, as many as dst holds, or returns io.EOF after
// the last one. Fewer left than dst holds is an error.
func (s *Floats) Next(dst []float32) error {
	if s.left == 0 {
		if err := s.e.end(); err != nil {
			return fmt.Errorf("npz: %s: %w", s.where, err)
		}
		return io.EOF
	}
	if len(dst) > s.left {
		return fmt.Errorf("npz: %s: %d elements are left of shape %v, want %d", s.where, s.left, s.Shape, len(dst))
	}
	size := s.DType.Size()
	if s.raw == nil {
		s.raw = make([]byte, chunkBytes/size*size)
	}
	for len(dst) > 0 {
		n := min(len(dst), len(s.raw)/size)
		if _, err := io.ReadFull(s.e.r, s.raw[:n*size]); err != nil {
			return fmt.Errorf("npz: %s: cut off with %d elements left: %w", s.where, s.left, err)
		}
		for i := range n {
			dst[i] = s.e.real(s.raw[i*size:])
		}
		dst = dst[n:]
		s.left -= n
	}
	return nil
}

// Close closes the array.
func (s *Floats) Close() error { return s.c.Close() }

func (e *elements) real(b []byte) float32 {
	switch e.DType {
	case Float16:
		return float16.FromF16(e.order.Uint16(b))
	case Float32:
		return math.Float32frombits(e.order.Uint32(b))
	case Float64:
		return float32(math.Float64frombits(e.order.Uint64(b)))
	default:
		return float32(e.integer(b))
	}
}
