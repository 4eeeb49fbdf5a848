package graph

import "fmt"

// Rounding says how an optimizer's step stores a weight.
type Rounding struct {
	Mode RoundingMode
	// Seed and Stream select the random bits of [Stochastic], and of the second moments of
	// [AdamW8bit] in every mode. Those of an element are 16 of the Philox4x32-10 block with
	// key Seed (low word first) and the counter words i/8 low, i/8 high, Stream and t, where i
	// is the element of the whole weight and t the number of the update: the lower (i even) or
	// upper half of word i/2 mod 4. A resumed run draws the same.
	Seed   uint64
	Stream uint32
	// First is which element of the whole weight is the first of the step's: a multiple of 8.
	First int64
}

// RoundingMode is the format of a weight and what happens to the bits that it cannot
// hold.
type RoundingMode uint8

const (
	// Exact means that the weight is F32, and nothing is rounded away.
	Exact RoundingMode = iota
	// Stochastic means that the weight is BF16, and is rounded up or down with probabilities
	// given by the distances, so that small steps count on average. The 16 random bits of the
	// element are added to the bits of the float32 result, and the lower 16 bits are dropped.
	Stochastic
	// Compensated means that the weight is BF16, and its rounding error is kept in one more
	// state, the last, also BF16; the next step starts from their sum (Kahan summation, as
	// applied by Zamirai et al. 2020, arXiv:2010.06192, section 4).
	Compensated
)

// randomStream keeps the streams of roundings apart from those of [Builder.Stream].
const randomStream = 1 << 31

// SecondMoments is added to the number of the update for the random bits of second moments.
const SecondMoments = 1 << 31

// WeightStream is the stream of a weight, by its name.
func WeightStream(name string) uint32 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h | randomStream
}

// shared is r without what is specific to a weight.
func (r Rounding) shared() Rounding {
	r.Stream, r.First = 0, 0
	return r
}

// states is how many states a step has for its rounding.
func (r Rounding) states() int {
	if r.Mode == Compensated {
		return 1
	}
	return 0
}

// weight checks the format of a weight, and appends the state of the rounding to the
// step's states.
func (r Rounding) weight(w Type, states []Type) (all []Type, wrong error) {
	want := F32
	if r.Mode != Exact {
		want = BF16
	}
	switch {
	case w.DType != want:
		wrong = fmt.Errorf("operand 0 is %v, want %v", w, want)
	case r.First%8 != 0:
		wrong = fmt.Errorf("begins at element %d of its weight, within a block of random numbers", r.First)
	}
	if r.Mode == Compensated {
		states = append(states, w)
	}
	return states, wrong
}
