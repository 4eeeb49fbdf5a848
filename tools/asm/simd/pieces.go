package main

import (
	"fmt"
	"math"
)

// pieces approximate a function of t >= 0 by a polynomial around each of the
// points 0, pieceWidth, 2 pieceWidth, ... Their coefficients lie in registers,
// 32 of a power in two, and are picked by permutation: AVX-512 code.
type pieces struct {
	name string
	c    [][pieceCount]float32 // by power, by point
}

const (
	pieceCount = 32
	pieceWidth = 13.0 / 64 // multiples are exact
	// pieceLimit is the last point. The function counts as 0 from half a width
	// before it.
	pieceLimit = (pieceCount - 1) * pieceWidth
)

// fitPieces fits f with the weight.
func fitPieces(name string, f, weight func(t float64) float64, degree int) pieces {
	p := pieces{name, make([][pieceCount]float32, degree+1)}
	for k := range pieceCount - 1 {
		at := float64(k) * pieceWidth
		around := func(g func(float64) float64) func(float64) float64 {
			return func(r float64) float64 { return g(at + r) }
		}
		for power, c := range fit(around(f), around(weight), math.Max(-at, -pieceWidth/2), pieceWidth/2, degree) {
			p.c[power][k] = c
		}
	}
	return p
}

// tables loads the coefficients.
func (a *asm) tables(p pieces) [][2]vec {
	var out [][2]vec
	for power, c := range p.c {
		var t [2]vec
		for half := range t {
			var words []uint32
			for _, v := range c[half*a.lanes : (half+1)*a.lanes] {
				words = append(words, math.Float32bits(v))
			}
			t[half] = a.vec()
			a.VMOVUPS(a.data(fmt.Sprintf("%s_%d_%d", p.name, power, half), words...), t[half])
		}
		out = append(out, t)
	}
	return out
}

// piece evaluates the polynomials at 0 <= t <= pieceLimit or NaN.
func (a *asm) piece(tables [][2]vec, t vec) vec {
	index := a.fresh(roundMagic)
	a.mulAddInto(index, t, a.k(1/pieceWidth))
	r := a.dup(t)
	a.mulSubInto(r, a.sub(index, a.k(roundMagic)), a.k(pieceWidth))
	var y vec
	for power := len(tables) - 1; power >= 0; power-- {
		c := a.dup(index)
		a.VPERMI2PS(tables[power][1], tables[power][0], c)
		if y == nil {
			y = c
		} else {
			y = a.mulAdd(y, r, c)
		}
	}
	return y
}
