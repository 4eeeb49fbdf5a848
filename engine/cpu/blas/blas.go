// Package blas multiplies float32 matrices with a BLAS library of the system, which is
// loaded on demand: Apple's Accelerate, the only way to the matrix units of Apple's
// processors, or OpenBLAS.
//
// The library multiplies on the calling thread and starts none: a caller with workers
// gives each its own block.
package blas

import (
	"fmt"
	"unsafe"
)

// Library is a loaded BLAS.
type Library struct {
	name, path string
	sgemm      uintptr
}

// String names the library with its version and, if it says so, the processor that its
// kernels are for: all that its bits depend on.
func (l *Library) String() string { return l.name }

// Path is the file that was loaded.
func (l *Library) Path() string { return l.path }

// Absent says why there is no library to use.
type Absent struct{ Reason string }

func (e *Absent) Error() string { return e.Reason }

// call is sgemm's arguments and what they point to. An integer of 64 bits serves libraries that
// read 32 of them too, as all processors here are little-endian.
type call struct {
	m, n, k, lda, ldb, ldc int64
	alpha, beta            float32
	arguments              [15]uintptr
}

// CallBytes is the memory that a call of Sgemm needs, aligned to 8 bytes.
const CallBytes = int(unsafe.Sizeof(call{}))

// noTrans and trans are sgemm's codes for what is done to an operand.
var noTrans, trans = byte('N'), byte('T')

// Sgemm computes C[m,n] = beta*C + op(A)[m,k]·op(B)[k,n] of row-major float32 matrices with
// rows of lda, ldb and ldc elements; a transposed operand is stored [k,m] or [n,k]. The
// operands and mem, CallBytes used only by this call, must not move meanwhile.
func (l *Library) Sgemm(m, n, k int, a unsafe.Pointer, lda int, transA bool, b unsafe.Pointer, ldb int, transB bool, beta float32, c unsafe.Pointer, ldc int, mem []byte) {
	x := (*call)(unsafe.Pointer(&mem[:CallBytes][0]))
	// In BLAS's column-major order, the stored matrix is the transpose: Cᵀ = op(B)ᵀ·op(A)ᵀ.
	*x = call{m: int64(n), n: int64(m), k: int64(k), lda: int64(ldb), ldb: int64(lda), ldc: int64(ldc), alpha: 1, beta: beta}
	l.invoke(x, operation(transB), operation(transA), b, a, c)
}

func operation(transposed bool) *byte {
	if transposed {
		return &trans
	}
	return &noTrans
}

// check multiplies small matrices of every kind: a library that takes other arguments
// than those passed here must not be used.
func (l *Library) check() error {
	const m, n, k = 3, 5, 4
	mem := make([]byte, CallBytes)
	for kind := range 8 {
		transA, transB, beta := kind&1 != 0, kind&2 != 0, float32(kind>>2)
		a, b, c, want := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n), make([]float32, m*n)
		lda, ldb := k, n
		if transA {
			lda = m
		}
		if transB {
			ldb = k
		}
		at := func(x []float32, ld int, trans bool, i, j int) *float32 {
			if trans {
				i, j = j, i
			}
			return &x[i*ld+j]
		}
		for i := range m {
			for x := range k {
				*at(a, lda, transA, i, x) = float32(7*i + x - 3)
			}
		}
		for x := range k {
			for j := range n {
				*at(b, ldb, transB, x, j) = float32(5*x - 2*j + 1)
			}
		}
		for i := range m {
			for j := range n {
				c[i*n+j] = float32(i - j)
				want[i*n+j] = beta * c[i*n+j]
				for x := range k {
					want[i*n+j] += *at(a, lda, transA, i, x) * *at(b, ldb, transB, x, j)
				}
			}
		}
		l.Sgemm(m, n, k, unsafe.Pointer(&a[0]), lda, transA, unsafe.Pointer(&b[0]), ldb, transB, beta, unsafe.Pointer(&c[0]), n, mem)
		for i := range c {
			if c[i] != want[i] {
				return fmt.Errorf("%s: its sgemm_ gives %v where %v is right: it is not a BLAS of the usual interface", l.path, c[i], want[i])
			}
		}
	}
	return nil
}
