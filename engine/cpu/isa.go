package cpu

import (
	"fmt"
	"os"
	"slices"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/simd"
)

// matmulISA is the level of the matrix kernels that programs are compiled for;
// the vector functions keep theirs in simd.
var matmulISA = gemm.Auto

// unconfigured is what was wrong with SNUG_CPU_ISA; Compile reports it.
var unconfigured error

// Kernels names the kernels in use: programs compiled for the same ones give the
// same bits on every machine.
func Kernels() string {
	vectors, level := simd.Active().String(), matmulISA.Resolve()
	if level == gemm.NEONBFMMLA { // the bits of BFDOT
		level = gemm.NEONBF16
	}
	matrices := level.String()
	if vectors == matrices {
		return vectors
	}
	return vectors + "+" + matrices
}

func init() { unconfigured = Configure(os.Getenv("SNUG_CPU_ISA")) }

// Configure chooses the kernels of programs compiled from now on: "portable",
// "avx2", "avx512", "neon", "neon-bfdot" (of equal bits, without BFMMLA) or "auto" (also
// ""), the best that the machine runs. The environment's SNUG_CPU_ISA is applied at start. Results differ between
// levels by rounding. It must not be called while a program runs.
func Configure(isa string) error {
	level, matrix := simd.Best(), gemm.Auto
	switch isa {
	case "", "auto":
	case "portable":
		level, matrix = simd.Portable, gemm.Portable
	case "avx2":
		level, matrix = simd.AVX2, gemm.AVX2
	case "avx512":
		level, matrix = simd.AVX512, gemm.AVX512BF16
	case "neon":
		level, matrix = simd.NEON, gemm.NEONBFMMLA
	case "neon-bfdot":
		level, matrix = simd.NEON, gemm.NEONBF16
	default:
		return fmt.Errorf("unknown CPU kernels %q (SNUG_CPU_ISA or hardware.cpu_isa): use auto, portable, avx2, avx512, neon or neon-bfdot", isa)
	}
	if !slices.Contains(simd.Levels(), level) {
		return fmt.Errorf("this CPU does not run %s kernels (SNUG_CPU_ISA or hardware.cpu_isa): its best are %v", isa, simd.Best())
	}
	if err := simd.Use(level); err != nil {
		return err
	}
	matmulISA, unconfigured = matrix, nil
	return nil
}
