package moderation

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
)

// synthetic generates texts of the longest bucket, which is the one that a plan prices and the largest
// micro-batch.
func synthetic(c *config.Config) system.Synthetic {
	m, lengths := config.Of[Model](c), buckets(c)
	longest := lengths[len(lengths)-1]
	return system.Synthetic{Variants: []string{variant(longest)}, Fill: func(rng *rand.Rand, name string, t engine.Tensor) bool {
		name, _, _ = strings.Cut(name, "@")
		switch name {
		case inputIDs:
			system.FillIDs(rng, t.I32(), m.VocabSize, int32(m.PadID))
			system.PadIDs(t.I32(), longest, int32(m.PadID))
		case inputLens:
			for row, x := 0, t.I32(); row < len(x); row++ {
				x[row] = int32(system.MadeLength(row, longest))
			}
		case inputLabels:
			for i, x := 0, t.I32(); i < len(x); i++ {
				x[i] = int32(rng.IntN(labels))
			}
		case inputWeights:
			for i, x := 0, t.F32(); i < len(x); i++ {
				x[i] = 1
			}
		case inputShares:
			for i, x := 0, t.F32(); i < len(x); i++ {
				if n := system.MadeLength(i/longest, longest); i%longest < n {
					x[i] = 1 / float32(n)
				}
			}
		case inputGrams:
			for i, x := 0, t.I32(); i < len(x); i++ {
				x[i] = int32(rng.IntN(m.WideRows))
			}
		case inputPresent:
			room := gramsPerToken * longest
			for i, x := 0, t.F32(); i < len(x); i++ {
				if n := gramsPerToken * system.MadeLength(i/room, longest); i%room < n {
					x[i] = float32(1 / math.Sqrt(float64(n)))
				}
			}
		default:
			return false
		}
		return true
	}}
}
