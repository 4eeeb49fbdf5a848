package cpu

import (
	"os"
	"sync"

	"github.com/snug-ml/snug/internal/isa"
	"github.com/snug-ml/snug/internal/simd"
)

// matmulISA is the level of the matrix kernels that programs are compiled for;
// the vector functions keep theirs in simd.
var matmulISA = isa.Auto

// unconfigured is the error in SNUG_CPU_ISA, if any; Compile reports it.
var unconfigured error

// configuring is held while the kernels are chosen.
var configuring sync.Mutex

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
// SNUG_CPU_ISA is applied at startup. Levels differ in rounding. While a program runs, it may
// only choose what is chosen already.
func Configure(setting string) error {
	level, err := isa.Setting(setting).Level()
	if err != nil {
		return err
	}
	configuring.Lock()
	defer configuring.Unlock()
	if err := simd.Use(level); err != nil {
		return err
	}
	if level != matmulISA { // others may be reading it
		matmulISA = level
	}
	if unconfigured != nil {
		unconfigured = nil
	}
	return nil
}
