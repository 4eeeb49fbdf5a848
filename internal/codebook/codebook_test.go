package codebook

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/internal/simd"
)

// The values of bitsandbytes 0.49's create_dynamic_map.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		book *Book
		at   int
		want float32
	}{
		{Signed, 0, -0.99296877}, {Signed, 126, -5.5e-07}, {Signed, 127, 0}, {Signed, 128, 5.5e-07}, {Signed, 254, 0.99296877}, {Signed, 255, 1},
		{Unsigned, 0, 0}, {Unsigned, 1, 3.25e-07}, {Unsigned, 2, 7.75e-07}, {Unsigned, 254, 0.9964844}, {Unsigned, 255, 1},
	} {
		if got := c.book.Values[c.at]; math.Abs(float64(got-c.want)) > 1e-6*math.Abs(float64(c.want)) {
			t.Errorf("entry %d is %g, want %g", c.at, got, c.want)
		}
	}
}

// expected returns what a search finds, except that no number above 0 becomes 0.
func expected(b *Book, x float32) uint32 {
	if code := b.search(x); x <= 0 || code > 0 {
		return code
	}
	return 1
}

func nearest(b *Book, x float32) uint32 {
	var codes [1]uint8
	simd.Encode8(codes[:], []float32{x}, &b.Codes8, 1)
	return uint32(codes[0])
}

// Every entry is its own nearest, and any number gets what a search finds.
func TestNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range []*Book{Signed, Unsigned} {
		for i, v := range b.Values {
			if got := nearest(b, v); int(got) != i {
				t.Errorf("the nearest to entry %d is %d", i, got)
			}
		}
		for range 1_000_000 {
			x := float32(math.Pow(10, -9*rng.Float64()))
			if rng.IntN(2) == 0 {
				x = rng.Float32()
			}
			if b == Signed && rng.IntN(2) == 0 {
				x = -x
			}
			if got, want := nearest(b, x), expected(b, x); got != want {
				t.Fatalf("the nearest to %g is %d, want %d", x, got, want)
			}
		}
		for i := range 255 { // on both sides of every boundary
			x := b.Above[i]
			for _, x := range []float32{math.Nextafter32(x, -2), x, math.Nextafter32(x, 2)} {
				if got, want := nearest(b, x), expected(b, x); got != want {
					t.Errorf("the nearest to %g is %d, want %d", x, got, want)
				}
			}
		}
	}
}
