//go:build fakegpu

package cuda_test

import (
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// As engine/backend does it with this tag.
func init() {
	openDriver = func() (driver.Driver, error) { return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}, nil }
}
