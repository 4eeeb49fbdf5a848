package codebook

import (
	"math"
	"math/rand/v2"
	"slices"
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

// Decoding gives the numbers of the tables bit for bit.
func TestDecode(t *testing.T) {
	codes, got := make([]uint8, 256), make([]float32, 256)
	for i := range codes {
		codes[i] = uint8(i)
	}
	for name, decode := range map[string]func(){
		"signed":   func() { Signed.Decode(got, codes, 1) },
		"unsigned": func() { Unsigned.Decode(got, codes, 1) },
	} {
		decode()
		want := Signed.Values
		if name == "unsigned" {
			want = Unsigned.Values
		}
		for i, x := range got {
			if math.Float32bits(x) != math.Float32bits(want[i]) {
				t.Errorf("%s: code %d is %g, want %g", name, i, x, want[i])
			}
		}
	}
}

// samples are random numbers of all sizes and those on both sides of the boundaries of a book.
func samples(b *Book, least float64) (x []float32) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		x = append(x, float32(math.Pow(10, -9*rng.Float64())), rng.Float32(), float32(math.Max(least, -1)*rng.Float64()))
	}
	for i := range 255 {
		for _, v := range []float32{b.Values[i], b.Above[i]} {
			x = append(x, math.Nextafter32(v, -2), v, math.Nextafter32(v, 2))
		}
	}
	return append(slices.DeleteFunc(x, func(v float32) bool { return float64(v) < least || v > 1 }), 1)
}

// Any number gets the nearest code, and any of the two nearest where they are as near but for a
// thousandth of their distance.
func TestNearest(t *testing.T) {
	x := samples(&Signed.Book, -1)
	codes := make([]uint8, len(x))
	simd.EncodeSigned8(codes, x, 1)
	for i, v := range x {
		want, _ := slices.BinarySearch(Signed.Above[:255], v)
		least := min(int(codes[i]), want)
		if int(codes[i]) != want && (max(int(codes[i]), want) > least+1 || math.Abs(float64(v-Signed.Above[least])) > 1e-3*float64(Signed.Values[least+1]-Signed.Values[least])) {
			t.Fatalf("the nearest to %g is %d, want %d", v, codes[i], want)
		}
	}
}

// A number is stored as the entry above or below it, as often as the distances say, and an entry
// as itself.
func TestStochastic(t *testing.T) {
	x := samples(&Unsigned.Book, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	codes, random := make([]uint8, len(x)), make([]uint16, len(x))
	for i := range random {
		random[i] = uint16(rng.Uint32())
	}
	simd.EncodeUnsigned8(codes, x, random, 1)
	for i, v := range x {
		above, exact := slices.BinarySearch(Unsigned.Values[:], v)
		want := above
		if v > 0 && !exact && above > 1 {
			low, high := float64(Unsigned.Values[above-1]), float64(Unsigned.Values[above])
			way := (float64(v)-low)/(high-low) - (float64(random[i])+0.5)/65536
			if math.Abs(way) < 1e-3 {
				continue // either
			}
			if way < 0 {
				want--
			}
		}
		if int(codes[i]) != want {
			t.Fatalf("%g with random bits %d gets the code %d, want %d", v, random[i], codes[i], want)
		}
	}
}

// The scale of a block is its largest magnitude, and whatever it is, the mean of all roundings of
// a number is the number.
func TestMean(t *testing.T) {
	const n = 1 << 16
	x, codes, random := make([]float32, n+1), make([]uint8, n+1), make([]uint16, n+1)
	for i := range n {
		random[i] = uint16(i)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		v, top := math.Pow(10, -6*rng.Float64()), float32(math.Exp(10*rng.NormFloat64()))
		for i := range n {
			x[i] = float32(v * float64(top))
		}
		x[n] = top
		scale := Unsigned.Encode(codes, x, random)
		if scale != top {
			t.Fatalf("the scale is %g, want %g", scale, top)
		}
		Unsigned.Decode(x, codes, scale)
		mean := 0.0
		for _, y := range x[:n] {
			mean += float64(y) / float64(scale) / n
		}
		above, _ := slices.BinarySearch(Unsigned.Values[:], float32(v))
		width := float64(Unsigned.Values[above] - Unsigned.Values[above-1])
		if off := math.Abs(mean - v); off > 1e-3*width {
			t.Errorf("the mean of all roundings of %g is off by %g of the entries' distance", v, off/width)
		}
	}
}
