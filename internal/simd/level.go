package simd

import (
	"fmt"
	"slices"
)

// Level is an instruction set the package has code for.
type Level int

// The levels, lowest first within a family of processors.
const (
	Portable Level = iota // plain Go, any architecture
	AVX2                  // AVX2, FMA, F16C, BMI (x86-64-v3)
	AVX512                // AVX-512 F, BW, DQ and VL besides (x86-64-v4)
	NEON                  // arm64
)

// String returns the level's name as printed by snug doctor.
func (l Level) String() string {
	switch l {
	case Portable:
		return "portable"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	case NEON:
		return "neon"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// levels are those this CPU runs, lowest first; level is the one in use.
var (
	levels = detect()
	level  = Best()
)

// Levels returns the levels that this CPU runs, lowest first.
func Levels() []Level { return levels }

// Best returns the highest level this CPU supports.
func Best() Level { return levels[len(levels)-1] }

// Active returns the level in use.
func Active() Level { return level }

// Use makes every later call run at level l. It is meant for tests and for
// measuring, and must not run concurrently with other calls of the package.
func Use(l Level) error {
	if l < Portable || l > NEON {
		return fmt.Errorf("simd: no level %v (want portable, avx2, avx512 or neon)", l)
	}
	if !slices.Contains(levels, l) {
		return fmt.Errorf("simd: this CPU does not run %v code (its best level is %v)", l, Best())
	}
	level = l
	return nil
}
