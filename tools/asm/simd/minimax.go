package main

import (
	"fmt"
	"math"
)

// minimax returns the polynomial c[0] + c[1]x + ... of the given degree that
// minimizes the largest weight(x)*|f(x) - p(x)| on [lo, hi], and that largest
// value, by the second algorithm of Remez (1934).
func minimax(f, weight func(float64) float64, lo, hi float64, degree int) (c []float64, worst float64) {
	n := degree + 2
	points := make([]float64, n)
	for i := range points {
		points[i] = (lo+hi)/2 - (hi-lo)/2*math.Cos(math.Pi*float64(i)/float64(n-1))
	}
	for range 30 {
		// p(x_i) + (-1)^i * e/weight(x_i) = f(x_i)
		rows := make([][]float64, n)
		for i, x := range points {
			row := make([]float64, n+1)
			power := 1.0
			for j := range degree + 1 {
				row[j] = power
				power *= x
			}
			row[n-1] = math.Pow(-1, float64(i)) / weight(x)
			row[n] = f(x)
			rows[i] = row
		}
		solution := solve(rows)
		c = solution[:degree+1]
		diff := func(x float64) float64 { return weight(x) * (f(x) - eval(c, x)) }
		next := extrema(diff, lo, hi, n)
		worst = 0
		best := math.Inf(1)
		for _, x := range next {
			worst, best = max(worst, math.Abs(diff(x))), min(best, math.Abs(diff(x)))
		}
		points = next
		if worst-best < 1e-3*worst {
			break
		}
	}
	return c, worst
}

// extrema returns n points of [lo, hi] where diff alternates in sign and is
// largest in size: one of each run of equal sign on a fine grid.
func extrema(diff func(float64) float64, lo, hi float64, n int) []float64 {
	const grid = 20000
	var points []float64
	var last float64
	for i := range grid + 1 {
		x := lo + (hi-lo)*float64(i)/grid
		d := diff(x)
		switch {
		case len(points) == 0 || math.Signbit(d) != math.Signbit(last):
			points = append(points, x)
			last = d
		case math.Abs(d) > math.Abs(last):
			points[len(points)-1] = x
			last = d
		}
	}
	for len(points) > n { // drop the smaller end
		if math.Abs(diff(points[0])) < math.Abs(diff(points[len(points)-1])) {
			points = points[1:]
		} else {
			points = points[:len(points)-1]
		}
	}
	if len(points) < n {
		panic(fmt.Sprintf("minimax: %d alternations on [%g, %g], want %d: degree too high for float64", len(points), lo, hi, n))
	}
	return points
}

// solve solves the linear system of rows (last column: right side) by Gaussian
// elimination with row pivoting.
func solve(rows [][]float64) []float64 {
	n := len(rows)
	for k := range n {
		pivot := k
		for i := k + 1; i < n; i++ {
			if math.Abs(rows[i][k]) > math.Abs(rows[pivot][k]) {
				pivot = i
			}
		}
		rows[k], rows[pivot] = rows[pivot], rows[k]
		for i := k + 1; i < n; i++ {
			factor := rows[i][k] / rows[k][k]
			for j := k; j <= n; j++ {
				rows[i][j] -= factor * rows[k][j]
			}
		}
	}
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		x[i] = rows[i][n]
		for j := i + 1; j < n; j++ {
			x[i] -= rows[i][j] * x[j]
		}
		x[i] /= rows[i][i]
	}
	return x
}

// eval is Horner's rule.
func eval(c []float64, x float64) float64 {
	p := 0.0
	for i := len(c) - 1; i >= 0; i-- {
		p = p*x + c[i]
	}
	return p
}
