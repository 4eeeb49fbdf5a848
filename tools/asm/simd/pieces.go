package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/operand"
)

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

// fitPieces fits f with the weight to points that lie in the middle of what they serve:
// AVX-512 picks from two registers.
func fitPieces(name string, f, weight func(t float64) float64) pieces {
	const count, width = 32, 13.0 / 64
	p := newPieces(name, count, width, 5)
	p.limit = (count - 1) * width
	for k := range count - 1 {
		p.fit(k, f, weight, math.Max(0, (float64(k)-0.5)*width), (float64(k)+0.5)*width)
	}
	return p
}

// fitFewPieces does the same to points at the end of what they serve, from where a
// function that falls is a sum of positive terms: AVX2 picks from one register. Point 8,
// of the same coefficients as 0, is the one where f counts as 0.
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

// tables returns the coefficients of each power: in registers with AVX-512, which has
// enough of them, else in memory.
func (a *asm) tables(p pieces) [][]operand.Op {
	var out [][]operand.Op
	for power, c := range p.c {
		var t []operand.Op
		for part := range len(c) / a.lanes {
			var words []uint32
			for _, v := range c[part*a.lanes : (part+1)*a.lanes] {
				words = append(words, math.Float32bits(v))
			}
			m := a.data(fmt.Sprintf("%s_%d_%d", p.name, power, part), words...)
			if !a.wide {
				t = append(t, m)
				continue
			}
			v := a.vec()
			a.VMOVUPS(m, v)
			t = append(t, v)
		}
		out = append(out, t)
	}
	return out
}

// piece evaluates the polynomials at 0 <= t <= limit or NaN.
func (a *asm) piece(p pieces, tables [][]operand.Op, t vec) vec {
	index := a.fresh(roundMagic)
	if p.before == 0 {
		a.mulAddInto(index, t, a.k(1/p.width))
	} else {
		a.mulAddInto(index, a.add(t, a.k(p.before)), a.k(1/p.width))
	}
	r := a.dup(t)
	a.mulSubInto(r, a.sub(index, a.k(roundMagic)), a.k(p.width))
	var y vec
	for power := len(tables) - 1; power >= 0; power-- {
		c := a.pick(tables[power], index)
		if y == nil {
			y = c
		} else {
			y = a.mulAdd(y, r, c)
		}
	}
	return y
}

// pick returns the elements of a table that the lowest bits of index say.
func (a *asm) pick(table []operand.Op, index vec) vec {
	if a.wide {
		c := a.dup(index)
		a.VPERMI2PS(table[1], table[0], c)
		return c
	}
	c := a.vec()
	a.VPERMPS(table[0], index, c)
	return c
}
