//go:build !amd64

package gemm

func detect() ISA { return Portable }

// machineFor returns the kernels of a resolved level.
func machineFor(ISA, DType) *machine { return &machinePortable }
