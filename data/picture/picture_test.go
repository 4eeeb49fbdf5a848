package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// claim is an image of few bytes that claims w x h pixels.
func claimPNG(t *testing.T, w, h int, model image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, model); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	const ihdr = 8 + 4 // signature, length
	binary.BigEndian.PutUint32(raw[ihdr+4:], uint32(w))
	binary.BigEndian.PutUint32(raw[ihdr+8:], uint32(h))
	binary.BigEndian.PutUint32(raw[ihdr+4+13:], crc32.ChecksumIEEE(raw[ihdr:ihdr+4+13]))
	return raw
}

func claimJPEG(t *testing.T, w, h int, progressive bool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewRGBA(image.Rect(0, 0, 8, 8)), nil); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	at := bytes.Index(raw, []byte{0xff, 0xc0})
	if progressive {
		raw[at+1] = 0xc2
	}
	binary.BigEndian.PutUint16(raw[at+5:], uint16(h))
	binary.BigEndian.PutUint16(raw[at+7:], uint16(w))
	return raw
}

func write(t *testing.T, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func anySize(Header) error { return nil }

// An image that claims more than is allowed, or a size other than requested, costs
// nothing.
func TestClaimsAreNotAllocated(t *testing.T) {
	small := image.Rect(0, 0, 2, 2)
	palette := image.NewPaletted(small, color.Palette{color.Black, color.White})
	for name, raw := range map[string][]byte{
		"gray":        claimPNG(t, 60_000, 60_000, image.NewGray(small)),
		"gray16":      claimPNG(t, 60_000, 60_000, image.NewGray16(small)),
		"rgba":        claimPNG(t, 60_000, 60_000, image.NewNRGBA(small)),
		"rgba64":      claimPNG(t, 6_000, 6_000, image.NewNRGBA64(small)),
		"palette":     claimPNG(t, 60_000, 60_000, palette),
		"wide":        claimPNG(t, 1<<31-1, 1, image.NewGray(small)),
		"tall":        claimPNG(t, 1, 1<<31-1, image.NewGray(small)),
		"all":         claimPNG(t, 1<<31-1, 1<<31-1, image.NewGray(small)),
		"jpeg":        claimJPEG(t, 65_535, 65_535, false),
		"progressive": claimJPEG(t, 65_535, 65_535, true),
	} {
		path := write(t, raw)
		if len(raw) > 2000 {
			t.Errorf("%s: %d bytes are no bomb", name, len(raw))
		}
		for _, f := range []func() error{
			func() error { _, err := ReadHeader(path, 64<<20); return err },
			func() error { _, err := Decode(path, 64<<20, anySize); return err },
		} {
			var err error
			n := allocated(func() { err = f() })
			if err == nil || !strings.Contains(err.Error(), path) || name != "all" && !strings.Contains(err.Error(), "data.max_record") {
				t.Errorf("%s: %v", name, err)
			}
			if n > 1<<20 {
				t.Errorf("%s: %d bytes allocated for a file of %d", name, n, len(raw))
			}
		}
	}
	// What is allowed but not requested is not decoded.
	path, no := write(t, claimPNG(t, 4_000, 4_000, image.NewGray(small))), errors.New("want 32 x 32")
	var err error
	n := allocated(func() { _, err = Decode(path, 64<<20, func(Header) error { return no }) })
	if !errors.Is(err, no) || n > 1<<20 {
		t.Errorf("not wanted: %v, %d bytes", err, n)
	}
}

func TestDecode(t *testing.T) {
	deep := image.NewGray16(image.Rect(0, 0, 3, 2))
	deep.SetGray16(2, 1, color.Gray16{Y: 0x1234})
	var b bytes.Buffer
	if err := png.Encode(&b, deep); err != nil {
		t.Fatal(err)
	}
	path := write(t, b.Bytes())
	h, err := ReadHeader(path, 12)
	if err != nil || h != (Header{3, 2, true}) {
		t.Errorf("%+v, %v", h, err)
	}
	img, err := Decode(path, 12, anySize)
	if err != nil || img.(*image.Gray16).Gray16At(2, 1).Y != 0x1234 {
		t.Errorf("%v, %v", img, err)
	}
	if _, err := Decode(path, 11, anySize); err == nil || !strings.Contains(err.Error(), "12 bytes, more than the 11 allowed") {
		t.Errorf("a byte too many: %v", err)
	}
	if _, err := Decode(write(t, []byte("GIF89a")), 12, anySize); err == nil || !strings.Contains(err.Error(), "want a PNG or a JPEG") {
		t.Errorf("no picture: %v", err)
	}
}
