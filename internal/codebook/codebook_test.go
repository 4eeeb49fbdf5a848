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
		{&Signed.Book, 0, -0.99296877}, {&Signed.Book, 126, -5.5e-07}, {&Signed.Book, 127, 0}, {&Signed.Book, 128, 5.5e-07}, {&Signed.Book, 254, 0.99296877}, {&Signed.Book, 255, 1},
		{&Unsigned.Book, 0, 0}, {&Unsigned.Book, 1, 3.25e-07}, {&Unsigned.Book, 2, 7.75e-07}, {&Unsigned.Book, 254, 0.9964844}, {&Unsigned.Book, 255, 1},
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

func encoded(b *Book, x float32) uint32 {
	var codes [1]uint8
	simd.Encode8(codes[:], []float32{x}, &b.Codes8, 1)
	return uint32(codes[0])
}

// The tables give every number what a search finds, and an entry its own code.
func TestCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range []*Book{&Signed.Book, &Unsigned.Book} {
		for i, v := range b.Values {
			// At random, the next is taken above any part of the way to it.
			if got := encoded(b, v); int(got) != i && (b == &Signed.Book || i > 1 && int(got) != i-1) {
				t.Errorf("entry %d gets the code %d", i, got)
			}
		}
		for range 1_000_000 {
			x := float32(math.Pow(10, -9*rng.Float64()))
			if rng.IntN(2) == 0 {
				x = rng.Float32()
			}
			if b == &Signed.Book && rng.IntN(2) == 0 {
				x = -x
			}
			if got, want := encoded(b, x), expected(b, x); got != want {
				t.Fatalf("%g gets the code %d, want %d", x, got, want)
			}
		}
		for i := range 255 { // on both sides of every boundary
			x := b.Above[i]
			for _, x := range []float32{math.Nextafter32(x, -2), x, math.Nextafter32(x, 2)} {
				if got, want := encoded(b, x), expected(b, x); got != want {
					t.Errorf("%g gets the code %d, want %d", x, got, want)
				}
			}
		}
	}
}

// A number is stored as the entry above or below it, which has it as its mean; an entry as itself.
func TestStochastic(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := make([]uint16, 1<<16)
	for i := range random {
		random[i] = uint16(i)
	}
	draws := func(v float32) map[float32]int {
		x, codes := make([]float32, len(random)+1), make([]uint8, len(random)+1)
		for i := range random {
			x[i] = v
		}
		x[len(random)] = 1 // the scale
		if scale := Unsigned.Encode(codes, x, append(random[:len(random):len(random)], 0)); scale != 1 {
			t.Fatalf("the scale is %g", scale)
		}
		count := map[float32]int{}
		for _, c := range codes[:len(random)] {
			count[Unsigned.Values[c]]++
		}
		return count
	}
	for i, v := range Unsigned.Values {
		if got := draws(v); len(got) != 1 || got[v] == 0 {
			t.Errorf("entry %d becomes %v", i, got)
		}
	}
	if got := draws(1e-9); len(got) != 1 || got[Unsigned.Values[1]] == 0 {
		t.Errorf("1e-9 becomes %v, want %g", got, Unsigned.Values[1])
	}
	for range 200 {
		v := float32(math.Pow(10, -6*rng.Float64()))
		c := Unsigned.search(v)
		mean, width := 0.0, float64(Unsigned.Values[c+1]-Unsigned.Values[c])
		for x, n := range draws(v) {
			if x != Unsigned.Values[c] && x != Unsigned.Values[c+1] {
				t.Errorf("%g becomes %g", v, x)
			}
			mean += float64(x) * float64(n) / float64(len(random))
		}
		if off := math.Abs(mean - float64(v)); off > 1.01*width/float64(len(random)) {
			t.Errorf("the mean of all roundings of %g is off by %g of the entries' distance", v, off/width)
		}
	}
}
