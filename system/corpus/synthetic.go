package corpus

import (
	"math/rand/v2"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
)

// Synthetic generates an input of a language model with vocab tokens: windows
// full of random ones, every label counted, each window one document.
func Synthetic(vocab int) func(rng *rand.Rand, name string, t engine.Tensor) bool {
	return func(rng *rand.Rand, name string, t engine.Tensor) bool {
		switch name {
		case InputIDs, InputLabels:
			system.FillIDs(rng, t.I32(), vocab, -1)
		case InputWeights:
			x := t.F32()
			for i := range x {
				x[i] = 1
			}
		case InputSegments:
			clear(t.I32())
		default:
			return false
		}
		return true
	}
}
