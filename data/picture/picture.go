// Package picture decodes PNG and JPEG files. An image's header is read first:
// a file of a kilobyte can claim gigabytes of pixels, and decoders allocate
// what is claimed.
package picture

import (
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // an image format
	_ "image/png"  // an image format
	"io"

	"github.com/snug-ml/snug/internal/regular"
)

// Header is what an image claims to be.
type Header struct {
	Width, Height int
	// Deep images have more than 8 bits per channel.
	Deep bool
}

// ReadHeader reads the header of an image whose pixels take at most limit
// bytes, which is what data.max_record allows.
func ReadHeader(path string, limit int64) (Header, error) {
	f, err := regular.Open(path)
	if err != nil {
		return Header{}, err
	}
	defer func() { _ = f.Close() }() // only read: nothing to lose
	return readHeader(f, path, limit)
}

func readHeader(f io.Reader, name string, limit int64) (Header, error) {
	c, _, err := image.DecodeConfig(f)
	if err != nil {
		return Header{}, fmt.Errorf("%s: %w; want a PNG or a JPEG", name, err)
	}
	if c.Width < 1 || c.Height < 1 {
		return Header{}, fmt.Errorf("%s: an image of %d x %d pixels", name, c.Width, c.Height)
	}
	size, deep := pixelBytes(c.ColorModel)
	if bytes := int64(c.Width) * int64(c.Height); bytes > limit/size {
		return Header{}, fmt.Errorf("%s: an image of %d x %d pixels takes %d bytes, more than the %d allowed; raise data.max_record", name, c.Width, c.Height, bytes*size, limit)
	}
	return Header{c.Width, c.Height, deep}, nil
}

// pixelBytes is the size of a decoded pixel.
func pixelBytes(m color.Model) (n int64, deep bool) {
	switch m {
	case color.RGBA64Model, color.NRGBA64Model:
		return 8, true
	case color.Gray16Model:
		return 2, true
	case color.GrayModel:
		return 1, false
	case color.YCbCrModel:
		return 3, false
	}
	if _, ok := m.(color.Palette); ok {
		return 1, false
	}
	return 4, false
}

// Decode decodes an image whose header passes want and whose pixels take at
// most limit bytes.
func Decode(path string, limit int64, want func(Header) error) (image.Image, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read: nothing to lose
	return DecodeFrom(f, path, limit, want)
}

// DecodeFrom is Decode for an open file with a name for messages.
func DecodeFrom(f io.ReadSeeker, path string, limit int64, want func(Header) error) (image.Image, error) {
	h, err := readHeader(f, path, limit)
	if err != nil {
		return nil, err
	}
	if err := want(h); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	img, _, err := image.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if b := img.Bounds(); b.Dx() != h.Width || b.Dy() != h.Height { // the file changed meanwhile
		return nil, fmt.Errorf("%s: its header says %d x %d pixels, it has %d x %d", path, h.Width, h.Height, b.Dx(), b.Dy())
	}
	return img, nil
}
