package dynamo

import (
	"fmt"

	"github.com/snug-ml/snug/config"
)

// merge adds the adapter of a task to the weights of the encoder's layers that
// it adapts; at is the memory of a weight. It returns how many these are.
func merge(c *config.Config, task string, at func(name string) []float32) (layers int, err error) {
	a, e := newAdapter(c, task), encoder(c)
	for i := range e.Layers {
		for _, l := range linears {
			if !a.targets[l.name] {
				continue
			}
			layer := fmt.Sprintf("%s.encoder.layer.%d%s", base(e), i, l.end)
			down, up := a.Weights(layer)
			if err := a.Merge(at(layer+".weight"), at(down), at(up)); err != nil {
				return layers, fmt.Errorf("%s: %w", layer, err)
			}
			layers++
		}
	}
	return layers, nil
}
