package gemm

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/snug-ml/snug/internal/isa"
)

// TestFewColumns: the bits of a column do not depend on how many there are, and kernels that
// take B in place read nothing behind it: here no memory is mapped there.
func TestFewColumns(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, level := range isa.Levels() {
		u := NewMicro(level, F32)
		for _, k := range []int{1, 3, 4, 9, 22} {
			m := 2*u.Rows() + 1 + k%u.Rows() // the last tiles are short
			a := newOperand(m, k, 0, F32, false, uniform(rng))
			b := newOperand(k, u.Cols(), 0, F32, false, uniform(rng))
			sum := newOperand(m, u.Cols(), 0, F32, false, uniform(rng))
			left := u.ViewA(&a.Matrix)
			for _, accumulate := range []bool{false, true} {
				var whole *operand // of all columns
				for n := u.Cols(); n > 0; n-- {
					part := Matrix{Data: unsafe.Pointer(unsafe.SliceData(atEndOfPage(t, 4*k*n))), Stride: n}
					for i := range k {
						for j := range n {
							store((*byte)(part.at(i, j)), F32, 0, float32(b.get(i, j)))
						}
					}
					if _, ok := u.ViewB(n, &part); !ok && n <= u.m.exact {
						t.Errorf("%v: %d columns are not taken in place", level, n)
					}
					panels := u.ViewOrPackB(k, n, &part, newGuarded(u.PackedBytes(k, n)).data)
					c := newOperand(m, n, 3, F32, false, sum.get)
					u.Mul(m, n, k, &left, panels, (*float32)(c.Data), c.Stride, accumulate)
					if whole == nil {
						want, scale := reference(m, n, k, a, b, sum, accumulate)
						compare(t, m, n, k, c, want, scale, false)
						whole = c
						continue
					}
					want := make([]float64, m*n)
					for i := range want {
						want[i] = whole.get(i/n, i%n)
					}
					equal(t, fmt.Sprintf("%v, %d rows, %d terms, %d of %d columns", level, m, k, n, u.Cols()), n, c, want)
				}
			}
		}
	}
}

// equal fails unless C is what is wanted bit by bit, and nothing but C was written.
func equal(t *testing.T, what string, n int, c *operand, want []float64) {
	t.Helper()
	for i, w := range want {
		if got := c.get(i/n, i%n); got != w {
			t.Fatalf("%s: C[%d][%d] = %v, want %v", what, i/n, i%n, got, w)
		}
	}
	compare(t, len(want)/n, n, 0, c, want, make([]float64, len(want)), false)
}

// atEndOfPage returns memory behind which none is mapped.
func atEndOfPage(t *testing.T, bytes int) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	size := roundUp(bytes, page)
	all, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mprotect(all[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return all[size-bytes : size]
}
