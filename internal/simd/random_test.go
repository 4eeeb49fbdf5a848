package simd

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/isa"
)

// The known answers are those published with the Random123 library
// (kat_vectors, philox4x32 with 10 rounds).
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox4x32(c.counter, c.key); got != c.want {
			t.Errorf("philox4x32(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
		seed := uint64(c.key[0]) | uint64(c.key[1])<<32
		stream := uint64(c.counter[2]) | uint64(c.counter[3])<<32
		block := uint64(c.counter[0]) | uint64(c.counter[1])<<32
		if block > math.MaxUint64/4 {
			continue // not reachable: element numbers are 64-bit
		}
		eachLevel(t, func(t *testing.T) {
			var got [4]uint32
			Philox(got[:], seed, stream, 4*block)
			if got != c.want {
				t.Errorf("Philox(%x, %x, %x) = %x, want %x", seed, stream, 4*block, got, c.want)
			}
		})
	}
}

// TestRandomPure checks that element i is a function only of seed, stream and i, the same
// at every level, whatever slice it is requested with.
func TestRandomPure(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	level = isa.Portable
	const n = 700
	const seed, stream, far = 0x0123456789abcdef, 0xfedcba9876543210, 1<<34 - 99 // the block number passes 2^32
	words := make([]uint32, n)
	Philox(words, seed, stream, far)
	floats := map[string]func(dst []float32, start uint64){
		"UniformF32":  func(dst []float32, start uint64) { UniformF32(dst, seed, stream, start) },
		"NormalF32":   func(dst []float32, start uint64) { NormalF32(dst, seed, stream, start) },
		"DropoutMask": func(dst []float32, start uint64) { DropoutMask(dst, seed, stream, start, 0.9) },
	}
	want := map[string][]float32{}
	for name, f := range floats {
		want[name] = make([]float32, n)
		f(want[name], far)
	}
	eachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			from := rapid.IntRange(0, n).Draw(t, "from")
			to := rapid.IntRange(from, n).Draw(t, "to")
			got := make([]uint32, to-from+1)
			got[to-from] = 0x5a5a5a5a
			Philox(got[:to-from], seed, stream, far+uint64(from))
			for i, w := range got[:to-from] {
				if w != words[from+i] {
					t.Fatalf("word %d is %08x, want %08x", from+i, w, words[from+i])
				}
			}
			if got[to-from] != 0x5a5a5a5a {
				t.Fatalf("wrote past the end")
			}
			for name, f := range floats {
				part := make([]float32, to-from)
				f(part, far+uint64(from))
				if i := differ(part, want[name][from:to]); i >= 0 {
					t.Fatalf("%s: element %d is %g, want %g", name, from+i, part[i], want[name][from+i])
				}
			}
		})
	})
}

// TestRandomMoments checks the distributions: means and variances within five
// standard errors, the extent of the values, and that seeds and streams differ.
func TestRandomMoments(t *testing.T) {
	const n = 1 << 20
	x := make([]float32, n)
	moments := func() (mean, variance float64) {
		mean = SumF64(x) / n
		return mean, SumSqF64(x)/n - mean*mean
	}
	within := func(name string, got, want, sd float64) {
		t.Helper()
		if math.Abs(got-want) > 5*sd/math.Sqrt(n) {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	UniformF32(x, 1, 2, 3)
	mean, variance := moments()
	within("mean of UniformF32", mean, 0.5, math.Sqrt(1.0/12))
	within("variance of UniformF32", variance, 1.0/12, math.Sqrt(1.0/180))
	if lo, hi := slices.Min(x), slices.Max(x); lo < 0 || hi >= 1 || lo > 1e-4 || hi < 1-1e-4 {
		t.Errorf("UniformF32 spans %g to %g", lo, hi)
	}

	NormalF32(x, 1, 2, 3)
	mean, variance = moments()
	within("mean of NormalF32", mean, 0, 1)
	within("variance of NormalF32", variance, 1, math.Sqrt2)
	fourth := 0.0
	for _, v := range x {
		fourth += float64(v) * float64(v) * float64(v) * float64(v) / n
	}
	within("fourth moment of NormalF32", fourth, 3, math.Sqrt(96))

	DropoutMask(x, 1, 2, 3, 0.75)
	mean, _ = moments()
	within("mean of DropoutMask", mean, 1, math.Sqrt(1.0/3))
	for i, v := range x {
		if v != 0 && v != 1/float32(0.75) {
			t.Fatalf("DropoutMask wrote %g at %d", v, i)
		}
	}
	DropoutMask(x[:1000], 1, 2, 3, 1)
	if Sum(x[:1000]) != 1000 {
		t.Error("DropoutMask with keepProb 1 dropped something")
	}
	DropoutMask(x[:1000], 1, 2, 3, 0)
	if MaxValue(x[:1000]) != 0 {
		t.Error("DropoutMask with keepProb 0 kept something")
	}

	var a, b, c [64]uint32
	Philox(a[:], 1, 1, 0)
	Philox(b[:], 1, 2, 0)
	Philox(c[:], 2, 1, 0)
	if a == b || a == c || b == c {
		t.Error("two streams or seeds give the same words")
	}
}

// TestNormalAccuracy compares the normal numbers with the formula in float64.
func TestNormalAccuracy(t *testing.T) {
	words, z := make([]uint32, 1<<16), make([]float32, 1<<16)
	Philox(words, 5, 6, 0)
	NormalF32(z, 5, 6, 0)
	worst := 0.0
	for i := 0; i < len(z); i += 2 {
		radius := math.Sqrt(-2 * math.Log(float64(words[i]>>8+1)*0x1p-24))
		sin, cos := math.Sincos(2 * math.Pi * float64(words[i+1]>>8) * 0x1p-24)
		worst = max(worst, math.Abs(float64(z[i])-radius*cos), math.Abs(float64(z[i+1])-radius*sin))
	}
	t.Logf("largest error %.3g", worst)
	if worst > 1e-6 {
		t.Errorf("NormalF32 is off by %g", worst)
	}
}
