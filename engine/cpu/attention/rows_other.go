//go:build !amd64 && !arm64

package attention

import "github.com/snug-ml/snug/engine/cpu/gemm"

// rowsFor returns the row kernels of an instruction set.
func rowsFor(gemm.ISA) *rowKernels { return &rowsPortable }
