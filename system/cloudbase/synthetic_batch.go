package cloudbase

import (
	"math/rand/v2"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
)

// synthetic generates windows of noise, with the brightness that data.normalize produces, the sun at daytime
// and cloud bases between the configured limits.
func synthetic(c *config.Config) system.Synthetic {
	m, d := config.Of[Model](c), config.Of[Data](c)
	low, high := max(0, d.BaseMin), d.BaseMax
	uniform := scaler{moments{(low + high) / 2, (high - low) / 3.5}, [2]moments{{45, 20}, {180, 100}}}
	patches := m.Height / m.MaskPatch * (m.Width / m.MaskPatch)
	fill := func(rng *rand.Rand, name string, t engine.Tensor) bool {
		x := t.F32()
		switch name {
		case inputImages:
			system.FillNormal(rng, x)
			if d.Normalize == "minmax" {
				for i := range x {
					x[i] = rng.Float32()
				}
			}
		case inputAngles:
			for i := range x {
				x[i] = []float32{80, 360}[i%2] * rng.Float32()
			}
		case inputBase:
			for i := range x {
				x[i] = float32(low + (high-low)*rng.Float64())
			}
		case inputMask:
			rows := t.Type.Shape[0]
			for i := range rows {
				hide(rng, x[len(x)/rows*i:len(x)/rows*(i+1)], patches, m.MaskShare)
			}
		case inputWeights:
			for i := range x {
				x[i] = 1
			}
		default:
			return false
		}
		return true
	}
	return system.Synthetic{Fill: fill, Load: uniform.set}
}
