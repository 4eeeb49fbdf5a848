package nn

import "github.com/snug-ml/snug/engine/graph"

// CumulativeSum is the running sum of x [B, T, D] along time, step t included.
// It is a scan whose state neither decays nor mixes.
func CumulativeSum(b *graph.Builder, x *graph.Value) *graph.Value {
	return leakySum(b, x, full(b, 1, x.Shape()...), 0)
}

// LeakySum is the scan h[t] = exp(-rate[t]) h[t-1] + rate[t] x[t] over x and
// rate [B, T, D], h 0 before the first step: with small rates the running mean
// of the last 1/rate steps.
func LeakySum(b *graph.Builder, x, rate *graph.Value) *graph.Value { return leakySum(b, x, rate, -1) }

func leakySum(b *graph.Builder, x, rate *graph.Value, decay float64) *graph.Value {
	s := x.Shape()
	ones := full(b, 1, s[0], s[1], 1)
	return b.SelectiveScan(x, rate, full(b, decay, s[2], 1), ones, ones, full(b, 0, s[2]))
}

// full is a tensor filled with one number.
func full(b *graph.Builder, v float64, dims ...int) *graph.Value {
	return b.BroadcastTo(b.Scalar(v), dims...)
}
