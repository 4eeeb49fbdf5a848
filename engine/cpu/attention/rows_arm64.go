package attention

import "github.com/snug-ml/snug/engine/cpu/gemm"

var rowsNEON = rowKernels{softmaxRowsNEON, gradRowsNEON, dotRowsNEON, scaleRowsNEON, mulRowNEON, maskRowNEON}

// rowsFor returns the row kernels of an instruction set.
func rowsFor(isa gemm.ISA) *rowKernels {
	if isa.Resolve() >= gemm.NEON {
		return &rowsNEON
	}
	return &rowsPortable
}
