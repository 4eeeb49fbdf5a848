package ref

import "github.com/snug-ml/snug/engine/graph"

// related calls fn with each pair of positions that are related, as rows of [B*T], and
// the number of positions that the first is related to.
func related(op graph.Relate, segment tensor, fn func(i, j, n int)) {
	t := segment.Shape[1]
	for i, s := range segment.data {
		if int(s) < op.From || int(s) >= op.To {
			continue
		}
		var js []int
		for j := i / t * t; j <= i; j++ {
			if segment.data[j] == s {
				js = append(js, j)
			}
		}
		for _, j := range js {
			fn(i, j, len(js))
		}
	}
}

func relate(op graph.Relate, in []tensor) []float64 {
	p, q := rowsOf(in[0]), rowsOf(in[1])
	d := in[0].Shape[2]
	y := make([]float64, len(in[0].data))
	related(op, in[2], func(i, j, n int) {
		for k := range d {
			y[i*d+k] += max(p[i][k]+q[j][k], 0) / float64(n)
		}
	})
	return y
}

func relateGrad(op graph.Relate, in []tensor) [][]float64 {
	dy, p, q := rowsOf(in[0]), rowsOf(in[1]), rowsOf(in[2])
	d := in[1].Shape[2]
	dp, dq := make([]float64, len(in[1].data)), make([]float64, len(in[2].data))
	related(op, in[3], func(i, j, n int) {
		for k := range d {
			if p[i][k]+q[j][k] > 0 {
				g := dy[i][k] / float64(n)
				dp[i*d+k] += g
				dq[j*d+k] += g
			}
		}
	})
	return [][]float64{dp, dq}
}
