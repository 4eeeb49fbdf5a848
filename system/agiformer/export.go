package agiformer

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
)

// export writes the adapters of a checkpoint in PEFT's layout.
func export(c *config.Config, dir, to string) ([]string, error) {
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	return config.Of[system.LoRA](c).ExportOwn(dir, net.baseOf(c), to)
}

// exportMerged writes a checkpoint with its adapters merged.
func exportMerged(c *config.Config, dir, to string) ([]string, error) {
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	return config.Of[system.LoRA](c).ExportMerged(c, dir, net.baseOf(c), net.weights(c), to)
}

// openWeights opens the weights of a checkpoint, with its adapters merged.
func openWeights(c *config.Config, dir string) (system.ReadableWeights, error) {
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	return config.Of[system.LoRA](c).OpenWeights(dir, net.baseOf(c), graph.Invalid, net.weights(c))
}

// weights returns a function that builds the model as in training, to get its weights.
func (m Net) weights(c *config.Config) func(b *graph.Builder) {
	return func(b *graph.Builder) {
		m.objective(b, system.Shape{MicroBatch: 1}, c.Data.SeqLen, 0, 1, false, false)
	}
}
