package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A timed function of n elements, with the bytes it reads and writes for one
// element. fresh are the written bytes that are not read first: memory fetches
// their cache lines all the same.
type timed struct {
	name               string
	read, write, fresh int
	run                func(f *buffers)
}

// buffers are the operands of the benchmarks.
type buffers struct {
	n          int
	a, b, c, d []float32
	h          []uint16
	bytes      []uint8
}

func newBuffers(n int) *buffers {
	f := &buffers{n: n, h: make([]uint16, n), bytes: make([]uint8, n)}
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range []*[]float32{&f.a, &f.b, &f.c, &f.d} {
		*s = make([]float32, n)
		for i := range min(n, 1<<16) {
			(*s)[i] = float32(r.NormFloat64())
		}
		for i := 1 << 16; i < n; i <<= 1 {
			copy((*s)[i:], (*s)[:i])
		}
	}
	F32ToBF16(f.h, f.a)
	return f
}

// square returns the side of the matrices a transpose is timed with: a multiple
// of 16, and above 64 not of 32, since rows that are a power of two apart are
// slow in every cache and rare in models.
func (f *buffers) square() int {
	side := int(math.Sqrt(float64(f.n))) &^ 15
	if side > 64 && side%32 == 0 {
		side -= 16
	}
	return side
}

var sink float32

var timings = []timed{
	{"Copy", 4, 4, 4, func(f *buffers) { Copy(f.a, f.b) }},
	{"Fill", 0, 4, 4, func(f *buffers) { Fill(f.a, 0.5) }},
	{"Add", 8, 4, 4, func(f *buffers) { Add(f.a, f.b, f.c) }},
	{"Mul", 8, 4, 4, func(f *buffers) { Mul(f.a, f.b, f.c) }},
	{"Div", 8, 4, 4, func(f *buffers) { Div(f.a, f.b, f.c) }},
	{"Max", 8, 4, 4, func(f *buffers) { Max(f.a, f.b, f.c) }},
	{"Axpy", 8, 4, 0, func(f *buffers) { Axpy(f.d, f.b, 0) }},
	{"MulScalar", 4, 4, 4, func(f *buffers) { MulScalar(f.a, f.b, 0.5) }},
	{"Rsqrt", 4, 4, 4, func(f *buffers) { Rsqrt(f.a, f.b) }},
	{"ReluGrad", 8, 4, 4, func(f *buffers) { ReluGrad(f.a, f.b, f.c) }},
	{"Select", 12, 4, 4, func(f *buffers) { Select(f.a, f.b, f.c, f.d) }},
	{"Exp", 4, 4, 4, func(f *buffers) { Exp(f.a, f.b) }},
	{"Log", 4, 4, 4, func(f *buffers) { Log(f.a, f.b) }},
	{"Tanh", 4, 4, 4, func(f *buffers) { Tanh(f.a, f.b) }},
	{"Sigmoid", 4, 4, 4, func(f *buffers) { Sigmoid(f.a, f.b) }},
	{"Softplus", 4, 4, 4, func(f *buffers) { Softplus(f.a, f.b) }},
	{"Sin", 4, 4, 4, func(f *buffers) { Sin(f.a, f.b) }},
	{"GELU", 4, 4, 4, func(f *buffers) { GELU(f.a, f.b) }},
	{"GELUGrad", 8, 4, 4, func(f *buffers) { GELUGrad(f.a, f.b, f.c) }},
	{"GELUTanh", 4, 4, 4, func(f *buffers) { GELUTanh(f.a, f.b) }},
	{"GELUTanhGrad", 8, 4, 4, func(f *buffers) { GELUTanhGrad(f.a, f.b, f.c) }},
	{"SiLU", 4, 4, 4, func(f *buffers) { SiLU(f.a, f.b) }},
	{"SiLUGrad", 8, 4, 4, func(f *buffers) { SiLUGrad(f.a, f.b, f.c) }},
	{"ELU", 4, 4, 4, func(f *buffers) { ELU(f.a, f.b, 1) }},
	{"Sum", 4, 0, 0, func(f *buffers) { sink = Sum(f.a) }},
	{"Dot", 8, 0, 0, func(f *buffers) { sink = Dot(f.a, f.b) }},
	{"SumSqF64", 4, 0, 0, func(f *buffers) { sink = float32(SumSqF64(f.a)) }},
	{"MaxValue", 4, 0, 0, func(f *buffers) { sink = MaxValue(f.a) }},
	{"SoftmaxRow", 4, 4, 4, func(f *buffers) { rows(f, 1024, func(i, j int) { SoftmaxRow(f.a[i:j], f.b[i:j]) }) }},
	{"SoftmaxRowGrad", 8, 4, 4, func(f *buffers) { rows(f, 1024, func(i, j int) { SoftmaxRowGrad(f.a[i:j], f.b[i:j], f.c[i:j]) }) }},
	{"CrossEntropyRow", 4, 0, 0, func(f *buffers) { rows(f, 2048, func(i, j int) { sink, _ = CrossEntropyRow(f.b[i:j], 1) }) }},
	{"CrossEntropyRowGrad", 4, 4, 4, func(f *buffers) { CrossEntropyRowGrad(f.a, f.b, 9, 1, 1) }},
	{"LayerNormRow", 4, 4, 4, func(f *buffers) {
		rows(f, 512, func(i, j int) { LayerNormRow(f.a[i:j], f.b[i:j], f.c[:512], f.d[:512], 1e-5) })
	}},
	{"LayerNormRowGrad", 8, 4, 4, func(f *buffers) {
		rows(f, 512, func(i, j int) {
			LayerNormRowGrad(f.a[i:j], f.d[:512], f.d[512:1024], f.b[i:j], f.c[i:j], f.c[:512], 0, 1)
		})
	}},
	{"RMSNormRow", 4, 4, 4, func(f *buffers) { rows(f, 512, func(i, j int) { RMSNormRow(f.a[i:j], f.b[i:j], f.c[:512], 1e-5) }) }},
	{"RotaryRow", 4, 4, 4, func(f *buffers) {
		rows(f, 64, func(i, j int) { RotaryRow(f.a[i:j], f.b[i:j], f.c[:32], f.d[:32], 32, false) })
	}},
	{"AdamW", 16, 12, 0, func(f *buffers) { AdamW(f.a, f.b, f.c, f.d, benchCoef) }},
	{"DecodeSigned8", 1, 4, 4, func(f *buffers) { DecodeSigned8(f.a, f.bytes, 1) }},
	{"DecodeUnsigned8", 1, 4, 4, func(f *buffers) { DecodeUnsigned8(f.a, f.bytes, 1) }},
	{"EncodeSigned8", 4, 1, 1, func(f *buffers) { EncodeSigned8(f.bytes, f.b, 0.25) }},
	{"EncodeUnsigned8", 6, 1, 1, func(f *buffers) { EncodeUnsigned8(f.bytes, f.b, f.h, 0.25) }},
	{"BF16ToF32", 2, 4, 4, func(f *buffers) { BF16ToF32(f.a, f.h) }},
	{"F32ToBF16", 4, 2, 2, func(f *buffers) { F32ToBF16(f.h, f.a) }},
	{"F16ToF32", 2, 4, 4, func(f *buffers) { F16ToF32(f.a, f.h) }},
	{"F32ToF16", 4, 2, 2, func(f *buffers) { F32ToF16(f.h, f.a) }},
	{"UniformF32", 0, 4, 4, func(f *buffers) { UniformF32(f.a, 1, 2, 0) }},
	{"DropoutMask", 0, 4, 4, func(f *buffers) { DropoutMask(f.a, 1, 2, 0, 0.9) }},
	{"NormalF32", 0, 4, 4, func(f *buffers) { NormalF32(f.a, 1, 2, 0) }},
	{"Transpose", 4, 4, 4, func(f *buffers) { s := f.square(); Transpose(f.a, s, f.b, s, s, s) }},
	{"Transpose16", 2, 2, 2, func(f *buffers) { s := f.square() / 2 &^ 15; Transpose16(f.h[f.n/2:], s, f.h, s, s, s) }},
}

var benchCoef = AdamWCoef{LR: 1e-4, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, BiasCorr1: 0.5, BiasCorr2: 0.5, GradScale: 1}

// rows calls f for each whole row of n elements.
func rows(b *buffers, n int, f func(i, j int)) {
	for i := 0; i+n <= b.n; i += n {
		f(i, i+n)
	}
}

const memorySize = 16 << 20

// reference runs what the function's share of the bandwidth is measured
// against, a sum for those that only read and an update in place for the
// others, and returns the bytes it moves.
func (f *buffers) reference(t timed) int {
	if t.write == 0 {
		sink = Sum(f.d)
		return 4 * f.n
	}
	Axpy(f.d, f.b, 0)
	return 12 * f.n
}

// BenchmarkSimd times every function on slices that fit the first cache, the
// second, and none. It reports elements and bytes (read and written) a second,
// and for memory the share of the bandwidth measured in turns with the function,
// counting the lines that are fetched to be written.
//
//	go test -run '^$' -bench Simd -benchtime 20ms ./internal/simd
func BenchmarkSimd(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"L1", 2 << 10}, {"L2", 32 << 10}, {"memory", memorySize}} {
		f := newBuffers(size.n)
		for _, t := range timings {
			b.Run(t.name+"/"+size.name, func(b *testing.B) {
				elements := f.n
				switch t.name {
				case "Transpose":
					elements = f.square() * f.square()
				case "Transpose16":
					elements = f.square() / 2 &^ 15 * (f.square() / 2 &^ 15)
				}
				t.run(f)
				var share []float64
				for b.Loop() {
					if size.n < memorySize {
						t.run(f)
						continue
					}
					start := time.Now()
					t.run(f)
					spent := time.Since(start)
					b.StopTimer()
					start = time.Now()
					bytes := f.reference(t)
					rate := float64(bytes) / time.Since(start).Seconds()
					share = append(share, 100*float64(elements*(t.read+t.write+t.fresh))/spent.Seconds()/rate)
					b.StartTimer()
				}
				perSecond := float64(elements) * float64(b.N) / b.Elapsed().Seconds()
				b.ReportMetric(perSecond/1e9, "Gelem/s")
				b.ReportMetric(perSecond*float64(t.read+t.write)/1e9, "GB/s")
				if share != nil {
					slices.Sort(share)
					b.ReportMetric(share[len(share)/2], "%bandwidth")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
