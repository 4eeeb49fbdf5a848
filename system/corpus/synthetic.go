package corpus

import (
	"math/rand/v2"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
)

// Synthetic returns a generator of inputs for a language model with vocab tokens: windows full of random
// tokens, in which every label counts and each window is one document.
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
