package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/internal/isa"
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
	{1024, 512, 8192, false, true},
	{1024, 8192, 512, false, false},
	{8192, 1024, 512, true, false},
	{4096, 384, 1536, false, false},
	{4096, 512, 2048, false, false},
	{1024, 384, 1536, false, true},
	{384, 1024, 1536, true, false},
	{1536, 4096, 384, true, false},
	{1024, 8192, 384, false, true},
	{384, 1024, 8192, true, false},
	{256, 64, 256, false, true},
	{256, 256, 64, false, false},
	{256, 384, 8192, false, true},
	{256, 8192, 384, false, false},
	{8192, 256, 384, true, false},
	{8192, 1024, 384, true, false},
	{2048, 4096, 512, true, false},
	{512, 4096, 2048, true, false},
	{1, 384, 1536, false, false},
	{8, 384, 1536, false, false},
}

// BenchmarkGEMM reports GFLOP/s per shape, type, instruction set and workers:
// the median run, the best one, which a busy machine disturbs less, and the
// median as a share of the kernel's peak measured in turns with it.
func BenchmarkGEMM(b *testing.B) {
	for _, level := range isa.Levels()[1:] {
		for _, typ := range []DType{F32, BF16} {
			if typ == BF16 && level != isa.AVX512BF16 || typ == F32 && level == isa.AVX512BF16 {
				continue
			}
			for _, s := range benchShapes {
				for _, workers := range []int{1, 2} {
					b.Run(fmt.Sprintf("%v/%v/%s/%dT", level, typ, name(s.m, s.k, s.n, s.ta, s.tb), workers), func(b *testing.B) {
						benchmark(b, s, typ, F32, Options{ISA: level, Workers: workers})
					})
				}
			}
		}
	}
}

// BenchmarkProduct computes a product and nothing else: once with -benchtime 1x, for
// tools/asm/mca -trace.
func BenchmarkProduct(b *testing.B) {
	for _, level := range isa.Levels()[1:] {
		for _, typ := range []DType{F32, BF16} {
			if machineFor(level, typ).word != typ {
				continue
			}
			for _, s := range []shape{
				{480, 384, 512, false, false}, {480, 384, 512, false, true}, {384, 480, 512, true, false}, {500, 390, 500, false, false}, {100, 64, 100, false, true},
			} {
				b.Run(fmt.Sprintf("%v/%v/%s", level, typ, name(s.m, s.k, s.n, s.ta, s.tb)), func(b *testing.B) {
					p := NewPlan(s.m, s.n, s.k, typ, typ, F32, s.ta, s.tb, Options{ISA: level, Workers: 1})
					rng := rand.New(rand.NewPCG(1, 2))
					x := newOperand(s.m, s.k, 0, typ, s.ta, uniform(rng))
					y := newOperand(s.k, s.n, 0, typ, s.tb, uniform(rng))
					c := newOperand(s.m, s.n, 0, F32, false, uniform(rng))
					args := &Args{A: x.Matrix, B: y.Matrix, C: c.Matrix}
					shared, worker := make([]byte, p.SharedBytes()), make([]byte, p.WorkerBytes())
					for range b.N {
						for phase := range p.Phases() {
							for task := range p.Tasks(phase) {
								p.Run(phase, task, args, shared, worker)
							}
						}
					}
				})
			}
		}
	}
}

func benchmark(b *testing.B, s shape, typ, out DType, opts Options) {
	p := NewPlan(s.m, s.n, s.k, typ, typ, out, s.ta, s.tb, opts)
	mem, at := hugePages(s.m*s.k*typ.Size()+s.k*s.n*typ.Size()+s.m*s.n*4+p.SharedBytes()+opts.Workers*(p.WorkerBytes()+probeBytes)+1<<20), 0
	take := func(n int) []byte {
		part := mem[at : at+n]
		at += roundUp(n, 64) + 64
		return part
	}
	matrix := func(rows, cols int, t DType, trans bool) Matrix {
		if trans {
			rows, cols = cols, rows
		}
		data := take(rows * cols * t.Size())
		for i := 0; i < len(data); i += 2 { // small numbers in every type
			data[i+1] = byte(0x3c + i/2%2)
		}
		return Matrix{Data: unsafe.Pointer(&data[0]), Type: t, Stride: cols, Trans: trans}
	}
	args := &Args{A: matrix(s.m, s.k, typ, s.ta), B: matrix(s.k, s.n, typ, s.tb), C: matrix(s.m, s.n, out, false)}
	shared := take(p.SharedBytes())
	t := newTeam(opts.Workers, 0)
	defer t.close()
	var probes [][]byte
	for w := range t.scratch {
		t.scratch[w] = take(p.WorkerBytes())
		probes = append(probes, take(probeBytes))
	}
	gflop := 2e-9 * float64(s.m) * float64(s.n) * float64(s.k)
	// The kernel on data in the first-level cache, run in turns with the product, shows
	// what the machine can do at the moment.
	loops := 1 + int(gflop*1e9/8/float64(opts.Workers*2*p.m.mr*p.m.nr*probeWords*p.m.elems()))
	peak := 2e-9 * float64(opts.Workers*loops*p.m.mr*p.m.nr*probeWords*p.m.elems())
	probe := func(task int, _ []byte) {
		x := &probes[task][0]
		for range loops {
			p.m.kern[p.m.mr](1, probeWords, x, 0, 4, p.m.mr*4, add(x, 4096), p.m.nr*4, add(x, 28<<10), p.m.nr*4, p.m.nr, 0, nil, x, 0)
		}
	}
	var times, peaks []time.Duration
	t.multiply(p, args, shared)
	for b.Loop() {
		start := time.Now()
		t.parallel(opts.Workers, probe)
		peaks = append(peaks, time.Since(start))
		start = time.Now()
		t.multiply(p, args, shared)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	slices.Sort(peaks)
	rate := gflop / times[len(times)/2].Seconds()
	b.ReportMetric(rate, "GFLOP/s")
	b.ReportMetric(gflop/times[0].Seconds(), "GFLOP/s-best")
	b.ReportMetric(rate*peaks[len(peaks)/2].Seconds()/peak, "of-peak")
	b.ReportMetric(0, "ns/op")
}

// The peak probe: one tile of A, one panel of B and a tile of C.
const probeBytes, probeWords = 32 << 10, 64
