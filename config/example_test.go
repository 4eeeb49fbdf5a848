package config_test

import (
	"fmt"

	"github.com/snug-ml/snug/config"
)

// Model is the model section of a system.
type Model struct {
	DModel int `key:"d_model" min:"1" help:"width of the residual stream"`
	NHeads int `key:"n_heads" min:"1" help:"attention heads"`
}

func Example() {
	tiny := config.System{
		Name: "tiny",
		Help: "an example",
		Sections: func() []config.Section {
			return []config.Section{{Name: "model", Values: &Model{DModel: 256, NHeads: 4}}}
		},
		Check: func(c *config.Config, r *config.Report) {
			if m := config.Of[Model](c); m.DModel%m.NHeads != 0 {
				r.Error("model.d_model", "want a multiple of model.n_heads (%d), got %d", m.NHeads, m.DModel)
			}
		},
	}
	load := func(args ...string) {
		overrides, _ := config.SplitFlags(args)
		c, err := config.Load(config.Sources{Systems: []config.System{tiny}, Overrides: overrides})
		if err != nil {
			fmt.Println(err)
			return
		}
		origin, _ := c.Origin("model.d_model")
		fmt.Println(config.Of[Model](c).DModel, origin)
	}
	load()
	load("--model.d_model", "64")
	load("--model.d_model=65")
	load("--training.epochs=1e-3", "--model.d_modle=64")
	// Output:
	// 256 default
	// 64 --model.d_model
	// --model.d_model: want a multiple of model.n_heads (4), got 65
	// --training.epochs: written training.max_steps here: runs are counted in updates, not epochs: epochs x examples / (batch_size x gradient_accumulation_steps)
	// --model.d_modle: unknown key, did you mean model.d_model?
}
