//go:build !amd64 && !arm64

package gemm

func detect() []ISA { return []ISA{Portable} }

// machineFor returns the kernels of a resolved level.
func machineFor(ISA, DType) *machine { return &machinePortable }
