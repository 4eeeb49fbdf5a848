package cpu

import "testing"

// Gain makes libraries be chosen if they are g times as fast, until the test ends: always
// with 0. Measurements are brief.
func Gain(t *testing.T, g float64) {
	was, turn := gain, turnFLOPs
	gain, turnFLOPs = g, 0
	t.Cleanup(func() { gain, turnFLOPs = was, turn })
}
