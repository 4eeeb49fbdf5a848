package ptxsim

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var targets = []string{"sm_75", "sm_80"}

// kernelText is the PTX of testdata/kernels.cu; see testdata/build.sh.
func kernelText(t testing.TB, target string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/kernels." + target + ".ptx")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// matmul is a launch of gemm.
type matmul struct {
	mem     *Memory
	m, n, k int
	a, b, c uint64
}

func newProduct(t testing.TB, m, n, k int) matmul {
	t.Helper()
	x := matmul{mem: NewMemory(1 << 26), m: m, n: n, k: k}
	x.a, x.b, x.c = alloc(t, x.mem, 2*m*k), alloc(t, x.mem, 2*n*k), alloc(t, x.mem, 4*m*n)
	r := rand.New(rand.NewPCG(15, 16))
	for _, b := range [][]byte{bytesOf(t, x.mem, x.a, 2*m*k), bytesOf(t, x.mem, x.b, 2*n*k)} {
		for i := 0; i < len(b); i += 2 {
			binary.LittleEndian.PutUint16(b[i:], uint16(toHalf(math.Float32bits(float32(r.NormFloat64())))))
		}
	}
	return x
}

func (x matmul) launch(mod *Module, o Options) error {
	g := Grid{Grid: [3]uint32{uint32(x.n / 64), uint32(x.m / 64)}, Block: [3]uint32{128}}
	return Launch(x.mem, mod.Kernel("gemm"), g, args(x.a, x.b, x.c, uint32(x.n), uint32(x.k)), o)
}

func halfAt(b []byte, i int) float64 {
	return float64(halfTable[binary.LittleEndian.Uint16(b[2*i:])])
}

func TestGEMM(t *testing.T) {
	for _, target := range targets {
		mod := mustParse(t, kernelText(t, target))
		x := newProduct(t, 64, 128, 96)
		var count Counters
		if err := x.launch(mod, Options{Checks: CheckAll, Counters: &count}); err != nil {
			t.Fatal(err)
		}
		a, b, c := bytesOf(t, x.mem, x.a, 2*x.m*x.k), bytesOf(t, x.mem, x.b, 2*x.n*x.k), bytesOf(t, x.mem, x.c, 4*x.m*x.n)
		for i := range x.m {
			for j := range x.n {
				want, size := 0.0, 0.0
				for k := range x.k {
					p := halfAt(a, i*x.k+k) * halfAt(b, j*x.k+k)
					want += p
					size += math.Abs(p)
				}
				if got := float64(f32(binary.LittleEndian.Uint32(c[4*(i*x.n+j):]))); math.Abs(got-want) > 1e-6*size {
					t.Fatalf("%s: row %d, column %d: %g, want %g", target, i, j, got, want)
				}
			}
		}
		n := count.Kernels["gemm"]
		// Two blocks of four warps make three steps of 32 in k; in each half of a step a warp multiplies 8
		// tiles of 16x8x16.
		products := int64(2 * 4 * 3 * 2 * 8)
		if target == "sm_75" {
			products *= 2
		}
		if n.Instructions[PipeTensor] != products {
			t.Errorf("%s: %d mma, want %d", target, n.Instructions[PipeTensor], products)
		}
		if n.SharedWavefronts != n.SharedIdeal || n.SharedRequests == 0 {
			t.Errorf("%s: %d wavefronts of shared memory, %d without conflicts", target, n.SharedWavefronts, n.SharedIdeal)
		}
		if n.LoadBytes != int64(2*(64+64)*96*2) || n.LoadSectors != n.LoadBytes/32 {
			t.Errorf("%s: %d bytes and %d sectors loaded", target, n.LoadBytes, n.LoadSectors)
		}
		if n.StoreBytes != int64(4*64*128) || n.Total() == 0 || len(n.Lines) == 0 {
			t.Errorf("%s: %d bytes stored", target, n.StoreBytes)
		}
		whole := slices.Clone(c)
		clear(c)
		if err := x.launch(mod, Options{Workers: 2}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c, whole) {
			t.Errorf("%s: two workers give other bits", target)
		}
	}
}

// TestGEMMWithout removes one line from the GEMM at a time.
func TestGEMMWithout(t *testing.T) {
	for _, target := range targets {
		text := kernelText(t, target)
		for _, line := range []string{"bar.sync", "cp.async.wait_all"} {
			from := strings.Index(text, ".entry gemm(")
			found := false
			for {
				i := strings.Index(text[from:], line)
				if i < 0 || strings.Contains(text[from:from+i], ".entry softmax") {
					break
				}
				found = true
				from += i
				mutant := text[:from] + "//" + text[from:]
				from += len(line)
				x := newProduct(t, 64, 64, 96)
				err := x.launch(mustParse(t, mutant), Options{Checks: CheckAll})
				if err == nil {
					t.Errorf("%s without a %s runs", target, line)
				} else if !strings.Contains(err.Error(), "kernels.cu:") {
					t.Errorf("%s without a %s: %v does not name the source", target, line, err)
				}
			}
			if !found && (line == "bar.sync" || target == "sm_80") {
				t.Errorf("%s has no %s", target, line)
			}
		}
	}
}

func TestSoftmaxAndReduce(t *testing.T) {
	for _, target := range targets {
		mod := mustParse(t, kernelText(t, target))
		mem := NewMemory(1 << 24)
		const rows, columns, groups = 7, 77, 6
		in, out := alloc(t, mem, 4*rows*columns), alloc(t, mem, 2*rows*columns)
		b := bytesOf(t, mem, in, 4*rows*columns)
		r := rand.New(rand.NewPCG(17, 18))
		total := 0.0
		for i := range rows * columns {
			v := float32(3 * r.NormFloat64())
			total += float64(v)
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
		}
		if err := Launch(mem, mod.Kernel("softmax"), Grid{Grid: [3]uint32{2}, Block: [3]uint32{128}}, args(in, out, uint32(rows), uint32(columns)), Options{Checks: CheckAll}); err != nil {
			t.Fatal(err)
		}
		y := bytesOf(t, mem, out, 2*rows*columns)
		for i := range rows {
			sum := 0.0
			for j := range columns {
				sum += math.Exp(float64(f32(binary.LittleEndian.Uint32(b[4*(i*columns+j):]))))
			}
			for j := range columns {
				want := math.Exp(float64(f32(binary.LittleEndian.Uint32(b[4*(i*columns+j):])))) / sum
				if got := halfAt(y, i*columns+j); math.Abs(got-want) > 1e-3*want+1e-7 {
					t.Fatalf("%s: row %d, column %d: %g, want %g", target, i, j, got, want)
				}
			}
		}
		partial, ticket, sum := alloc(t, mem, 4*groups), alloc(t, mem, 4), alloc(t, mem, 4)
		if err := Launch(mem, mod.Kernel("reduce"), Grid{Grid: [3]uint32{groups}, Block: [3]uint32{256}}, args(in, partial, ticket, sum, uint32(rows*columns)), Options{Checks: CheckAll}); err != nil {
			t.Fatal(err)
		}
		if got := float64(f32(binary.LittleEndian.Uint32(bytesOf(t, mem, sum, 4)))); math.Abs(got-total) > 1e-4 {
			t.Errorf("%s: sum %g, want %g", target, got, total)
		}
	}
}

func BenchmarkGEMM(b *testing.B) {
	for _, target := range targets {
		mod := mustParse(b, kernelText(b, target))
		x := newProduct(b, 256, 256, 256)
		var count Counters
		if err := x.launch(mod, Options{Counters: &count}); err != nil {
			b.Fatal(err)
		}
		for name, checks := range map[string]Check{"": 0, "/checks": CheckAll} {
			b.Run(target+name, func(b *testing.B) {
				for b.Loop() {
					if err := x.launch(mod, Options{Workers: 1, Checks: checks}); err != nil {
						b.Fatal(err)
					}
				}
				n := float64(count.Kernels["gemm"].Total()) * float64(b.N)
				b.ReportMetric(n/b.Elapsed().Seconds()/1e6, "Mwarpinst/s")
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := kernelText(b, "sm_80")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		mustParse(b, text)
	}
}

func BenchmarkSoftmax(b *testing.B) {
	mod := mustParse(b, kernelText(b, "sm_80"))
	mem := NewMemory(1 << 24)
	const rows, columns = 64, 1024
	in, out := alloc(b, mem, 4*rows*columns), alloc(b, mem, 2*rows*columns)
	var count Counters
	run := func(o Options) {
		o.Workers = 1
		if err := Launch(mem, mod.Kernel("softmax"), Grid{Grid: [3]uint32{rows / 4}, Block: [3]uint32{128}}, args(in, out, uint32(rows), uint32(columns)), o); err != nil {
			b.Fatal(err)
		}
	}
	run(Options{Counters: &count})
	for b.Loop() {
		run(Options{})
	}
	b.ReportMetric(float64(count.Kernels["softmax"].Total())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mwarpinst/s")
}

// BenchmarkLaunch measures a launch that does next to nothing.
func BenchmarkLaunch(b *testing.B) {
	m := mustParse(b, entry("st.global.u64 [%rd1], %rd1;"))
	mem := NewMemory(1 << 20)
	p := args(alloc(b, mem, 4096), alloc(b, mem, 4096))
	for b.Loop() {
		if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{256}}, p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
