//go:build fakegpu

package backend

import (
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// A build with the tag fakegpu has a T4 whose kernels are interpreted: bench/gpu.sh
// is tried with it where no card is.
func init() { UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}) }
