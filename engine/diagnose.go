package engine

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Range sums up the elements of a value.
type Range struct {
	Name       string // of the value
	Type       graph.Type
	Min, Max   float64 // of the finite elements
	NaNs, Infs int
}

func (r Range) String() string {
	s := fmt.Sprintf("%s %v", r.Name, r.Type)
	if r.Min <= r.Max {
		s += fmt.Sprintf(" in [%.4g, %.4g]", r.Min, r.Max)
	}
	if r.NaNs > 0 {
		s += fmt.Sprintf(", %d NaN", r.NaNs)
	}
	if r.Infs > 0 {
		s += fmt.Sprintf(", %d Inf", r.Infs)
	}
	return s
}

// NonFinite is the first value of a run that is not a number everywhere.
type NonFinite struct {
	Func, Op, Layer string
	Backward        bool
	Value           Range
	Inputs          []Range // of the operation, before it ran
}

func (b *NonFinite) String() string {
	var s strings.Builder
	half := "forward"
	if b.Backward {
		half = "backward"
	}
	fmt.Fprintf(&s, "first bad value: %s, made by %s of layer %s (%s half)", b.Value, b.Op, b.Layer, half)
	for _, in := range b.Inputs {
		fmt.Fprintf(&s, "\n  from %s", in)
	}
	return s.String()
}

// Diagnose runs fn once more on the inputs of a slot and finds the first value
// with a NaN or an infinity, nil if there is none. What fn writes to states it
// writes again.
func (r *Runner) Diagnose(fn string, slot int) (*NonFinite, error) {
	code, f := r.code[fn], r.p.Func(fn)
	if code == nil {
		return nil, fmt.Errorf("the program has no function %q", fn)
	}
	r.setSlot(slot)
	// The first run finds the node, the second looks at its operands before
	// the node overwrites any of them.
	var bad *graph.Node
	var found *NonFinite
	err := code.Trace(func(*graph.Node) {}, func(n *graph.Node) bool {
		for _, v := range n.Out {
			x := r.rangeOf(f, v)
			if _, att := n.Op.(graph.Attention); att && v.Index == 1 {
				x.Infs = 0 // the log-sum-exp of a row that sees nothing is -Inf
			}
			if x.NaNs+x.Infs > 0 {
				bad = n
				found = &NonFinite{Func: fn, Op: n.Op.Name(), Layer: n.Layer, Backward: n.Backward, Value: x}
				return false
			}
		}
		return true
	})
	if err != nil || bad == nil {
		return nil, err
	}
	err = code.Trace(func(n *graph.Node) {
		if n == bad {
			for _, v := range n.In {
				found.Inputs = append(found.Inputs, r.rangeOf(f, v))
			}
		}
	}, func(n *graph.Node) bool { return n != bad })
	return found, err
}

// rangeOf looks at the elements of v as they are now.
func (r *Runner) rangeOf(f *Func, v *graph.Value) Range {
	x := Range{Name: v.Label(), Type: v.Type, Min: math.Inf(1), Max: math.Inf(-1)}
	if !v.Type.DType.Float() {
		return x
	}
	a, err := r.address(f, v)
	if err != nil {
		return x
	}
	data := unsafe.Slice((*byte)(unsafe.Add(*a.Base, a.Offset)), v.Type.Bytes())
	t := Tensor{Data: data}
	elems := make([]float32, v.Type.Shape.Elems())
	switch v.Type.DType {
	case graph.BF16:
		simd.BF16ToF32(elems, t.U16())
	case graph.F16:
		simd.F16ToF32(elems, t.U16())
	default:
		copy(elems, t.F32())
	}
	for _, e := range elems {
		switch y := float64(e); {
		case math.IsNaN(y):
			x.NaNs++
		case math.IsInf(y, 0):
			x.Infs++
		default:
			x.Min, x.Max = min(x.Min, y), max(x.Max, y)
		}
	}
	return x
}
