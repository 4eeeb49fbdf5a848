package npz

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Encode writes a .npy file. data is of one of the kinds of Array.Data.
func Encode(w io.Writer, shape []int, data any) error {
	d, n, err := kindOf(data)
	if err != nil {
		return fmt.Errorf("npz: %w", err)
	}
	if want := (&Header{DType: d, Shape: shape}).Len(); n != want {
		return fmt.Errorf("npz: %d elements for shape %v of %d", n, shape, want)
	}
	head, err := encodeHeader(d, shape)
	if err != nil {
		return fmt.Errorf("npz: %w", err)
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("npz: %w", err)
	}
	if err := writeElements(w, data); err != nil {
		return fmt.Errorf("npz: %w", err)
	}
	return nil
}

func kindOf(data any) (DType, int, error) {
	switch v := data.(type) {
	case []bool:
		return Bool, len(v), nil
	case []uint8:
		return Uint8, len(v), nil
	case []int32:
		return Int32, len(v), nil
	case []int64:
		return Int64, len(v), nil
	case []uint16:
		return Float16, len(v), nil
	case []float32:
		return Float32, len(v), nil
	case []float64:
		return Float64, len(v), nil
	}
	return 0, 0, fmt.Errorf("cannot write %T", data)
}

// writeElements writes little-endian elements, a chunk at a time.
func writeElements(w io.Writer, data any) error {
	le := binary.LittleEndian
	switch v := data.(type) {
	case []bool:
		return scatter(w, v, func(b []byte, x bool) []byte {
			if x {
				return append(b, 1)
			}
			return append(b, 0)
		})
	case []uint8:
		_, err := w.Write(v)
		return err
	case []int32:
		return scatter(w, v, func(b []byte, x int32) []byte { return le.AppendUint32(b, uint32(x)) })
	case []int64:
		return scatter(w, v, func(b []byte, x int64) []byte { return le.AppendUint64(b, uint64(x)) })
	case []uint16:
		return scatter(w, v, le.AppendUint16)
	case []float32:
		return scatter(w, v, func(b []byte, x float32) []byte { return le.AppendUint32(b, math.Float32bits(x)) })
	case []float64:
		return scatter(w, v, func(b []byte, x float64) []byte { return le.AppendUint64(b, math.Float64bits(x)) })
	}
	return fmt.Errorf("cannot write %T", data)
}

func scatter[T any](w io.Writer, all []T, put func([]byte, T) []byte) error {
	var raw []byte
	for _, x := range all {
		if raw = put(raw, x); len(raw) >= chunkBytes {
			if _, err := w.Write(raw); err != nil {
				return err
			}
			raw = raw[:0]
		}
	}
	_, err := w.Write(raw)
	return err
}

// Writer writes an archive as numpy.savez_compressed does.
type Writer struct {
	zip  *zip.Writer
	open *Stream
}

// NewWriter starts an archive. The caller closes w after Close.
func NewWriter(w io.Writer) *Writer { return &Writer{zip: zip.NewWriter(w)} }

// Write adds an array.
func (w *Writer) Write(name string, shape []int, data any) error {
	d, _, err := kindOf(data)
	if err != nil {
		return fmt.Errorf("npz: %s: %w", name, err)
	}
	s, err := w.Stream(name, d, shape)
	if err != nil {
		return err
	}
	return s.Write(data)
}

// Stream is an array that is written in parts.
type Stream struct {
	name  string
	dtype DType
	left  int
	w     io.Writer
}

// Stream adds an array whose elements follow by Stream.Write, before the next
// array or Close.
func (w *Writer) Stream(name string, d DType, shape []int) (*Stream, error) {
	if err := w.finish(); err != nil {
		return nil, err
	}
	head, err := encodeHeader(d, shape)
	if err != nil {
		return nil, fmt.Errorf("npz: %s: %w", name, err)
	}
	m, err := w.zip.Create(name + ".npy")
	if err != nil {
		return nil, fmt.Errorf("npz: %s: %w", name, err)
	}
	if _, err := m.Write(head); err != nil {
		return nil, fmt.Errorf("npz: %s: %w", name, err)
	}
	w.open = &Stream{name: name, dtype: d, left: (&Header{DType: d, Shape: shape}).Len(), w: m}
	return w.open, nil
}

// Write adds elements, in C order.
func (s *Stream) Write(data any) error {
	d, n, err := kindOf(data)
	if err != nil {
		return fmt.Errorf("npz: %s: %w", s.name, err)
	}
	if d != s.dtype || n > s.left {
		return fmt.Errorf("npz: %s: %d elements of %s, want at most %d of %s", s.name, n, d, s.left, s.dtype)
	}
	s.left -= n
	if err := writeElements(s.w, data); err != nil {
		return fmt.Errorf("npz: %s: %w", s.name, err)
	}
	return nil
}

func (w *Writer) finish() error {
	if w.open != nil && w.open.left > 0 {
		return fmt.Errorf("npz: %s: %d elements missing", w.open.name, w.open.left)
	}
	w.open = nil
	return nil
}

// Close writes the archive's directory.
func (w *Writer) Close() error {
	if err := w.finish(); err != nil {
		return err
	}
	if err := w.zip.Close(); err != nil {
		return fmt.Errorf("npz: %w", err)
	}
	return nil
}
