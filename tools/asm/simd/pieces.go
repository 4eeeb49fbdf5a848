package main

import "math"

// pieces approximate a function of t >= 0 by a polynomial around each of the points 0,
// width, 2 width, ... Coefficients are picked by permutation, so there are as many
// points as a permutation picks from; from one of them on the function counts as 0.
type pieces struct {
	name  string
	width float64 // multiples are exact
	// A point serves what lies from half a width before it to as much past it, all
	// moved down by this.
	before float64
	limit  float64     // t is held to it
	c      [][]float32 // by power, by point
}

// fitPieces fits f with the weight to 32 points, which lie in the middle of what they
// serve.
func fitPieces(name string, f, weight func(t float64) float64) pieces {
	const count, width = 32, 13.0 / 64
	p := newPieces(name, count, width, 5)
	p.limit = (count - 1) * width
	for k := range count - 1 {
		p.fit(k, f, weight, math.Max(0, (float64(k)-0.5)*width), (float64(k)+0.5)*width)
	}
	return p
}

// fitFewPieces does the same to 8 points at the end of what they serve, from where a
// function that falls is a sum of positive terms. Point 8, of the same coefficients as 0,
// is the one where f counts as 0.
func fitFewPieces(name string, f, weight func(t float64) float64, degree int) pieces {
	const count, width = 8, 57.0 / 64
	p := newPieces(name, count, width, degree)
	p.before = width * (0.5 + 0x1p-12) // so that 0 belongs to point 1
	p.limit = (count - 0.5) * width
	for k := 1; k < count; k++ {
		p.fit(k, f, weight, float64(k-1)*width, float64(k)*width)
	}
	return p
}
func newPieces(name string, count int, width float64, degree int) pieces {
	p := pieces{name: name, width: width, c: make([][]float32, degree+1)}
	for power := range p.c {
		p.c[power] = make([]float32, count)
	}
	return p
}

// fit fits f to point k, from lo to hi.
func (p *pieces) fit(k int, f, weight func(t float64) float64, lo, hi float64) {
	at := float64(k) * p.width
	around := func(g func(float64) float64) func(float64) float64 {
		return func(r float64) float64 { return g(at + r) }
	}
	// Where fewer powers leave next to nothing, float64 cannot tell what the others are.
	for degree := min(5, len(p.c)-1); degree < len(p.c); degree++ {
		c, worst := minimax(around(f), around(weight), lo-at, hi-at, degree)
		for power, v := range c {
			p.c[power][k] = float32(v)
		}
		if worst < 0x1p-36 {
			break
		}
	}
}

// finest is the one with the most points of those that the set picks from.
func (a *asm) finest(all ...pieces) pieces {
	var best pieces
	for _, p := range all {
		if n := len(p.c[0]); n <= a.Lookup && (best.c == nil || n > len(best.c[0])) {
			best = p
		}
	}
	return best
}

// piece evaluates the polynomials at 0 <= t <= limit or NaN.
func (a *asm) piece(p pieces, tables [][]op, t vec) vec {
	index := a.fresh(roundMagic)
	if p.before == 0 {
		a.mulAddInto(index, t, a.k(1/p.width))
	} else {
		a.mulAddInto(index, a.add(t, a.k(p.before)), a.k(1/p.width))
	}
	r := a.dup(t)
	a.mulSubInto(r, a.sub(index, a.k(roundMagic)), a.k(p.width))
	picker := a.picker(index)
	y := a.pick(tables[len(tables)-1], picker)
	for power := len(tables) - 2; power >= 0; power-- {
		y = a.mulAddOwn(y, r, a.pick(tables[power], picker))
	}
	return y
}
