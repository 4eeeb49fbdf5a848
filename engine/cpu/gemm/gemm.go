// Package gemm multiplies matrices for training on the CPU.
//
// A [Plan] fixes how C = op(A)·op(B) (or C += ...) of one shape is cut into
// phases of independent tasks; the caller owns the workers and the memory. One
// multiplication, for a caller with a barrier between phases:
//
//	p := gemm.NewPlan(m, n, k, gemm.F32, gemm.F32, gemm.F32, false, false, gemm.Options{})
//	shared := make([]byte, p.SharedBytes())            // one for all workers, 64-byte aligned
//	for phase := range p.Phases() {
//		for task := range p.Tasks(phase) {             // any worker, any order
//			p.Run(phase, task, &args, shared, scratch) // scratch: p.WorkerBytes() for each worker
//		}                                              // barrier
//	}
//
// Promises:
//   - Sums are accumulated in float32. C is rounded once, after the last term
//     and after the epilogue, when it is stored as bfloat16 or float16.
//   - Without a [Library], an element of C depends only on its row of A, its column of B, K and the
//     instruction set: the order of its sum does not change with the number of
//     workers, the task grid, M or N, so results are bit-identical for any of them.
//   - Run allocates nothing and touches no memory outside the operands, its two
//     scratch buffers and the padding that the caller must provide.
//
// Kernels exist for AVX-512 with AVX512_BF16, AVX-512, AVX2 with FMA, NEON and FEAT_BF16
// (all written by tools/asm/gemm) and as portable Go.
package gemm

import "unsafe"

//go:generate go -C ../../../tools/asm/gemm run . -file kernel512 -out ../../../engine/cpu/gemm/kernel512_amd64.s -stubs ../../../engine/cpu/gemm/kernel512_amd64.go -pkg gemm
//go:generate go -C ../../../tools/asm/gemm run . -file pack512 -out ../../../engine/cpu/gemm/pack512_amd64.s -stubs ../../../engine/cpu/gemm/pack512_amd64.go -pkg gemm
//go:generate go -C ../../../tools/asm/gemm run . -file kernel256 -out ../../../engine/cpu/gemm/kernel256_amd64.s -stubs ../../../engine/cpu/gemm/kernel256_amd64.go -pkg gemm
//go:generate go -C ../../../tools/asm/gemm run . -file pack256 -out ../../../engine/cpu/gemm/pack256_amd64.s -stubs ../../../engine/cpu/gemm/pack256_amd64.go -pkg gemm
//go:generate go -C ../../../tools/asm/gemm run . -file kernel128 -out ../../../engine/cpu/gemm/kernel128_arm64.s -stubs ../../../engine/cpu/gemm/kernel128_arm64.go -pkg gemm
//go:generate go -C ../../../tools/asm/gemm run . -file pack128 -out ../../../engine/cpu/gemm/pack128_arm64.s -stubs ../../../engine/cpu/gemm/pack128_arm64.go -pkg gemm

// Matrix is a stored operand: row-major, Stride elements from row to row. With
// Trans the operand of the product is the transpose of what is stored.
type Matrix struct {
	Data   unsafe.Pointer
	Type   DType
	Stride int
	Trans  bool
}

// at returns the address of element (i, j) of the stored matrix.
func (m *Matrix) at(i, j int) unsafe.Pointer {
	return unsafe.Add(m.Data, (i*m.Stride+j)*m.Type.Size())
}

// pitch returns the bytes from row to row.
func (m *Matrix) pitch() int { return m.Stride * m.Type.Size() }

// Args are the operands of one run of a [Plan]. Types and transposes must be
// those the plan was made for. C.Trans is not supported.
type Args struct {
	A, B, C Matrix
	// Bias, when not nil, are float32 values of the columns, added to the sums.
	Bias unsafe.Pointer
	// SeeA, when not nil, is called once for each part of op(A), rows [i0,i1) by elements
	// [k0,k1) of block kb of K, right after it was read. Several workers may see parts of
	// one matmul at once.
	SeeA func(kb, k0, k1, i0, i1 int)
	// Epilogue, when not nil, sees each finished block of C once.
	Epilogue Epilogue
}

// Epilogue is called by Run once for each finished block of C, rows [i0,i1) by columns
// [j0,j1), while the block is in cache: each element belongs to exactly one block. acc
// points at the float32 element (i0, j0), rows are stride floats apart. What Tile leaves
// there is the result (C itself when C is float32, otherwise it is rounded into C
// afterwards), unless Tile reports that it has stored the block in C itself. Several
// workers may finish blocks of one matmul at once.
type Epilogue interface {
	Tile(i0, i1, j0, j1 int, acc *float32, stride int) (stored bool)
	// Streams are the matrices that Tile reads and writes element by element,
	// in addition to what acc points at. They are fetched while the block is computed.
	Streams() []Stream
}

// Stream is a matrix of the shape of C: element (0, 0) is at Data, rows are
// Pitch and columns Size bytes apart.
type Stream struct {
	Data        unsafe.Pointer
	Pitch, Size int
}
