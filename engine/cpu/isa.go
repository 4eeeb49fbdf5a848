package cpu

import (
	"os"

	"github.com/snug-ml/snug/internal/isa"
	"github.com/snug-ml/snug/internal/simd"
)

// matmulISA is the level of the matrix kernels that programs are compiled for;
// the vector functions keep theirs in simd.
var matmulISA = isa.Auto

// unconfigured is the error in SNUG_CPU_ISA, if any; Compile reports it.
var unconfigured error

// Kernels names the kernels in use: programs compiled for the same kernels give the same
// bits on every machine.
func Kernels() string {
	vectors, products := simd.Active().Vectors(), matmulISA.Resolve().Products()
	if vectors == products {
		return vectors.String()
	}
	return vectors.String() + "+" + products.String()
}

func init() { unconfigured = Configure(os.Getenv("SNUG_CPU_ISA")) }

// Configure chooses the kernels of programs compiled from now on, by a value of
// hardware.cpu_isa; "" is auto, the best that the machine runs. The environment's
// SNUG_CPU_ISA is applied at startup. Levels differ in rounding. It must not be called while
// a program runs.
func Configure(setting string) error {
	level, err := isa.Setting(setting).Level()
	if err == nil {
		err = simd.Use(level)
	}
	if err != nil {
		return err
	}
	matmulISA, unconfigured = level, nil
	return nil
}
