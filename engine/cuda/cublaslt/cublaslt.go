// Package cublaslt is the part of cuBLASLt, NVIDIA's matmul library, that snug calls. The library does not
// come with the driver: it is used if PyTorch's wheels or a CUDA toolkit have installed it. [Open] loads it;
// tests use their own [Library] instead (engine/cuda/fakegpu).
package cublaslt

import "fmt"

// Library has a method for each of the library's functions. What C returns through pointers is a result;
// attributes are bytes, as in C.
type Library interface {
	// Version is 10000*major + 100*minor + patch.
	Version() int
	// Path is where the library was found.
	Path() string
	Create() (handle uintptr, s Status)
	Destroy(handle uintptr) Status
	DescCreate(compute ComputeType, scale DataType) (desc uintptr, s Status)
	DescSet(desc uintptr, a DescAttribute, value []byte) Status
	DescDestroy(desc uintptr) Status
	LayoutCreate(d DataType, rows, cols uint64, ld int64) (layout uintptr, s Status)
	LayoutSet(layout uintptr, a LayoutAttribute, value []byte) Status
	LayoutDestroy(layout uintptr) Status
	PreferenceCreate() (preference uintptr, s Status)
	PreferenceSet(preference uintptr, a PreferenceAttribute, value []byte) Status
	PreferenceDestroy(preference uintptr) Status
	// Heuristic fills results with candidates, best first.
	Heuristic(handle, desc uintptr, l Layouts, preference uintptr, results []Result) (n int, s Status)
	// Check says whether an algorithm can compute a product, and with what workspace.
	Check(handle, desc uintptr, l Layouts, algo *Algorithm) (r Result, s Status)
	// AlgoGet reads an attribute of an algorithm.
	AlgoGet(algo *Algorithm, a AlgoAttribute, value []byte) Status
	// Matmul queues a product.
	Matmul(handle, desc uintptr, l Layouts, m *Matmul) Status
}

// Layouts are the layouts of the matrices of op(A) op(B) + C = D.
type Layouts struct{ A, B, C, D uintptr }

// Matmul holds the other arguments of a product: addresses on the card, factors, and the stream to queue it
// in.
type Matmul struct {
	Alpha, Beta    float32
	A, B, C, D     uint64
	Algorithm      *Algorithm
	Workspace      uint64
	WorkspaceBytes int64
	Stream         uintptr
}

// Algorithm is a cublasLtMatmulAlgo_t. The meaning of the bytes is specific to a version of the library.
type Algorithm [64]byte

// Result is a cublasLtMatmulHeuristicResult_t.
type Result struct {
	Algorithm Algorithm
	Workspace uint64
	State     Status
	Waves     float32
	_         [4]int32
}

// The numbers below are from cublasLt.h, library_types.h and cublas_api.h of cuBLAS 12.9.3 and 13.10 (PyPI's
// nvidia-cublas-cu12 and nvidia-cublas), printed by a C program; both versions agree.

// DataType is a cudaDataType.
type DataType int32

// These are the formats of elements.
const (
	R32F  DataType = 0
	R16F  DataType = 2
	R16BF DataType = 14
)

// ComputeType is a cublasComputeType_t: how elements are multiplied and summed.
type ComputeType int32

// Both sum in float32.
const (
	Compute32F         ComputeType = 68 // multiplies elements as they are
	Compute32FFastTF32 ComputeType = 77 // rounds float32 elements to TF32
)

// DescAttribute is a cublasLtMatmulDescAttributes_t.
type DescAttribute int32

// These attributes can be set for a product.
const (
	DescTransA      DescAttribute = 3 // int32, an operation
	DescTransB      DescAttribute = 4
	DescEpilogue    DescAttribute = 7 // uint32
	DescBiasPointer DescAttribute = 8 // an address
)

const (
	opN int32 = 0
	opT int32 = 1

	epilogueDefault uint32 = 1
	epilogueBias    uint32 = 4
)

// LayoutAttribute is a cublasLtMatrixLayoutAttribute_t.
type LayoutAttribute int32

// These attributes can be set for a matrix.
const (
	LayoutBatchCount  LayoutAttribute = 5 // int32
	LayoutBatchStride LayoutAttribute = 6 // int64, in elements
)

// PreferenceAttribute is a cublasLtMatmulPreferenceAttributes_t.
type PreferenceAttribute int32

// These attributes restrict candidates.
const (
	PreferWorkspace      PreferenceAttribute = 1 // uint64, the most bytes
	PreferReductions     PreferenceAttribute = 3 // uint32, a set of schemes
	PreferAlignmentA     PreferenceAttribute = 5 // uint32, bytes
	PreferAlignmentB     PreferenceAttribute = 6
	PreferAlignmentC     PreferenceAttribute = 7
	PreferAlignmentD     PreferenceAttribute = 8
	reductionNone        uint32              = 0
	reductionComputeType uint32              = 2 // partial sums are in the workspace and are added in a second step
)

// AlgoAttribute is a cublasLtMatmulAlgoConfigAttributes_t.
type AlgoAttribute int32

// AlgoReduction is how the parts of a split K are added: uint32.
const AlgoReduction AlgoAttribute = 3

// Status is a cublasStatus_t.
type Status int32

// These are the statuses that snug distinguishes.
const (
	Success         Status = 0
	NotInitialized  Status = 1
	AllocFailed     Status = 3
	InvalidValue    Status = 7
	ArchMismatch    Status = 8
	ExecutionFailed Status = 13
	InternalError   Status = 14
	NotSupported    Status = 15
)

var meanings = map[Status]string{
	NotInitialized:  "the library cannot use the card: it may be newer than the driver",
	AllocFailed:     "too little memory",
	InvalidValue:    "an argument is out of range",
	ArchMismatch:    "the card lacks what this needs",
	ExecutionFailed: "the kernel failed",
	InternalError:   "the library failed",
	NotSupported:    "the library has no kernel for it",
}

// Error is a failed call of the library.
type Error struct {
	Call   string
	Status Status
}

func (e *Error) Error() string {
	m := meanings[e.Status]
	if m == "" {
		m = "the library failed"
	}
	return fmt.Sprintf("%s: %s (cuBLAS status %d)", e.Call, m, e.Status)
}

func failed(call string, s Status) error {
	if s == Success {
		return nil
	}
	return &Error{call, s}
}

// Absent means that there is no usable library, and says why.
type Absent struct{ Why string }

func (e *Absent) Error() string { return e.Why }

// VersionText is a version in the usual notation.
func VersionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }
