package engine

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/snug-ml/snug/engine/graph"
)

// Range summarizes the elements of a value.
type Range struct {
	Name       string // the value's name
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

// NonFinite describes the first value of a run with an element that is not finite.
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

// Diagnose runs fn once more on the inputs of a slot and finds the first value with a NaN
// or an infinity; nil if there is none. What fn writes to states is written again.
func (x *Executable) Diagnose(fn string, slot int) (*NonFinite, error) {
	f := x.p.Func(fn)
	if f == nil {
		return nil, fmt.Errorf("the program has no function %q", fn)
	}
	// The first run finds the node, the second looks at its operands before
	// the node overwrites any of them.
	var bad *graph.Node
	var found *NonFinite
	var failed error
	look := func(v *graph.Value) Range {
		r, err := x.rangeOf(f, v)
		if failed == nil {
			failed = err
		}
		return r
	}
	err := x.Watch(fn, slot, &Observer{After: func(n *graph.Node, _ time.Duration) bool {
		for _, v := range n.Out {
			r := look(v)
			if _, att := n.Op.(graph.Attention); att && v.Index == 1 {
				r.Infs = 0 // the log-sum-exp of a row that sees nothing is -Inf
			}
			if r.NaNs+r.Infs > 0 {
				bad = n
				found = &NonFinite{Func: fn, Op: n.Op.Name(), Layer: n.Layer, Backward: n.Backward, Value: r}
				return false
			}
		}
		return failed == nil
	}})
	if err := cmp.Or(err, failed); err != nil || bad == nil {
		return nil, err
	}
	err = x.Watch(fn, slot, &Observer{
		Before: func(n *graph.Node) {
			if n == bad {
				for _, v := range n.In {
					found.Inputs = append(found.Inputs, look(v))
				}
			}
		},
		After: func(n *graph.Node, _ time.Duration) bool { return n != bad },
	})
	return found, cmp.Or(err, failed)
}

// Watch runs fn with an observer.
func (x *Executable) Watch(fn string, slot int, o *Observer) error {
	x.Observe(o)
	defer x.Observe(nil)
	if err := x.Run(fn, slot); err != nil {
		return err
	}
	return x.Sync()
}

// ReadValue copies the current elements of a value of f. It is for an observer of a run
// of f, between two nodes.
func (x *Executable) ReadValue(f *Func, v *graph.Value) (Tensor, error) {
	t := Tensor{v.Label(), v.Type, make([]byte, v.Type.Bytes())}
	at, err := x.p.Place(f, v)
	if err != nil {
		return t, err
	}
	if at.Region == Inputs {
		copy(t.Data, x.image.Input(x.slot)[at.Offset:])
		return t, nil
	}
	return t, x.image.Read(t.Data, x.p.Layout.Region(at.Region).Offset+at.Offset)
}

// rangeOf summarizes the current elements of v.
func (x *Executable) rangeOf(f *Func, v *graph.Value) (Range, error) {
	r := Range{Name: v.Label(), Type: v.Type, Min: math.Inf(1), Max: math.Inf(-1)}
	if !v.Type.DType.Float() {
		return r, nil
	}
	t, err := x.ReadValue(f, v)
	if err != nil {
		return r, err
	}
	for _, e := range t.Floats() {
		switch y := float64(e); {
		case math.IsNaN(y):
			r.NaNs++
		case math.IsInf(y, 0):
			r.Infs++
		default:
			r.Min, r.Max = min(r.Min, y), max(r.Max, y)
		}
	}
	return r, nil
}
