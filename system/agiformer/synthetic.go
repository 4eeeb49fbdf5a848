package agiformer

import (
	"math/rand/v2"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
)

// synthetic generates windows of random bytes, and noise for every sense.
func synthetic(c *config.Config) system.Synthetic {
	vocab := config.Of[Model](c).VocabSize
	if net, err := network(c); err == nil { // Describe has reported any error
		vocab = net.Vocab
	}
	text := corpus.Synthetic(vocab)
	return system.Synthetic{Fill: func(rng *rand.Rand, name string, t engine.Tensor) bool {
		switch name {
		case modImage, modVideo:
			system.FillNormal(rng, t.F32())
		case modAudio:
			for i, x := 0, t.F32(); i < len(x); i++ {
				x[i] = 2*rng.Float32() - 1
			}
		default:
			return text(rng, name, t)
		}
		return true
	}}
}
