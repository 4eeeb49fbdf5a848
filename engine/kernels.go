package engine

import "github.com/snug-ml/snug/engine/cpu"

// UseKernels chooses the kernels of programs armed from now on: auto, portable,
// avx2 or avx512. The environment's SNUG_CPU_ISA is applied at start.
func UseKernels(isa string) error { return cpu.Configure(isa) }
