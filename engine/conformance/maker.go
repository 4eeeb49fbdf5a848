package conformance

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// The element types of floating-point operations.
var floats = []graph.DType{graph.F32, graph.BF16, graph.F16}

// table collects cases.
type table struct{ cases []Case }

// Cases returns all cases, by operation.
func Cases() []Case {
	var t table
	t.elementwise()
	t.fused()
	t.mapped()
	t.fusedSums()
	t.random()
	t.shapes()
	t.reductions()
	t.matmuls()
	t.embeddings()
	t.norms()
	t.losses()
	t.attention()
	t.pictures()
	t.choices()
	t.experts()
	t.scans()
	t.relations()
	t.optimizer()
	t.programs()
	t.randomPrograms()
	return t.cases
}

// add makes a case from what build appends to an empty function and names as outputs. A
// mistake in a build is a mistake in this package, so it panics.
func (t *table) add(name string, tol Tolerance, build func(m *maker)) *Case {
	m := newMaker(name)
	build(m)
	t.cases = append(t.cases, Case{Name: name, Func: m.F, In: m.in, Tol: tol})
	return &t.cases[len(t.cases)-1]
}

// maker builds the function of a case together with its inputs.
type maker struct {
	*graph.Builder
	in  map[string][]float64
	rng *rand.Rand
}

func newMaker(name string) *maker {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	f, _, _ := strings.Cut(name, "/")
	return &maker{
		Builder: graph.NewBuilder(f), in: map[string][]float64{},
		rng: rand.New(rand.NewPCG(h.Sum64(), 0)),
	}
}

// input declares an input with elements from gen, rounded to the type.
func (m *maker) input(name string, t graph.Type, gen func() float64) *graph.Value {
	m.in[name] = fill(t, gen)
	return m.Input(name, t)
}

// state declares a state with elements from gen.
func (m *maker) state(name string, t graph.Type, gen func() float64) *graph.Value {
	m.in[name] = fill(t, gen)
	return m.State(&graph.State{Name: name, Type: t})
}

// quantized is a state of a quantized format. Its elements are given before they are
// quantized, for the readers of the case: decoded elements need not become the same codes
// again.
func (m *maker) quantized(name string, d graph.DType, dims ...int) *graph.Value {
	return m.state(name, graph.T(d, dims...), func() float64 { return float64(float32(m.rng.NormFloat64())) })
}

func fill(t graph.Type, gen func() float64) []float64 {
	x := make([]float64, t.Shape.Elems())
	for i := range x {
		x[i] = ref.Round(gen(), t.DType)
	}
	return x
}

// normal is an input of standard normal numbers.
func (m *maker) normal(name string, d graph.DType, dims ...int) *graph.Value {
	return m.input(name, graph.T(d, dims...), m.rng.NormFloat64)
}

// ints is an I32 input of numbers in [lo, hi].
func (m *maker) ints(name string, lo, hi int, dims ...int) *graph.Value {
	return m.input(name, graph.T(graph.I32, dims...), func() float64 { return float64(lo + m.rng.IntN(hi-lo+1)) })
}

// given is an I32 input with the elements listed.
func (m *maker) given(name string, x ...int) *graph.Value {
	i := -1
	return m.input(name, graph.T(graph.I32, len(x)), func() float64 { i++; return float64(x[i]) })
}

// scalar is an F32 scalar input.
func (m *maker) scalar(name string, x float64) *graph.Value {
	return m.input(name, graph.T(graph.F32), func() float64 { return x })
}

// outputs names results y0, y1, ...; nil ones are left out.
func (m *maker) outputs(vs ...*graph.Value) {
	for i, v := range vs {
		if v != nil {
			m.Output("y"+string(rune('0'+i)), v)
		}
	}
}
