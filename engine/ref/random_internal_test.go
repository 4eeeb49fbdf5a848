package ref

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			ctr: [4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, key: [2]uint32{0xffffffff, 0xffffffff},
			want: [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			ctr: [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, key: [2]uint32{0xa4093822, 0x299f31d0},
			want: [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

// The CPU's random numbers are the same numbers: its 64-bit stream is the run
// counter above the operation's stream.
func TestRandomAgreesWithCPU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, start := rapid.Uint64().Draw(t, "seed"), rapid.Uint64Range(0, 1<<62).Draw(t, "start")
		stream, run := rapid.Uint32().Draw(t, "stream"), rapid.Int32().Draw(t, "run")
		p := rapid.SampledFrom([]float64{0.1, 0.25, 0.5, 0.9}).Draw(t, "p")
		long := uint64(uint32(run))<<32 | uint64(stream)
		words := make([]uint32, 9)
		masks := make([]float32, 9)
		simd.Philox(words, seed, long, start)
		simd.DropoutMask(masks, seed, long, start, float32(1-p))
		rng := tensor{graph.T(graph.I32, 2), []float64{float64(run), 0}}
		for i := range words {
			if w := word(seed, start+uint64(i), stream, uint32(run)); w != words[i] {
				t.Fatalf("word %d is %x, the CPU's %x", i, w, words[i])
			}
			if m := mask(p, seed, start+uint64(i), stream, rng); (m != 0) != (masks[i] != 0) {
				t.Fatalf("mask %d is %v, the CPU's %v", i, m, masks[i])
			}
		}
	})
}

// The share of elements that are kept is 1-P within four standard deviations.
func TestDropoutShare(t *testing.T) {
	const n = 100_000
	x := tensor{graph.T(graph.F32, n), make([]float64, n)}
	for i := range x.data {
		x.data[i] = 1
	}
	kept := 0
	for _, v := range dropout(graph.Dropout{P: 0.3, Seed: 8, Stream: 2}, x, tensor{data: []float64{5, 0}}) {
		if v != 0 {
			kept++
		}
	}
	if d := kept - 70_000; d*d > 16*21_000 {
		t.Errorf("%d of %d elements stay, want about 70000", kept, n)
	}
}
