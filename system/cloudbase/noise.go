package cloudbase

import "math"

// noise is a smooth random field in the plane, with values in [0, 1): three octaves of random values on a
// lattice of cell size 1, interpolated by a quintic (Perlin 2002). A field is a pure function of its seed, so
// any part can be computed alone.
type noise uint64

// octaves is the number of octaves. Each has twice the frequency and half the amplitude of the previous one.
const octaves = 3

// at returns the field at (x, y), with mean 1/2.
func (n noise) at(x, y float64) float64 {
	sum, weight, total := 0.0, 1.0, 0.0
	for o := range octaves {
		sum += weight * (n+noise(o)*0x9e3779b97f4a7c15).octave(x, y)
		total += weight
		weight /= 2
		// A rotation keeps the lattices of the octaves from aligning.
		x, y = 1.6*x-1.2*y, 1.2*x+1.6*y
	}
	return sum / total
}

func (n noise) octave(x, y float64) float64 {
	fx, fy := math.Floor(x), math.Floor(y)
	i, j := int64(fx), int64(fy)
	u, v := quintic(x-fx), quintic(y-fy)
	top := lerp(n.corner(i, j), n.corner(i+1, j), u)
	low := lerp(n.corner(i, j+1), n.corner(i+1, j+1), u)
	return lerp(top, low, v)
}

// corner returns the value at a lattice point.
func (n noise) corner(i, j int64) float64 {
	return float64(mix(uint64(n)^mix(uint64(i)^mix(uint64(j)*0x9e3779b97f4a7c15)))>>11) * 0x1p-53
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood 2014).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func quintic(t float64) float64 { return t * t * t * (t*(t*6-15) + 10) }

func lerp(a, b, t float64) float64 { return a + t*(b-a) }
