package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// scan is the recurrence with all its states.
type scan struct {
	n, t, d, states    int
	u, dt, a, b, c, dd []float64
	h                  []float64 // [n, t+1, states, d], the zeros before the first step included
}

func newScan(in []tensor) *scan {
	s := &scan{
		n: in[0].Shape[0], t: in[0].Shape[1], d: in[0].Shape[2], states: in[2].Shape[1],
		u: in[0].data, dt: in[1].data, a: in[2].data, b: in[3].data, c: in[4].data, dd: in[5].data,
	}
	s.h = make([]float64, s.n*(s.t+1)*s.states*s.d)
	s.steps(func(n, t, d, k int) {
		x := s.at(n, t, d)
		s.h[s.state(n, t+1, d, k)] = s.decay(n, t, d, k)*s.h[s.state(n, t, d, k)] + s.dt[x]*s.b[s.mix(n, t, k)]*s.u[x]
	})
	return s
}

// steps calls fn for every state in order of time.
func (s *scan) steps(fn func(n, t, d, k int)) {
	for n := range s.n {
		for t := range s.t {
			for d := range s.d {
				for k := range s.states {
					fn(n, t, d, k)
				}
			}
		}
	}
}

func (s *scan) at(n, t, d int) int       { return (n*s.t+t)*s.d + d }
func (s *scan) mix(n, t, k int) int      { return (n*s.t+t)*s.states + k }
func (s *scan) state(n, t, d, k int) int { return ((n*(s.t+1)+t)*s.states+k)*s.d + d }
func (s *scan) decay(n, t, d, k int) float64 {
	return math.Exp(s.dt[s.at(n, t, d)] * s.a[d*s.states+k])
}

func selectiveScan(op graph.SelectiveScan, in []tensor) [][]float64 {
	s := newScan(in)
	y := make([]float64, len(s.u))
	for i, v := range s.u {
		y[i] = v * s.dd[i%s.d]
	}
	s.steps(func(n, t, d, k int) { y[s.at(n, t, d)] += s.c[s.mix(n, t, k)] * s.h[s.state(n, t+1, d, k)] })
	var kept []float64
	for n := range s.n {
		for t := 0; t < s.t; t += op.Chunk {
			from := s.state(n, t, 0, 0)
			kept = append(kept, s.h[from:from+s.states*s.d]...)
		}
	}
	return [][]float64{y, kept}
}

// selectiveScanGrad carries dh, the gradient of h[t], back in time.
func selectiveScanGrad(in []tensor) [][]float64 {
	dy := in[0].data
	s := newScan(in[2:])
	du, ddt := make([]float64, len(s.u)), make([]float64, len(s.dt))
	da, db, dc, dd := make([]float64, len(s.a)), make([]float64, len(s.b)), make([]float64, len(s.c)), make([]float64, len(s.dd))
	for i, g := range dy {
		du[i] += g * s.dd[i%s.d]
		dd[i%s.d] += g * s.u[i]
	}
	for n := range s.n {
		for d := range s.d {
			for k := range s.states {
				dh := 0.0
				for t := s.t - 1; t >= 0; t-- {
					x, m := s.at(n, t, d), s.mix(n, t, k)
					before, now := s.h[s.state(n, t, d, k)], s.h[s.state(n, t+1, d, k)]
					dc[m] += dy[x] * now
					dh += dy[x] * s.c[m]
					decay := s.decay(n, t, d, k)
					a := s.a[d*s.states+k]
					da[d*s.states+k] += dh * before * decay * s.dt[x]
					ddt[x] += dh*before*decay*a + dh*s.b[m]*s.u[x]
					db[m] += dh * s.dt[x] * s.u[x]
					du[x] += dh * s.dt[x] * s.b[m]
					dh *= decay
				}
			}
		}
	}
	return [][]float64{du, ddt, da, db, dc, dd}
}
