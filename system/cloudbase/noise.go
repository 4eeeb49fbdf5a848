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
	w := walk{noise: n}
	return w.at(x, y)
}

// walk is a field at one point after another: neighboring points share the corners of their cells.
type walk struct {
	noise
	cells [octaves]cell
}

// cell is the lattice cell of an octave that was visited last.
type cell struct {
	visited bool
	i, j    int64
	// Its corners: (i, j), (i+1, j), (i, j+1) and (i+1, j+1).
	corners [4]float64
}

// at is the field at (x, y).
func (w *walk) at(x, y float64) float64 {
	sum, weight, total := 0.0, 1.0, 0.0
	for o := range w.cells {
		sum += weight * (w.noise+noise(o)*0x9e3779b97f4a7c15).octave(&w.cells[o], x, y)
		total += weight
		weight /= 2
		// A rotation keeps the lattices of the octaves from aligning.
		x, y = 1.6*x-1.2*y, 1.2*x+1.6*y
	}
	return sum / total
}

func (n noise) octave(c *cell, x, y float64) float64 {
	fx, fy := math.Floor(x), math.Floor(y)
	i, j := int64(fx), int64(fy)
	if !c.visited || c.i != i || c.j != j {
		c.visited, c.i, c.j = true, i, j
		c.corners[0], c.corners[1] = n.corner(i, j), n.corner(i+1, j)
		c.corners[2], c.corners[3] = n.corner(i, j+1), n.corner(i+1, j+1)
	}
	u, v := quintic(x-fx), quintic(y-fy)
	return lerp(lerp(c.corners[0], c.corners[1], u), lerp(c.corners[2], c.corners[3], u), v)
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
