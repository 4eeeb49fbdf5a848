package attention

import "github.com/snug-ml/snug/engine/cpu/gemm"

var (
	rowsAVX2   = rowKernels{softmaxRowsAVX2, gradRowsAVX2, dotRowsAVX2, scaleRowsAVX2, mulRowAVX2, maskRowAVX2}
	rowsAVX512 = rowKernels{softmaxRowsAVX512, gradRowsAVX512, dotRowsAVX512, scaleRowsAVX512, mulRowAVX512, maskRowAVX512}
)

// rowsFor returns the row kernels of an instruction set.
func rowsFor(isa gemm.ISA) *rowKernels {
	switch l := isa.Resolve(); {
	case l >= gemm.AVX512:
		return &rowsAVX512
	case l == gemm.AVX2:
		return &rowsAVX2
	}
	return &rowsPortable
}
