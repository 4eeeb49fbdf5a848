//go:build fakegpu

package cuda_test

import (
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// With this tag engine/backend does the same.
func init() {
	openDriver = func() (driver.Driver, error) { return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}, nil }
}
