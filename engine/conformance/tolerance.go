package conformance

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// Tolerance is how far a result may be from the exact value w. Every result
// may be rounded once to its own type. Beyond that come, in units in the last
// place (ulp) of float32, the format of arithmetic:
//
//	Ulps*ulp32*|w| + 2*sqrt(Terms)*ulp32*max|w| + Inner*ulp(InnerDType)*max|w| + Abs
//
// with max|w| over the tensor. Errors of sums grow with the square root of
// their length when roundings are independent; 2 covers their spread.
type Tolerance struct {
	Ulps  float64 // of the arithmetic on one element
	Terms int     // length of the sums that lead to an element
	// Inner counts the intermediate results that may be rounded to the 16-bit
	// format InnerDType on the way (softmax weights before they are multiplied, say).
	Inner      float64
	InnerDType graph.DType
	Abs        float64 // for results near zero that come from cancellation
}

// ulp is the distance from 1 to the next number of d.
func ulp(d graph.DType) float64 {
	switch d {
	case graph.BF16:
		return 0x1p-7
	case graph.F16:
		return 0x1p-10
	}
	return 0x1p-23
}

// tiny is the number of d below which precision is lost: a device may round
// smaller numbers to zero, except that F16 must keep its subnormal numbers.
func tiny(d graph.DType) float64 {
	if d == graph.F16 {
		return 0x1p-24
	}
	return 0x1p-126
}

// limit is the largest finite number of d.
func limit(d graph.DType) float64 {
	switch d {
	case graph.BF16:
		return 0x1.fep127
	case graph.F16:
		return 65504
	}
	return math.MaxFloat32
}

func (t Tolerance) allowed(d graph.DType, w, top float64) float64 {
	switch d {
	case graph.I32:
		return 0
	case graph.U8: // a number next to the boundary of two codes
		return 1
	}
	e := 0.5001*ulp(d)*math.Abs(w) + tiny(d) + t.Abs
	e += ulp(graph.F32) * (t.Ulps*math.Abs(w) + 2*math.Sqrt(float64(t.Terms))*top)
	if t.Inner > 0 {
		e += t.Inner * ulp(t.InnerDType) * top
	}
	return e
}

// compare finds where got is farthest from want, in units of the tolerance.
func (t Tolerance) compare(name string, typ graph.Type, got, want []float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("output %s has %d elements, want %d of %v", name, len(got), len(want), typ)
	}
	d := typ.DType
	top := 0.0
	for _, w := range want {
		if !math.IsInf(w, 0) && !math.IsNaN(w) {
			top = max(top, math.Abs(w))
		}
	}
	worst, at, bad := 1.0, -1, 0
	for i, w := range want {
		if off := t.distance(d, got[i], w, top); off > 1 {
			bad++
			if off > worst {
				worst, at = off, i
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("output %s %v: %d of %d elements are wrong; worst is [%d] = %.9g, want %.9g: off by %.3g, allowed %.3g",
		name, typ, bad, len(want), at, got[at], want[at], math.Abs(got[at]-want[at]), t.allowed(d, want[at], top))
}

// distance is |g-w| in units of the tolerance: at most 1 is right.
func (t Tolerance) distance(d graph.DType, g, w, top float64) float64 {
	switch {
	case math.IsNaN(w):
		if math.IsNaN(g) {
			return 0
		}
		return math.Inf(1)
	case math.IsNaN(g):
		return math.Inf(1)
	case g == w:
		return 0
	case math.Abs(w) > limit(d):
		if math.IsInf(g, 0) && math.Signbit(g) == math.Signbit(w) {
			return 0
		}
		return math.Inf(1)
	}
	return math.Abs(g-w) / t.allowed(d, w, top)
}
