// Package npztest writes NumPy arrays for tests.
package npztest

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Encode writes a .npy file of version 1 whose elements start at a multiple of
// 64. data is []bool, []uint8, []int32, []int64, []uint16 (the bits of
// float16), []float32 or []float64 with as many elements as shape has.
func Encode(w io.Writer, shape []int, data any) error {
	codes := map[reflect.Kind]string{
		reflect.Bool: "|b1", reflect.Uint8: "|u1", reflect.Int32: "<i4", reflect.Int64: "<i8",
		reflect.Uint16: "<f2", reflect.Float32: "<f4", reflect.Float64: "<f8",
	}
	v := reflect.ValueOf(data)
	code, ok := codes[v.Type().Elem().Kind()]
	n := 1
	var dims strings.Builder
	for _, d := range shape {
		n *= d
		fmt.Fprintf(&dims, "%d,", d)
	}
	if !ok || v.Len() != n {
		return fmt.Errorf("npztest: cannot write %d elements of %T with shape %v", v.Len(), data, shape)
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", code, &dims)
	const before = len("\x93NUMPY") + 4
	total := (before + len(dict) + 1 + 63) &^ 63
	head := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(total-before))
	if _, err := fmt.Fprintf(w, "%s%-*s\n", head, total-before-1, dict); err != nil {
		return err
	}
	return binary.Write(w, binary.LittleEndian, data)
}

// Writer writes an archive like numpy.savez.
type Writer struct{ zip *zip.Writer }

// NewWriter starts an archive. The caller closes w after Close.
func NewWriter(w io.Writer) *Writer { return &Writer{zip.NewWriter(w)} }

// Write adds an array; see [Encode].
func (w *Writer) Write(name string, shape []int, data any) error {
	m, err := w.zip.Create(name + ".npy")
	if err != nil {
		return err
	}
	return Encode(m, shape, data)
}

// Close writes the directory of the archive.
func (w *Writer) Close() error { return w.zip.Close() }
