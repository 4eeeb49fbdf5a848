package agiformer

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"image"
	"io"
	"math"

	"golang.org/x/image/draw"

	"github.com/snug-ml/snug/data/picture"
	"github.com/snug-ml/snug/internal/regular"
)

// These are the means and standard deviations of red, green and blue that normalize images for CLIP (Radford
// et al. 2021).
var (
	pixelMean = [3]float32{0.48145466, 0.4578275, 0.40821073}
	pixelStd  = [3]float32{0.26862954, 0.26130258, 0.27577711}
)

// readPicture decodes a PNG or JPEG file of at most most bytes, decoded, into dst [size, size, 3]. The
// shorter side is scaled to size, the center is cropped, and colors are normalized.
func readPicture(dst []float32, path string, size int, most int64) error {
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only, so there is nothing to lose
	return decodePicture(dst, f, path, size, most)
}

// decodePicture is readPicture for an open file.
func decodePicture(dst []float32, f io.ReadSeeker, path string, size int, most int64) error {
	src, err := picture.DecodeFrom(f, path, most, func(picture.Header) error { return nil }) // any size is accepted, because the image is scaled
	if err != nil {
		return err
	}
	b := src.Bounds()
	side := min(b.Dx(), b.Dy())
	x, y := b.Min.X+(b.Dx()-side)/2, b.Min.Y+(b.Dy()-side)/2
	out := image.NewRGBA(image.Rect(0, 0, size, size))
	draw.CatmullRom.Scale(out, out.Bounds(), src, image.Rect(x, y, x+side, y+side), draw.Src, nil)
	for i := range size * size {
		for c := range 3 {
			dst[3*i+c] = (float32(out.Pix[4*i+c])/255 - pixelMean[c]) / pixelStd[c]
		}
	}
	return nil
}

// readWAV decodes a WAV file of 16-bit samples into the start of dst. Channels are averaged, and the rate is
// not changed. It is an error if the sound is longer than dst, because the rest would be dropped silently.
// The file is streamed, so it uses no memory, whatever size it claims.
func readWAV(dst []float32, path string) error {
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only, so there is nothing to lose
	return decodeWAV(dst, f, path)
}

// decodeWAV is readWAV for an open file.
func decodeWAV(dst []float32, f io.Reader, path string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s; want a WAV file of 16-bit PCM", path, fmt.Sprintf(format, args...))
	}
	in := bufio.NewReader(f)
	var head [16]byte
	if _, err := io.ReadFull(in, head[:12]); err != nil || string(head[:4]) != "RIFF" || string(head[8:12]) != "WAVE" {
		return bad("not a WAV file")
	}
	channels := 0
	for {
		if _, err := io.ReadFull(in, head[:8]); err != nil {
			return bad("it has no samples")
		}
		name, n := string(head[:4]), int(binary.LittleEndian.Uint32(head[4:]))
		skip := n + n%2
		switch name {
		case "fmt ":
			if n < 16 {
				return bad("its format is %d bytes long", n)
			}
			if _, err := io.ReadFull(in, head[:16]); err != nil {
				return bad("its part %q ends early", name)
			}
			skip -= 16
			kind, bits := binary.LittleEndian.Uint16(head[:]), binary.LittleEndian.Uint16(head[14:])
			channels = int(binary.LittleEndian.Uint16(head[2:]))
			if kind != 1 || bits != 16 || channels < 1 {
				return bad("format %d of %d bits and %d channels", kind, bits, channels)
			}
		case "data":
			if channels == 0 {
				return bad("samples come before their format")
			}
			samples := n / (2 * channels)
			if samples > len(dst) {
				return fmt.Errorf("%s: %d samples, model.audio_samples is %d", path, samples, len(dst))
			}
			for i := range samples {
				sum := 0.0
				for range channels {
					if _, err := io.ReadFull(in, head[:2]); err != nil {
						return bad("its part %q ends early", name)
					}
					sum += float64(int16(binary.LittleEndian.Uint16(head[:])))
				}
				dst[i] = float32(sum / float64(channels) / -math.MinInt16)
			}
			return nil
		}
		if m, err := in.Discard(skip); err != nil && m < skip-n%2 {
			return bad("its part %q ends early", name)
		}
	}
}
