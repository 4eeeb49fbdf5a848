package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// feedForward is the forward and backward pass of a layer d -> 4d -> d on n tokens; with
// experts > 1 a token goes to one of them.
func feedForward(n, d, experts int) engine.Training {
	return engine.Training{
		Accumulation: 2,
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			in := b.Param("in", graph.Normal(1), n, d) // so that its gradient is computed
			up, down := b.Param("up", graph.Normal(0.05), experts, 4*d, d), b.Param("down", graph.Normal(0.05), experts, d, 4*d)
			if experts == 1 {
				h := b.GELU(b.Linear(in, b.Reshape(up, 4*d, d), nil))
				return engine.Objective{Sum: b.Sum(b.Linear(h, b.Reshape(down, d, 4*d), nil))}
			}
			p := b.Softmax(b.Linear(in, b.Param("router", graph.Normal(0.5), experts, d), nil))
			weights, choice := b.TopK(p, 1)
			r := b.Route(graph.Route{Experts: experts}, choice)
			h := b.GELU(b.GroupedLinear(b.Dispatch(in, r), up, nil, r))
			return engine.Objective{Sum: b.Sum(b.Combine(b.GroupedLinear(h, down, nil, r), weights, r))}
		},
	}
}

// BenchmarkExperts times a mixture of 4 experts, top 1, against one dense
// layer of the same size, in turns.
//
//	go test -run '^$' -bench Experts ./engine
func BenchmarkExperts(b *testing.B) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		b.Run(low.String(), func(b *testing.B) {
			var runs [2]*engine.Executable
			var times [2][]float64
			for i, experts := range []int{1, 4} {
				p, err := engine.CompileTraining(feedForward(1024, 384, experts), engine.CompileOptions{ComputeDType: low})
				if err != nil {
					b.Fatal(err)
				}
				if runs[i], err = p.Load(backend.CPU(2)); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() {
					if err := runs[i].Close(); err != nil {
						b.Error(err)
					}
				})
				if err := runs[i].Initialize(1); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				for i, r := range runs {
					start := time.Now()
					if err := r.Run(engine.FuncMicro, 0); err != nil {
						b.Fatal(err)
					}
					times[i] = append(times[i], time.Since(start).Seconds())
				}
			}
			for i := range times {
				slices.Sort(times[i])
			}
			dense, experts := times[0][len(times[0])/2], times[1][len(times[1])/2]
			b.ReportMetric(dense*1e3, "dense_ms")
			b.ReportMetric(experts*1e3, "experts_ms")
			b.ReportMetric(experts/dense, "ratio")
			b.ReportMetric(times[1][0]/times[0][0], "best_ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
