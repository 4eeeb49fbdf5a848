package conformance

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// randomPrograms adds long sequences of operations with states that are read, viewed and
// written in between, which passes, placement and scheduling must not disturb. All values
// are 4x6 matrices or views of them.
func (t *table) randomPrograms() {
	for i := range 150 {
		// Errors accumulate over many operations, each well behaved.
		t.add(fmt.Sprintf("random/%d", i), Tolerance{Ulps: 64, Terms: 10_000}, func(m *maker) {
			p := &randomProgram{maker: m}
			p.build(5 + i%40)
		})
	}
}

type randomProgram struct {
	*maker
	states []*graph.Value // current versions
	pool   []*graph.Value // values that may be read
}

var (
	matrix = graph.T(graph.F32, 4, 6)
	forms  = []graph.Shape{{4, 6}, {24}, {6, 4}, {2, 2, 6}}
)

func (p *randomProgram) build(nodes int) {
	for i := range 2 {
		s := p.state(fmt.Sprint("s", i), matrix, p.rng.NormFloat64)
		p.states = append(p.states, s)
		p.pool = append(p.pool, s, p.input(fmt.Sprint("x", i), matrix, p.rng.NormFloat64))
	}
	for range nodes {
		if p.rng.IntN(6) == 0 {
			p.write()
		} else {
			p.pool = append(p.pool, p.compute())
		}
	}
	for i, v := range p.pool[len(p.pool)-min(len(p.pool), 6):] {
		p.Output(fmt.Sprint("y", i), p.Neg(v))
	}
	for i, v := range p.states {
		p.Output(fmt.Sprint("s", i), v)
	}
}

// pick returns a value as a matrix, half of the time through a view of another shape.
func (p *randomProgram) pick() *graph.Value {
	v := p.pool[p.rng.IntN(len(p.pool))]
	if p.rng.IntN(2) == 0 {
		v = p.Reshape(v, forms[p.rng.IntN(len(forms))]...)
		if p.rng.IntN(3) == 0 {
			p.pool = append(p.pool, v)
		}
	}
	return p.Reshape(v, matrix.Shape...)
}

func (p *randomProgram) compute() *graph.Value {
	a := p.pick()
	switch p.rng.IntN(9) {
	case 0:
		return p.MulC(p.Add(a, p.pick()), 0.5)
	case 1:
		return p.Sub(a, p.MeanKeep(p.pick(), p.rng.IntN(2)))
	case 2:
		return p.Tanh(p.Mul(a, p.pick()))
	case 3:
		return p.Softmax(a)
	case 4:
		return p.MulC(p.MatMul(p.MatMul(a, p.pick(), false, true), p.pick(), false, false), 0.05)
	case 5:
		return p.Reshape(p.Transpose(a, 1, 0), matrix.Shape...)
	case 6:
		return p.Concat(1, p.Slice(a, 1, 0, 2), p.Slice(p.pick(), 1, 1, 4))
	case 7:
		row := p.Reshape(p.Slice(p.pick(), 0, 1, 1), 6)
		return p.Emit(graph.LayerNorm{Eps: 1}, a, row, row)[0]
	}
	return p.Apply(graph.FnCopy, a)
}

// write overwrites a state in place. The old version and its views, which share its
// storage, may no longer be read.
func (p *randomProgram) write() {
	i := p.rng.IntN(len(p.states))
	old := p.states[i]
	switch p.rng.IntN(3) {
	case 0:
		p.states[i] = p.Assign(old, p.pick())
	case 1:
		p.states[i] = p.Accumulate(old, p.pick())
	case 2:
		square := p.MulC(p.MatMul(p.pick(), p.pick(), false, true), 0.1)
		p.states[i] = p.Emit(graph.MatMul{Accumulate: true}, p.Tanh(square), p.Tanh(p.pick()), old)[0]
	}
	p.pool = slices.DeleteFunc(p.pool, func(v *graph.Value) bool { return graph.Storage(v) == old })
	p.pool = append(p.pool, p.states[i])
}
