package ref

import "github.com/snug-ml/snug/engine/graph"

// philox is one block of Philox4x32-10 (Salmon et al. 2011).
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range 10 {
		a := uint64(c[0]) * 0xd2511f53
		b := uint64(c[2]) * 0xcd9e8d57
		c = [4]uint32{
			uint32(b>>32) ^ c[1] ^ k[0], uint32(b),
			uint32(a>>32) ^ c[3] ^ k[1], uint32(a),
		}
		k[0] += 0x9e3779b9
		k[1] += 0xbb67ae85
	}
	return c
}

// word is the random word of element i: word i mod 4 of the block with counter
// (i/4 low, i/4 high, stream, run).
func word(seed, i uint64, stream, run uint32) uint32 {
	block := i / 4
	c := [4]uint32{uint32(block), uint32(block >> 32), stream, run}
	return philox(c, [2]uint32{uint32(seed), uint32(seed >> 32)})[i%4]
}

// mask is the factor of element i under dropout with probability p: 1/(1-p) if the upper
// 24 bits of its random word, as a fraction, are below 1-p in float32, else 0. rng is the
// run counter.
func mask(p float64, seed, i uint64, stream uint32, rng tensor) float64 {
	w := word(seed, i, stream, uint32(int32(rng.data[0])))
	if float32(w>>8)*0x1p-24 < float32(1-p) {
		return 1 / (1 - p)
	}
	return 0
}

func dropout(op graph.Dropout, x, rng tensor) []float64 {
	y := make([]float64, len(x.data))
	for i, v := range x.data {
		if s := mask(op.P, op.Seed, op.First+uint64(i), op.Stream, rng); s != 0 {
			y[i] = v * s
		}
	}
	return y
}
