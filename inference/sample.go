package inference

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how tokens are drawn.
type Sampling struct {
	Temperature float64 // 0: always the likeliest
	TopK        int     // 0: from all
	TopP        float64 // 1 (or 0): from all
	// Seed and Choice decide all draws: the choices of one prompt differ in Choice.
	Seed, Choice uint64
}

// sampler draws the tokens of one text.
type sampler struct {
	Sampling
	rng   *rand.Rand
	order []uint64 // of the tokens, likeliest first: descending logits, then ids
	p     []float64
}

func newSampler(s Sampling) *sampler {
	return &sampler{Sampling: s, rng: rand.New(rand.NewPCG(s.Seed, s.Choice))}
}

// descending maps numbers to keys in descending order of the numbers.
func descending(v float32) uint64 {
	if v == 0 {
		v = 0 // of either sign
	}
	bits := math.Float32bits(v)
	if bits>>31 == 0 {
		bits = ^bits &^ (1 << 31)
	}
	return uint64(bits)
}

// next draws a token from the logits.
func (s *sampler) next(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	if s.Temperature == 0 {
		return int32(best)
	}
	s.order = s.order[:0]
	for i, v := range logits {
		s.order = append(s.order, descending(v)<<32|uint64(i))
	}
	slices.Sort(s.order)
	n := len(s.order)
	if s.TopK > 0 {
		n = min(n, s.TopK)
	}
	s.p = s.p[:0]
	total := 0.0
	for _, key := range s.order[:n] {
		p := math.Exp(float64(logits[uint32(key)]-logits[best]) / s.Temperature)
		s.p = append(s.p, p)
		total += p
	}
	limit := total
	if s.TopP > 0 && s.TopP < 1 {
		limit = total * s.TopP
		sum := 0.0
		for i, p := range s.p {
			if sum += p; sum >= limit {
				limit = sum
				n = i + 1
				break
			}
		}
	}
	x := s.rng.Float64() * limit
	for i, p := range s.p[:n] {
		if x -= p; x < 0 {
			return int32(uint32(s.order[i]))
		}
	}
	return int32(uint32(s.order[n-1]))
}

// Likeliest returns the ids of the n greatest logits, greatest first.
func Likeliest(logits []float32, n int) []int32 {
	var top []int32
	for i, x := range logits {
		if len(top) == n && (n == 0 || x <= logits[top[n-1]]) {
			continue
		}
		at := len(top)
		for at > 0 && logits[top[at-1]] < x {
			at--
		}
		top = slices.Insert(top, at, int32(i))
		if len(top) > n {
			top = top[:n]
		}
	}
	return top
}

// LogSumExp returns the logarithm of the sum of the logits' exponentials: a logit minus
// it is the logarithm of a probability.
func LogSumExp(logits []float32) float64 {
	top := float64(slices.Max(logits))
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}
