package dynamo

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
)

// synthetic generates micro-batches of the stage. In phase 3 it alternates between batches of one task and of
// all tasks, as in the middle of the curriculum.
func synthetic(c *config.Config) system.Synthetic {
	var s system.Synthetic
	if stage(c) == stageJoint {
		for _, name := range config.Of[Model](c).Tasks {
			s.Variants = append(s.Variants, name, variantMixed)
		}
	}
	s.Fill = madeUp{c}.fill
	return s
}

// madeUp generates the inputs of a configuration.
type madeUp struct{ *config.Config }

// length returns the length of the texts of rows with a tag. Each task has its own.
func (m madeUp) length(tag string) int {
	switch {
	case isTask(tag):
		return lengthOf(m.Config, tag)
	case tag == "" && isTask(stage(m.Config)):
		return lengthOf(m.Config, stage(m.Config))
	}
	return m.Data.SeqLen
}

func (m madeUp) fill(rng *rand.Rand, input string, t engine.Tensor) bool {
	name, tag, _ := strings.Cut(input, "@")
	vocab, pad := encoder(m.Config).Vocab, int32(config.Of[Model](m.Config).PadID)
	length := m.length(tag)
	ints := func(f func(i int) int) {
		for i, x := 0, t.I32(); i < len(x); i++ {
			x[i] = int32(f(i))
		}
	}
	floats := func(f func(i int) float64) {
		for i, x := 0, t.F32(); i < len(x); i++ {
			x[i] = float32(f(i))
		}
	}
	switch name {
	case inputIDs:
		system.FillIDs(rng, t.I32(), vocab, pad)
		if stage(m.Config) != stageEncoder { // the windows of the encoder stage are full
			system.PadIDs(t.I32(), length, pad)
		}
	case inputLens:
		ints(func(row int) int {
			if stage(m.Config) == stageEncoder {
				return length
			}
			return system.MadeLength(row, length)
		})
	case inputWritten:
		system.FillIDs(rng, t.I32(), vocab, pad)
	case inputNext, inputOriginal:
		ints(func(int) int { return rng.IntN(vocab) })
	case inputMasked: // the first position of each of equal parts of the batch
		part := 1 / config.Of[Phases](m.Config).MaskShare
		ints(func(i int) int { return int(float64(i) * part) })
	case inputLabel:
		ints(func(int) int { return rng.IntN(labels) })
	case inputTask:
		tasks := config.Of[Model](m.Config).Tasks
		ints(func(row int) int {
			if i := slices.Index(tasks, tag); i >= 0 {
				return i
			}
			return row * len(tasks) / len(t.I32())
		})
	case inputStart: // an answer near the front, where every text has tokens
		ints(func(row int) int { return 1 + row%(length/4+1) })
	case inputEnd:
		ints(func(row int) int { return 2 + row%(length/4+1) })
	case inputOutside:
		length = t.Type.Shape[1]
		floats(func(i int) float64 {
			if at := i % length; at < 1 || at >= length-length/4 {
				return unlikely
			}
			return 0
		})
	case inputNoise:
		floats(func(int) float64 { return -math.Log(-math.Log(max(rng.Float64(), 1e-12))) })
	case inputTau:
		floats(func(int) float64 { return config.Of[Router](m.Config).GumbelTemperature })
	case inputWeights, inputShare:
		floats(func(int) float64 { return 1 })
	default:
		return false
	}
	return true
}
