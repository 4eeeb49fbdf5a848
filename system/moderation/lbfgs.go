package moderation

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// minimize moves x to a minimum of the smooth convex function f, which returns its value at a point and
// writes its gradient there. The method is limited-memory BFGS with ten pairs and a backtracking line search
// (Nocedal and Wright 2006, algorithms 7.5 and 3.1). It ends with the error of ctx once that is done.
func minimize(ctx context.Context, x []float64, f func(x, gradient []float64) float64) error {
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
		if err := ctx.Err(); err != nil {
			return err
		}
		// p is minus the estimated inverse Hessian times g.
		each(n, func(from, to int) {
			for i := from; i < to; i++ {
				p[i] = -g[i]
			}
		})
		alpha := make([]float64, len(memory))
		for k := len(memory) - 1; k >= 0; k-- {
			alpha[k] = memory[k].rho * dot(memory[k].s, p)
			axpy(p, -alpha[k], memory[k].y)
		}
		if len(memory) > 0 {
			last := memory[len(memory)-1]
			scale := 1 / (last.rho * dot(last.y, last.y))
			each(n, func(from, to int) {
				for i := from; i < to; i++ {
					p[i] *= scale
				}
			})
		}
		for k, m := range memory {
			axpy(p, alpha[k]-m.rho*dot(m.y, p), m.s)
		}
		slope := dot(g, p)
		if -slope < small*small*max(1, math.Abs(value)) {
			return nil
		}
		step := 1.0
		if len(memory) == 0 {
			step = 1 / math.Sqrt(dot(g, g))
		}
		var v float64
		for {
			each(n, func(from, to int) {
				for i := from; i < to; i++ {
					next[i] = x[i] + step*p[i]
				}
			})
			if v = f(next, gNext); v <= value+1e-4*step*slope {
				break
			}
			if step /= 2; step < 1e-12 {
				return nil
			}
		}
		if spare.s == nil {
			spare.s, spare.y = make([]float64, n), make([]float64, n)
		}
		s, y := spare.s, spare.y
		each(n, func(from, to int) {
			for i := from; i < to; i++ {
				s[i], y[i] = next[i]-x[i], gNext[i]-g[i]
			}
		})
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
	return nil
}

// dot is the product of two vectors.
func dot(a, b []float64) float64 {
	return total(len(a), elements, func(from, to int) (sum float64) {
		b := b[:to]
		for i := from; i < to; i++ {
			sum += a[i] * b[i]
		}
		return sum
	})
}

// axpy adds k*x to y.
func axpy(y []float64, k float64, x []float64) {
	each(len(y), func(from, to int) {
		x := x[:to]
		for i := from; i < to; i++ {
			y[i] += k * x[i]
		}
	})
}

// elements is how many elements of vectors make a block: for fewer, waking a goroutine takes too long.
const elements = 1 << 18

// each calls f for the blocks of vectors of n elements.
func each(n int, f func(from, to int)) { blocks(n, elements, func(_, from, to int) { f(from, to) }) }

// total adds up what f returns for blocks of size of n, in their order.
func total(n, size int, f func(from, to int) float64) float64 {
	sums := make([]float64, (n+size-1)/size)
	blocks(n, size, func(k, from, to int) { sums[k] = f(from, to) })
	sum := 0.0
	for _, s := range sums {
		sum += s
	}
	return sum
}

// blocks calls f with the number and the limits of each block of size of n, of as many at a time as there are
// processors. The blocks do not depend on how many these are.
func blocks(n, size int, f func(k, from, to int)) {
	count := (n + size - 1) / size
	var next atomic.Int64
	work := func() {
		for k := int(next.Add(1)) - 1; k < count; k = int(next.Add(1)) - 1 {
			f(k, k*size, min(n, (k+1)*size))
		}
	}
	var others sync.WaitGroup
	for range min(count, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}
