// Package conformance checks every device against the meaning of the operations: a
// table of cases for each operation of engine/graph (ragged shapes, all element
// types, all attributes), run on the device and compared with the float64
// reference interpreter engine/ref, and the goldens computed by PyTorch.
//
// What the package promises:
//
//   - The table is the same on every run and machine: elements come from the
//     case's name.
//   - Every operation of engine/graph occurs, or the package's own test fails.
//   - Each case states its [Tolerance]; nothing is compared by eye.
//
// A device's test is two lines:
//
//	conformance.Run(t, conformance.On(backend))
//	conformance.RunGoldens(t, conformance.On(backend), "../testdata/goldens")
package conformance

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// Device runs functions.
type Device interface {
	// Name is the device's name in messages.
	Name() string
	// Run computes f once. in has the elements of each input and state, which its element
	// type holds exactly; the result has the elements of each output.
	Run(f *graph.Func, in map[string][]float64) (map[string][]float64, error)
}

// Case is one function with its inputs.
type Case struct {
	Name string
	Func *graph.Func
	In   map[string][]float64
	Tol  Tolerance
	// Twin, when set, is a function that must give the outputs of Func bit for bit on the
	// same device: the plain form of a fused one.
	Twin *graph.Func
	// Want are the right outputs if they come from elsewhere; nil means those of
	// engine/ref.
	Want map[string][]float64
	// Drawn means that Func rounds stochastically and Want does not: devices are held to
	// engine/ref all the same.
	Drawn bool
	// Rounded compares with the reference that rounds every intermediate
	// result to its type; otherwise the reference is exact throughout.
	Rounded bool
}

// Run checks the whole table on dev, one subtest per case.
func Run(t *testing.T, dev Device) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := Check(dev, c); err != nil {
				t.Errorf("%s: %v\n%v", dev.Name(), err, c.Func)
			}
		})
	}
}

// RunGoldens checks the goldens in the folder dir on dev, one subtest each.
func RunGoldens(t *testing.T, dev Device, dir string) {
	cases, err := Goldens(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if err := Check(dev, c); err != nil {
				t.Errorf("%s: %v\n%v", dev.Name(), err, c.Func)
			}
		})
	}
}

// Check runs one case on dev. The error names the worst element of each output that
// is outside the tolerance.
func Check(dev Device, c Case) error {
	want := c.Want
	if want == nil || c.Drawn {
		mode := ref.Exact
		if c.Rounded {
			mode = ref.Rounded
		}
		res, err := ref.Run(c.Func, c.In, mode)
		if err != nil {
			return fmt.Errorf("the case itself is wrong: %w", err)
		}
		want = res.Outputs
	}
	got, err := dev.Run(c.Func, c.In)
	if err != nil {
		return err
	}
	var bad []error
	for _, o := range c.Func.Outputs {
		bad = append(bad, c.Tol.compare(o.Name, o.Value.Type, got[o.Name], want[o.Name]))
	}
	if c.Twin != nil {
		bad = append(bad, same(dev, c, got))
	}
	return errors.Join(bad...)
}

// same checks that the twin gives the same bits as got.
func same(dev Device, c Case, got map[string][]float64) error {
	twin, err := dev.Run(c.Twin, c.In)
	if err != nil {
		return fmt.Errorf("plain form: %w", err)
	}
	for _, o := range c.Func.Outputs {
		for i, x := range got[o.Name] {
			if y := twin[o.Name][i]; math.Float64bits(x) != math.Float64bits(y) && !(math.IsNaN(x) && math.IsNaN(y)) {
				return fmt.Errorf("%s[%d] is %v, but %v by the plain form", o.Name, i, x, y)
			}
		}
	}
	return nil
}
