package conformance_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

const goldens = "../testdata/goldens"

// exact is engine/ref without rounding.
type exact struct{}

func (exact) Name() string { return "exact reference" }

func (exact) Run(f *graph.Func, in map[string][]float64) (map[string][]float64, error) {
	res, err := ref.Run(f, in, ref.Exact)
	if err != nil {
		return nil, err
	}
	return res.Outputs, nil
}

// In float64 the reference gives PyTorch's float64 results to the last bit of the float32
// that they are stored in.
func TestGoldensExact(t *testing.T) {
	cases, err := conformance.Goldens(goldens)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 90 {
		t.Errorf("found only %d goldens", len(cases))
	}
	for _, c := range cases {
		op, _, _ := strings.Cut(c.Name, "/")
		if op != "lion" && !c.Drawn { // whose authors compute in float32
			c.Tol = conformance.Tolerance{Ulps: 0.01, Abs: 1e-13}
		}
		if err := graph.Verify(c.Func); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if err := conformance.Check(exact{}, c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// If it rounds every result to float32, it is within the tolerance for devices.
func TestGoldensRounded(t *testing.T) { conformance.RunGoldens(t, reference{}, goldens) }
