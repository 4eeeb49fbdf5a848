package simd

import "fmt"

// Level is an instruction set the package has code for.
type Level int

// The levels, lowest first.
const (
	Portable Level = iota // plain Go, any architecture
	AVX2                  // AVX2, FMA, F16C, BMI (x86-64-v3)
	AVX512                // AVX-512 F, BW, DQ and VL besides (x86-64-v4)
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
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// best is the highest level this CPU runs; level is the one in use.
var (
	best  = detect()
	level = best
)

// Best returns the highest level this CPU supports.
func Best() Level { return best }

// Active returns the level in use.
func Active() Level { return level }

// Use makes every later call run at level l. It is meant for tests and for
// measuring, and must not run concurrently with other calls of the package.
func Use(l Level) error {
	if l < Portable || l > AVX512 {
		return fmt.Errorf("simd: no level %v (want portable, avx2 or avx512)", l)
	}
	if l > best {
		return fmt.Errorf("simd: this CPU does not run %v code (its best level is %v)", l, best)
	}
	level = l
	return nil
}
