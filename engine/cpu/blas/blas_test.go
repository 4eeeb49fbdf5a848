package blas_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/blas"
)

// open opens the system's library; if there is none the test is skipped.
func open(t *testing.T) *blas.Library {
	t.Helper()
	l, err := blas.Open("")
	if absent := (*blas.Absent)(nil); errors.As(err, &absent) {
		t.Skip("no BLAS library is installed (Debian: apt-get install libopenblas0):", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(l, l.Path())
	return l
}

// TestSgemm compares products with float64, of operands within larger matrices, by
// several threads at a time.
func TestSgemm(t *testing.T) {
	l := open(t)
	var wait sync.WaitGroup
	for seed := range uint64(4) {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			mem := make([]byte, blas.CallBytes)
			for kind := range 8 {
				transA, transB, beta := kind&1 != 0, kind&2 != 0, float32(kind>>2)
				m, n, k := 1+rng.IntN(90), 1+rng.IntN(90), 1+rng.IntN(300)
				a, lda, at := random(rng, m, k, transA)
				b, ldb, bt := random(rng, k, n, transB)
				c, ldc, ct := random(rng, m, n, false)
				want := make([]float64, len(c))
				for i := range c {
					want[i] = float64(c[i])
				}
				for i := range m {
					for j := range n {
						s := float64(beta) * float64(c[ct(i, j)])
						for x := range k {
							s += float64(a[at(i, x)]) * float64(b[bt(x, j)])
						}
						want[ct(i, j)] = s
					}
				}
				l.Sgemm(m, n, k, unsafe.Pointer(&a[0]), lda, transA, unsafe.Pointer(&b[0]), ldb, transB, beta, unsafe.Pointer(&c[0]), ldc, mem)
				for i := range c {
					if d := math.Abs(float64(c[i]) - want[i]); !(d <= float64(k+2)*float64(k)*0x1p-24) {
						t.Errorf("%dx%dx%d, kind %d: element %d is %v, want %v", m, k, n, kind, i, c[i], want[i])
						return
					}
				}
			}
		})
	}
	wait.Wait()
}

// random returns a matrix whose rows are longer than it needs, and the places of the
// elements of its operand.
func random(rng *rand.Rand, rows, cols int, trans bool) (x []float32, ld int, at func(i, j int) int) {
	at = func(i, j int) int { return i*ld + j }
	if trans {
		rows, cols = cols, rows
		at = func(i, j int) int { return j*ld + i }
	}
	ld = cols + rng.IntN(4)
	x = make([]float32, rows*ld)
	for i := range x {
		x[i] = 2*rng.Float32() - 1
	}
	return x, ld, at
}

func TestSgemmDoesNotAllocate(t *testing.T) {
	l := open(t)
	mem, x := make([]byte, blas.CallBytes), make([]float32, 16)
	p := unsafe.Pointer(&x[0])
	if n := testing.AllocsPerRun(100, func() { l.Sgemm(2, 2, 2, p, 2, false, p, 2, false, 0, unsafe.Pointer(&x[8]), 2, mem) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNoLibrary(t *testing.T) {
	open(t)
	for path, want := range map[string]string{
		"/nowhere/libblas.so": "/nowhere/libblas.so",
		"libm.so.6":           "libm.so.6 is no BLAS library: it has no sgemm_",
	} {
		_, err := blas.Open(path)
		if absent := (*blas.Absent)(nil); !errors.As(err, &absent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
