package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// cells returns a function that gives, for each element of x, its statistic and its
// channel, and how many elements share a statistic.
func cells(groups int, x graph.Shape) (cell func(i int) (stat, channel int), count float64) {
	c := x.Last()
	if groups == 0 {
		return func(i int) (int, int) { return i % c, i % c }, float64(x.Rows())
	}
	row := int(x[1:].Elems())
	return func(i int) (int, int) { return i/row*groups + i%c/(c/groups), i % c }, float64(row / groups)
}

// statistics are the means and variances of count cells of n elements.
func statistics(x []float64, count int, cell func(i int) (stat, channel int), n float64) (mean, variance []float64) {
	mean, variance = make([]float64, count), make([]float64, count)
	for i, v := range x {
		s, _ := cell(i)
		mean[s] += v / n
	}
	for i, v := range x {
		s, _ := cell(i)
		variance[s] += (v - mean[s]) * (v - mean[s]) / n
	}
	return mean, variance
}

func batchStats(in []tensor) [][]float64 {
	cell, n := cells(0, in[0].Shape)
	mean, variance := statistics(in[0].data, in[0].Shape.Last(), cell, n)
	return [][]float64{mean, variance}
}

func channelNorm(op graph.ChannelNorm, in []tensor, out []graph.Type) [][]float64 {
	x, gamma, beta := in[0].data, in[1].data, in[2].data
	cell, n := cells(op.Groups, in[0].Shape)
	var mean, variance []float64
	if op.Given {
		mean, variance = in[3].data, in[4].data
	} else {
		mean, variance = statistics(x, int(out[1].Shape.Elems()), cell, n)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		s, c := cell(i)
		y[i] = (v-mean[s])/math.Sqrt(variance[s]+op.Eps)*gamma[c] + beta[c]
	}
	if op.Given {
		return one(y)
	}
	return [][]float64{y, mean, variance}
}

// channelNormGrad: with h = (x-mean)/sqrt(var+eps) and g = dy*gamma, dx =
// (g - mean(g) - h*mean(g*h))/sqrt(var+eps), the means over the elements that
// share a statistic.
func channelNormGrad(op graph.ChannelNormGrad, in []tensor) [][]float64 {
	dy, x, gamma, mean, variance := in[0].data, in[1].data, in[2].data, in[3].data, in[4].data
	cell, n := cells(op.Groups, in[1].Shape)
	dgamma, dbeta := make([]float64, len(gamma)), make([]float64, len(gamma))
	g, gh := make([]float64, len(mean)), make([]float64, len(mean))
	norm := func(i, s int) float64 { return (x[i] - mean[s]) / math.Sqrt(variance[s]+op.Eps) }
	for i := range x {
		s, c := cell(i)
		h := norm(i, s)
		dgamma[c] += dy[i] * h
		dbeta[c] += dy[i]
		g[s] += dy[i] * gamma[c] / n
		gh[s] += dy[i] * gamma[c] * h / n
	}
	dx := make([]float64, len(x))
	for i := range x {
		s, c := cell(i)
		dx[i] = (dy[i]*gamma[c] - g[s] - norm(i, s)*gh[s]) / math.Sqrt(variance[s]+op.Eps)
	}
	return [][]float64{dx, dgamma, dbeta}
}

func runningStats(op graph.RunningStats, in []tensor) [][]float64 {
	unbiased := float64(op.Rows) / float64(op.Rows-1)
	mean, variance := make([]float64, len(in[0].data)), make([]float64, len(in[0].data))
	for i := range mean {
		mean[i] = in[0].data[i] + op.Momentum*(in[2].data[i]-in[0].data[i])
		variance[i] = in[1].data[i] + op.Momentum*(in[3].data[i]*unbiased-in[1].data[i])
	}
	return [][]float64{mean, variance}
}
