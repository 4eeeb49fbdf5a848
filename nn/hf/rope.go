package hf

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// The kinds of [Rope].
const (
	RopeDefault = "default"
	RopeLinear  = "linear"
	RopeDynamic = "dynamic"
	RopeLlama3  = "llama3"
	RopeYaRN    = "yarn"
)

// Rope are the rotary positions of a [Llama]: the base of the angles, and how they are
// stretched for texts longer than those the model was first trained on.
//
//   - default: not at all;
//   - linear: all frequencies are divided by Factor (Chen et al. 2023);
//   - dynamic: only beyond the model's positions, which texts here never reach;
//   - llama3: frequencies of fewer than LowFreq turns over Original positions are
//     divided by Factor, those of more than HighFreq stay (Dubey et al. 2024);
//   - yarn: likewise between BetaSlow and BetaFast turns, in steps of a pair, and cos and
//     sin are multiplied by a factor (Peng et al. 2023).
type Rope struct {
	Base              float64
	Kind              string
	Factor            float64
	Original          int
	LowFreq, HighFreq float64
	BetaFast          float64
	BetaSlow          float64
	// Attention is yarn's factor of cos and sin; 0: the paper's value for Factor, or the
	// quotient of the values for MScale and MScaleAll if both are set.
	Attention         float64
	MScale, MScaleAll float64
	// Whole rounds the ends of yarn's range of pairs to whole pairs.
	Whole bool
}

// Check reports settings that do not define angles.
func (r Rope) Check() error {
	if r.Base <= 0 {
		return wrong("rotary_base", "the base of the rotary angles is %v, want more than 0", r.Base)
	}
	switch r.Kind {
	case RopeDefault:
		return nil
	case RopeLinear, RopeDynamic, RopeLlama3, RopeYaRN:
	default:
		return wrong("rope.type", "scaling %q of rotary positions is not supported: default, linear, dynamic, llama3 and yarn are", r.Kind)
	}
	if !(r.Factor > 0) {
		return wrong("rope.factor", "want more than 0 for type %s, got %v", r.Kind, r.Factor)
	}
	stretched := r.Kind == RopeLlama3 || r.Kind == RopeYaRN
	switch {
	case stretched && (r.Original < 1 || r.Original > maxExtent):
		return wrong("rope.original_max_seq_len", "want 1 to %d for type %s, got %d", maxExtent, r.Kind, r.Original)
	case r.Kind == RopeLlama3 && !(r.LowFreq > 0 && r.HighFreq > r.LowFreq):
		return wrong("rope.high_freq_factor", "want more than low_freq_factor (%v), and that more than 0; got %v", r.LowFreq, r.HighFreq)
	case r.Kind == RopeYaRN && !(r.BetaSlow > 0 && r.BetaFast > 0 && r.Base != 1):
		return wrong("rope.beta_fast", "want beta_fast and beta_slow above 0 and a base other than 1, got %v, %v and %v", r.BetaFast, r.BetaSlow, r.Base)
	case r.Kind == RopeYaRN && (r.Attention < 0 || r.MScale < 0 || r.MScaleAll < 0):
		return wrong("rope.attention_factor", "want attention_factor, mscale and mscale_all_dim not below 0, got %v, %v and %v", r.Attention, r.MScale, r.MScaleAll)
	}
	return nil
}

// table returns the operation that makes the table of t positions for heads of dims
// dimensions.
func (r Rope) table(t, dims int) graph.RotaryTable {
	return graph.RotaryTable{T: t, Dims: dims, Base: r.Base, Scaling: r.scaling(dims)}
}

func (r Rope) scaling(dims int) graph.RotaryScaling {
	s := graph.RotaryScaling{Factor: r.Factor}
	switch r.Kind {
	case RopeLinear:
	case RopeLlama3:
		span := r.HighFreq - r.LowFreq
		s.Offset, s.PerFrequency = -r.LowFreq/span, float64(r.Original)/(2*math.Pi*span)
	case RopeYaRN:
		first, last := r.pairs(dims)
		span := last - first
		if span == 0 {
			span = 0.001
		}
		s.Offset, s.PerPair, s.Magnitude = 1+first/span, -1/span, r.magnitude()
	default:
		return graph.RotaryScaling{}
	}
	return s
}

// pairs returns the first pair of dimensions that yarn slows down and the first that it
// slows down all the way.
func (r Rope) pairs(dims int) (first, last float64) {
	d := float64(dims)
	// turning returns the pair that makes the given number of turns within the original
	// positions.
	turning := func(times float64) float64 {
		return d * math.Log(float64(r.Original)/(times*2*math.Pi)) / (2 * math.Log(r.Base))
	}
	first, last = turning(r.BetaFast), turning(r.BetaSlow)
	if r.Whole {
		first, last = math.Floor(first), math.Ceil(last)
	}
	return max(first, 0), min(last, d-1)
}

// magnitude returns yarn's factor of cos and sin.
func (r Rope) magnitude() float64 {
	of := func(scale float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return 0.1*scale*math.Log(r.Factor) + 1
	}
	switch {
	case r.Attention > 0:
		return r.Attention
	case r.MScale > 0 && r.MScaleAll > 0:
		return of(r.MScale) / of(r.MScaleAll)
	}
	return of(1)
}
