package cloudbase

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/data/npz"
)

// These are the arrays of a flight's NPZ file.
const (
	npzFrames = "frames" // [N, H, W], any type; integers of one byte are 0 to 255
	npzTime   = "time"   // [N], seconds
	npzSZA    = "sza"    // [N], degrees
	npzSAA    = "saa"    // [N], degrees
	npzBase   = "cbh"    // [N], km; NaN if unknown. May be absent.
)

// npzColumn is the maximum size of an array with one number per frame.
const npzColumn = 64 << 20

// npzFlight returns the flight in an NPZ file, which is streamed. A frame may take at most most bytes.
func npzFlight(path string, most int64) (f *flight, err error) {
	z, err := npz.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = z.Close() }() // read only, so there is nothing to lose
	head, err := z.Header(npzFrames)
	if err != nil {
		return nil, err
	}
	if len(head.Shape) != 3 {
		return nil, fmt.Errorf("%s: %s is %v, want [N, H, W]", path, npzFrames, head.Shape)
	}
	n := head.Shape[0]
	if frame := (npz.Header{DType: npz.Float32, Shape: head.Shape[1:]}); frame.Bytes() > most {
		return nil, fmt.Errorf("%s: %s is %v: a frame takes %d bytes, more than the %d allowed; raise data.max_record", path, npzFrames, head.Shape, frame.Bytes(), most)
	}
	f = &flight{Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), Height: head.Shape[1], Width: head.Shape[2], pixels: pixelF32}
	if head.DType == npz.Uint8 {
		f.pixels = pixelU8
	}
	for _, c := range []struct {
		array string
		into  *[]float64
	}{{npzTime, &f.Time}, {npzSZA, &f.SZA}, {npzSAA, &f.SAA}, {npzBase, &f.Base}} {
		if c.array == npzBase && !z.Has(c.array) {
			for range n {
				f.Base = append(f.Base, math.NaN())
			}
			continue
		}
		if *c.into, err = column(z, path, c.array, n); err != nil {
			return nil, err
		}
	}
	f.frame = streamed(path, f.pixels == pixelU8)
	return f, nil
}

// streamed returns a function that reads the images of an NPZ file in order. The file is open from the first
// image to the last.
func streamed(path string, bytes bool) func(i int, dst []float32) error {
	var z *npz.File
	var s *npz.Floats
	return func(i int, dst []float32) (err error) {
		if i == 0 {
			if z, err = npz.Open(path); err != nil {
				return err
			}
			if s, err = z.Floats(npzFrames); err != nil {
				return err
			}
		}
		if err := s.Next(dst); err != nil {
			return err
		}
		if bytes {
			for k := range dst {
				dst[k] /= math.MaxUint8
			}
		}
		if i < s.Shape[0]-1 {
			return nil
		}
		if err := s.Next(dst); err != io.EOF { // verifies the checksum of the file
			return fmt.Errorf("after the last frame: %w", err)
		}
		_ = s.Close() // read only, so there is nothing to lose
		return z.Close()
	}
}

// column returns an array of n numbers.
func column(z *npz.File, path, array string, n int) ([]float64, error) {
	a, err := z.Read(array, npzColumn)
	if err != nil {
		return nil, err
	}
	var out []float64
	switch v := a.Data.(type) {
	case []float64:
		out = v
	case []float32:
		out = widen(v)
	case []int32:
		out = widen(v)
	case []int64:
		out = widen(v)
	default:
		return nil, fmt.Errorf("%s: %s has type %v, want i4, i8, f4 or f8", path, array, a.DType)
	}
	if len(a.Shape) != 1 || len(out) != n {
		return nil, fmt.Errorf("%s: %s is %v, want [%d]: one for each of %s", path, array, a.Shape, n, npzFrames)
	}
	return out, nil
}

func widen[T float32 | int32 | int64](v []T) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
