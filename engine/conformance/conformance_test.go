package conformance_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// reference is engine/ref as a device. spoil changes its results.
type reference struct {
	spoil func(t graph.Type, x []float64)
}

func (reference) Name() string { return "reference" }

func (r reference) Run(f *graph.Func, in map[string][]float64) (map[string][]float64, error) {
	res, err := ref.Run(f, in, ref.Rounded)
	if err != nil {
		return nil, err
	}
	for _, o := range f.Outputs {
		if r.spoil != nil {
			x := slices.Clone(res.Outputs[o.Name])
			r.spoil(o.Value.Type, x)
			res.Outputs[o.Name] = x
		}
	}
	return res.Outputs, nil
}

// The reference, rounding as devices must, is within every tolerance.
func TestReference(t *testing.T) { conformance.Run(t, reference{}) }

// spoil puts one element off by 1 % (6 % in the 16-bit formats). It is the
// largest element, so that no absolute tolerance hides it.
func spoil(typ graph.Type, x []float64) {
	at := 0
	for i, v := range x {
		if !math.IsInf(v, 0) && (math.IsNaN(x[at]) || math.IsInf(x[at], 0) || math.Abs(v) > math.Abs(x[at])) {
			at = i
		}
	}
	switch {
	case x[at] == 0 || math.IsInf(x[at], 0) || math.IsNaN(x[at]):
		x[at] = 1
	case typ.DType.Half():
		x[at] *= 1.06
	default:
		x[at] *= 1.01
	}
}

func TestSpoiledResultIsCaught(t *testing.T) {
	cases, err := conformance.Goldens(goldens)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(conformance.Cases(), cases...) {
		if conformance.Check(reference{spoil}, c) == nil {
			t.Errorf("%s: a wrong element passed", c.Name)
		}
	}
}

func TestNaNIsNotANumber(t *testing.T) {
	spoil := func(_ graph.Type, x []float64) { x[len(x)-1] = math.NaN() }
	for _, c := range conformance.Cases() {
		if strings.HasSuffix(c.Name, "/specials") || strings.HasSuffix(c.Name, "infinite") {
			continue // where NaN may be right
		}
		if conformance.Check(reference{spoil}, c) == nil {
			t.Errorf("%s: NaN passed", c.Name)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range conformance.Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		seen[c.Name] = true
		if err := graph.Verify(c.Func); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func TestCasesAreDeterministic(t *testing.T) {
	a, b := conformance.Cases(), conformance.Cases()
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Func.String() != b[i].Func.String() || !maps.EqualFunc(a[i].In, b[i].In, sameBits) {
			t.Errorf("case %s differs from %s of the second table", a[i].Name, b[i].Name)
		}
	}
}

func sameBits(x, y []float64) bool {
	return slices.EqualFunc(x, y, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
}

// Every operation that engine/graph declares has a case, or is in the programs of
// [conformance.Offload]: operations are the types with the methods Infer and Grad in its
// sources.
func TestEveryOperationHasACase(t *testing.T) {
	declared := map[string]map[string]bool{}
	files, err := filepath.Glob("../graph/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of engine/graph: %v", err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if m, ok := d.(*ast.FuncDecl); ok && m.Recv != nil {
				if recv, ok := m.Recv.List[0].Type.(*ast.Ident); ok {
					if declared[recv.Name] == nil {
						declared[recv.Name] = map[string]bool{}
					}
					declared[recv.Name][m.Name.Name] = true
				}
			}
		}
	}
	covered := map[string]bool{}
	for _, c := range conformance.Cases() {
		for _, n := range c.Func.Nodes {
			covered[strings.TrimPrefix(fmt.Sprintf("%T", n.Op), "graph.")] = true
		}
	}
	for _, f := range offloaded(t).Funcs {
		for _, n := range f.F.Nodes {
			covered[strings.TrimPrefix(fmt.Sprintf("%T", n.Op), "graph.")] = true
		}
	}
	found := 0
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if declared[name]["Infer"] && declared[name]["Grad"] {
			found++
			if !covered[name] {
				t.Errorf("no case runs operation %s", name)
			}
		}
	}
	if found < 25 {
		t.Errorf("found only %d operations in the sources", found)
	}
}
