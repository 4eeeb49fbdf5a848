package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// shape is m, k, n as in "1024x384x1536 NT".
type shape struct {
	m, k, n int
	ta, tb  bool
}

var benchShapes = []shape{
	{1024, 1024, 1024, false, false},
	{2048, 2048, 2048, false, false},
	{1024, 384, 384, false, false},
	{1024, 384, 1152, false, false},
	{1024, 384, 1536, false, false},
	{1024, 1536, 384, false, false},
	{1024, 384, 8192, false, false},
	{4096, 384, 1536, false, false},
	{4096, 512, 2048, false, false},
	{1024, 384, 1536, false, true},
	{384, 1024, 1536, true, false},
	{1536, 4096, 384, true, false},
	{1024, 8192, 384, false, true},
	{384, 1024, 8192, true, false},
	{256, 64, 256, false, true},
	{256, 256, 64, false, false},
	{1, 384, 1536, false, false},
	{8, 384, 1536, false, false},
}

// BenchmarkGEMM reports GFLOP/s per shape, type, instruction set and workers:
// the median run, and the best one, which a busy machine disturbs less.
func BenchmarkGEMM(b *testing.B) {
	for _, isa := range Supported()[1:] {
		for _, typ := range []DType{F32, BF16} {
			if typ == BF16 && isa != AVX512BF16 || typ == F32 && isa == AVX512BF16 {
				continue
			}
			for _, s := range benchShapes {
				for _, workers := range []int{1, 2} {
					b.Run(fmt.Sprintf("%v/%v/%s/%dT", isa, typ, name(s.m, s.k, s.n, s.ta, s.tb), workers), func(b *testing.B) {
						benchmark(b, s, typ, F32, Options{ISA: isa, Workers: workers})
					})
				}
			}
		}
	}
}

func benchmark(b *testing.B, s shape, typ, out DType, opts Options) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := newOperand(s.m, s.k, 0, typ, s.ta, uniform(rng))
	y := newOperand(s.k, s.n, 0, typ, s.tb, uniform(rng))
	z := newOperand(s.m, s.n, 0, out, false, uniform(rng))
	p := NewPlan(s.m, s.n, s.k, typ, typ, out, s.ta, s.tb, opts)
	args := &Args{A: x.Matrix, B: y.Matrix, C: z.Matrix}
	shared := newGuarded(p.SharedBytes()).data
	t := newTeam(opts.Workers, p.WorkerBytes())
	defer t.close()
	t.multiply(p, args, shared)
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		t.multiply(p, args, shared)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	gflop := 2e-9 * float64(s.m) * float64(s.n) * float64(s.k)
	b.ReportMetric(gflop/times[len(times)/2].Seconds(), "GFLOP/s")
	b.ReportMetric(gflop/times[0].Seconds(), "GFLOP/s-best")
	b.ReportMetric(0, "ns/op")
}
