package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/isa"
)

// BenchmarkAttention reports the time of one head on one worker and the rate
// of its matrix products, the masked ones not counted: 2 products forward, 5
// backward.
func BenchmarkAttention(b *testing.B) {
	for _, s := range []struct {
		tq, t, size int
		causal      bool
	}{{256, 256, 64, true}, {512, 512, 64, true}, {192, 192, 32, false}, {2048, 2048, 128, true}, {5, 5, 64, false}, {1, 512, 64, true}} {
		for _, level := range isa.Levels()[1:] {
			for _, typ := range []gemm.DType{gemm.F32, gemm.BF16} {
				if (typ == gemm.BF16) != (level == isa.AVX512BF16) {
					continue
				}
				c := Config{Batch: 1, Heads: 1, Tq: s.tq, Tk: s.t, Size: s.size, Causal: s.causal, Scale: float32(1 / math.Sqrt(float64(s.size))), ISA: level, Type: typ}
				p := newProblem(c, typ, 2*s.size, maskKind{}, rand.New(rand.NewPCG(1, 2)))
				plan := NewPlan(c)
				fwd, _ := worker(plan.ForwardBytes())
				bwd, _ := worker(plan.BackwardBytes())
				gflop := 2e-9 * float64(s.tq) * float64(s.t) * float64(s.size)
				if s.causal && s.tq > 1 {
					gflop /= 2
				}
				for _, pass := range []struct {
					name     string
					products float64
					tasks    int
					run      func(int)
				}{
					{"forward", 2, plan.ForwardTasks(), func(task int) { plan.Forward(task, &p.args, fwd) }},
					{"backward", 5, plan.BackwardTasks(), func(task int) { plan.Backward(task, &p.args, bwd) }},
				} {
					b.Run(fmt.Sprintf("%dx%d/K%d/%v/%s", s.tq, s.t, s.size, level, pass.name), func(b *testing.B) {
						var times []time.Duration
						for b.Loop() {
							start := time.Now()
							for task := range pass.tasks {
								pass.run(task)
							}
							times = append(times, time.Since(start))
						}
						slices.Sort(times)
						median := times[len(times)/2].Seconds()
						b.ReportMetric(median*1e6, "us")
						b.ReportMetric(pass.products*gflop/median, "GFLOP/s")
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		}
	}
}
