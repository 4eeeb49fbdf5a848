package moderation

import (
	"math"
	"slices"
)

// minimize moves x to a minimum of the smooth convex function f, which returns its value at a point and
// writes its gradient there. The method is limited-memory BFGS with ten pairs and a backtracking line search
// (Nocedal and Wright 2006, algorithms 7.5 and 3.1).
func minimize(x []float64, f func(x, gradient []float64) float64) {
	const pairs, rounds, small = 10, 200, 1e-4
	n := len(x)
	g, next, gNext, p := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	type pair struct {
		s, y []float64
		rho  float64
	}
	var memory []pair
	var spare pair // its vectors are those of the next pair, as garbage would be larger than all the rest
	value := f(x, g)
	for range rounds {
		// p is minus the estimated inverse Hessian times g.
		for i := range p {
			p[i] = -g[i]
		}
		alpha := make([]float64, len(memory))
		for k := len(memory) - 1; k >= 0; k-- {
			alpha[k] = memory[k].rho * dot(memory[k].s, p)
			axpy(p, -alpha[k], memory[k].y)
		}
		if len(memory) > 0 {
			last := memory[len(memory)-1]
			scale := 1 / (last.rho * dot(last.y, last.y))
			for i := range p {
				p[i] *= scale
			}
		}
		for k, m := range memory {
			axpy(p, alpha[k]-m.rho*dot(m.y, p), m.s)
		}
		slope := dot(g, p)
		if -slope < small*small*max(1, math.Abs(value)) {
			return
		}
		step := 1.0
		if len(memory) == 0 {
			step = 1 / math.Sqrt(dot(g, g))
		}
		var v float64
		for {
			for i := range next {
				next[i] = x[i] + step*p[i]
			}
			if v = f(next, gNext); v <= value+1e-4*step*slope {
				break
			}
			if step /= 2; step < 1e-12 {
				return
			}
		}
		if spare.s == nil {
			spare.s, spare.y = make([]float64, n), make([]float64, n)
		}
		s, y := spare.s, spare.y
		for i := range s {
			s[i], y[i] = next[i]-x[i], gNext[i]-g[i]
		}
		if sy := dot(s, y); sy > 0 {
			memory, spare = append(memory, pair{s, y, 1 / sy}), pair{}
			if len(memory) > pairs {
				spare = memory[0]
				memory = slices.Delete(memory, 0, 1)
			}
		}
		copy(x, next)
		g, gNext, value = gNext, g, v
	}
}

func dot(a, b []float64) (s float64) {
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

// axpy adds k*x to y.
func axpy(y []float64, k float64, x []float64) {
	for i, v := range x {
		y[i] += k * v
	}
}
