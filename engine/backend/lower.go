package backend

import (
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
)

// Lower gives the kernels of nodes on a card that may be absent; nil where snug has none for it.
func Lower(card *device.Card) engine.Lowering {
	return cuda.Lower(10*card.Capability.Major+card.Capability.Minor, card.SMs)
}
