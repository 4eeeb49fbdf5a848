package cloudbase

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/snug-ml/snug/internal/size"
)

// flight is a recording: images in order of time, with the sun's angles and, if known, the height of the
// cloud base. Splits are by flight.
type flight struct {
	Name          string
	Height, Width int
	// Time is in seconds, SZA and SAA (the sun's zenith and azimuth angles) are in degrees and Base is in km,
	// with one value per frame. Base is NaN where it is unknown.
	Time, SZA, SAA, Base []float64
	// pixels is the format in which images are stored.
	pixels pixel
	// frame writes image i, [Height, Width]. Images must be requested in order.
	frame func(i int, dst []float32) error
}

// check validates a flight from a source.
func (f *flight) check() error {
	n := len(f.Time)
	switch {
	case n == 0:
		return fmt.Errorf("flight %s has no frames", f.Name)
	case f.Height < 1 || f.Width < 1:
		return fmt.Errorf("flight %s has images of %dx%d", f.Name, f.Height, f.Width)
	case len(f.SZA) != n || len(f.SAA) != n || len(f.Base) != n:
		return fmt.Errorf("flight %s: %s, %d zenith and %d azimuth angles and %d cloud bases: want one of each per frame", f.Name, size.Of(n, "time"), len(f.SZA), len(f.SAA), len(f.Base))
	}
	for i := range n {
		switch {
		case i > 0 && !(f.Time[i] > f.Time[i-1]):
			return fmt.Errorf("flight %s: frame %d is at %v s, the one before at %v s: frames must be in order of time", f.Name, i, f.Time[i], f.Time[i-1])
		case !(f.SZA[i] >= 0 && f.SZA[i] <= 180) || !(f.SAA[i] >= -360 && f.SAA[i] <= 360):
			return fmt.Errorf("flight %s: frame %d: zenith angle %v and azimuth %v: want degrees, 0 to 180 and -360 to 360", f.Name, i, f.SZA[i], f.SAA[i])
		case math.IsInf(f.Base[i], 0):
			return fmt.Errorf("flight %s: frame %d: the cloud base is infinite; an unknown one is NaN", f.Name, i)
		}
	}
	return nil
}

// pixel is the storage format of a pixel: exact, and no larger than in the source.
type pixel string

// These are the formats of pixels. Integers represent [0, 1].
const (
	pixelU8  pixel = "u8"
	pixelU16 pixel = "u16"
	pixelF32 pixel = "f32"
)

func (p pixel) bytes() int { return map[pixel]int{pixelU8: 1, pixelU16: 2, pixelF32: 4}[p] }

// put encodes src.
func (p pixel) put(dst []byte, src []float32) {
	switch p {
	case pixelU8:
		for i, v := range src {
			dst[i] = uint8(math.Round(float64(v) * math.MaxUint8))
		}
	case pixelU16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(math.Round(float64(v)*math.MaxUint16)))
		}
	default:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	}
}

// get decodes to dst.
func (p pixel) get(dst []float32, src []byte) {
	switch p {
	case pixelU8:
		for i := range dst {
			dst[i] = float32(src[i]) / math.MaxUint8
		}
	case pixelU16:
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint16(src[2*i:])) / math.MaxUint16
		}
	default:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}
