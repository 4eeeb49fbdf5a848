package simd

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/isa"
)

// special are the values at which vector code goes wrong first.
var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 2, -2,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
	0x1p-126, -0x1p-126, 0x1.fffffcp-127, 88.72284, -103.97, -87.3, 9, -9, 14.5, -14.5, 104, 65504, 65519.996, 65520,
	0x1p-24, 0x1p-25, 0x1.8p-25, 1e5, -1e5, 1.0000001e5, 3e38,
}

// sample fills x with ordinary numbers, wide ones and special ones.
func sample(r *rand.Rand, x []float32) {
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] = special[r.IntN(len(special))]
		case 1:
			x[i] = math.Float32frombits(r.Uint32())
		default:
			x[i] = float32(r.NormFloat64() * 3)
		}
	}
}

// bitsEqual reports whether two values are the same, all NaNs being one.
func bitsEqual(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// guarded returns a slice of n elements that starts at an odd place and is
// followed by canaries, and a function that checks them.
func guarded(t *testing.T, n int) (s []float32, check func()) {
	const before, after = 3, 40
	all := make([]float32, before+n+after)
	for i := range all {
		all[i] = float32(1000 + i)
	}
	return all[before : before+n : before+n], func() {
		t.Helper()
		for i, v := range all {
			if (i < before || i >= before+n) && v != float32(1000+i) {
				t.Fatalf("n=%d: wrote element %d", n, i-before)
			}
		}
	}
}

// lengths covers every remainder of the unrolled loops, and a few long slices.
func lengths() []int {
	var out []int
	for n := range 131 {
		out = append(out, n)
	}
	return append(out, 255, 1000, 4097)
}

func (e elementwise) sampled(r *rand.Rand, n int) [][]float32 {
	in := make([][]float32, e.inputs)
	for j := range in {
		in[j] = make([]float32, n)
		sample(r, in[j])
	}
	return in
}

// TestElementwiseLevels compares every level with portable Go: to the bit if the package
// promises so, otherwise the other levels to the bit with the lowest with assembly, and that
// one, and AVX-512 if it has its own form, with itself, one element at a time (the ulp tests
// compare them with the mathematical value).
func TestElementwiseLevels(t *testing.T) {
	for _, e := range elementwiseTable {
		t.Run(e.name, func(t *testing.T) {
			defer func(l isa.Level) { level = l }(level)
			r := rand.New(rand.NewPCG(1, 2))
			for _, n := range lengths() {
				in := e.sampled(r, n)
				from := 0
				if !e.exact() {
					from = min(1, len(Levels())-1)
				}
				base := Levels()[from]
				level = base
				want := make([]float32, n)
				e.run(want, in)
				for _, level = range Levels()[from:] {
					got, check := guarded(t, n)
					e.run(got, in)
					check()
					if !e.exact() && (level == base || e.assembly != 0) {
						for i := range want {
							one := make([][]float32, e.inputs)
							for j := range one {
								one[j] = in[j][i : i+1]
							}
							e.run(want[i:i+1], one)
						}
					}
					for i := range got {
						if !bitsEqual(got[i], want[i]) {
							t.Fatalf("%v, n=%d: element %d of %s is %g (%08x), want %g (%08x) as at level %v", level, n, i,
								e.describe(in, i), got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]), base)
						}
					}
				}
			}
		})
	}
}

// TestSameBits compares AVX2 and NEON, of which no machine has both, with what both
// computed when this was written.
func TestSameBits(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	if len(Levels()) == 1 {
		t.Skip("this CPU has no assembly")
	}
	level = Levels()[1]
	sum, r := fnv.New64a(), rand.New(rand.NewPCG(7, 8))
	for _, e := range elementwiseTable {
		if e.exact() {
			continue
		}
		for range 20 {
			out := make([]float32, 331)
			e.run(out, e.sampled(r, len(out)))
			for _, v := range out {
				if v != v { // any NaN is as good as another
					v = 0
				}
				if err := binary.Write(sum, binary.LittleEndian, v); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if got, want := sum.Sum64(), uint64(0x475705f3b751ce42); got != want {
		t.Errorf("%v gives %#x, want %#x", level, got, want)
	}
}

// describe prints a call.
func (e elementwise) describe(in [][]float32, i int) string {
	s := e.name + "("
	for j := range in {
		if j > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%g", in[j][i])
	}
	return s + ")"
}

// TestElementwiseSplit checks that a result does not depend on the slice an
// element is part of, nor on dst being an input.
func TestElementwiseSplit(t *testing.T) {
	for _, e := range elementwiseTable {
		t.Run(e.name, func(t *testing.T) {
			eachLevel(t, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					n := rapid.IntRange(0, 300).Draw(t, "n")
					cut := rapid.IntRange(0, n).Draw(t, "cut")
					seed := rapid.Uint64().Draw(t, "seed")
					in := e.sampled(rand.New(rand.NewPCG(seed, 0)), n)
					want := make([]float32, n)
					e.run(want, in)
					parts := make([]float32, n)
					for _, p := range [][2]int{{0, cut}, {cut, n}} {
						var some [][]float32
						for _, x := range in {
							some = append(some, x[p[0]:p[1]])
						}
						e.run(parts[p[0]:p[1]], some)
					}
					if i := differ(parts, want); i >= 0 {
						t.Fatalf("cut at %d of %d: element %d is %g, whole %g", cut, n, i, parts[i], want[i])
					}
					for j := range in {
						if j > 0 && (e.name == "Axpy" || e.name == "gammaGrad") {
							break // the accumulator is the first input
						}
						aliased := slices.Clone(in)
						aliased[j] = slices.Clone(in[j])
						e.run(aliased[j], aliased)
						if i := differ(aliased[j], want); i >= 0 {
							t.Fatalf("dst = input %d: element %d is %g, want %g", j, i, aliased[j][i], want[i])
						}
					}
				})
			})
		})
	}
}

// differ returns the first index at which a and b differ, or -1.
func differ(a, b []float32) int {
	for i := range a {
		if !bitsEqual(a[i], b[i]) {
			return i
		}
	}
	return -1
}

func TestNoAllocation(t *testing.T) {
	f := newBuffers(2048)
	eachLevel(t, func(t *testing.T) {
		for _, e := range elementwiseTable {
			in := e.sampled(rand.New(rand.NewPCG(3, 4)), 100)
			dst := make([]float32, 100)
			if n := testing.AllocsPerRun(10, func() { e.run(dst, in) }); n != 0 {
				t.Errorf("%s allocates %v times a call", e.name, n)
			}
		}
		for _, e := range timings {
			if n := testing.AllocsPerRun(2, func() { e.run(f) }); n != 0 {
				t.Errorf("%s allocates %v times a call", e.name, n)
			}
		}
	})
}
