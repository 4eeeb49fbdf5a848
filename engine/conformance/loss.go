package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

func (t *table) losses() {
	for _, d := range floats {
		for _, s := range [][2]int{{1, 1}, {12, 23}, {33, 1031}} {
			t.crossEntropy(d, s[0], s[1])
		}
		if d != graph.BF16 {
			t.linearCrossEntropy(d, graph.BF16, 33, 40, 301, 16)
		}
		for _, s := range []struct{ n, d, v, chunk int }{{1, 1, 1, 1}, {12, 7, 23, 12}, {12, 7, 23, 5}, {33, 40, 301, 16}, {8, 64, 97, 1}} {
			t.linearCrossEntropy(d, d, s.n, s.d, s.v, s.chunk)
		}
	}
}

// labels are ids below vocab with some rows ignored, and their weights.
func (m *maker) labels(rows, vocab int) (labels, weights *graph.Value) {
	labels = m.input("labels", graph.T(graph.I32, rows), func() float64 {
		if m.rng.IntN(5) == 0 {
			return -100
		}
		return float64(m.rng.IntN(vocab))
	})
	return labels, m.input("weights", graph.T(graph.F32, rows), m.rng.Float64)
}

func (t *table) crossEntropy(d graph.DType, rows, vocab int) {
	logits := func(m *maker) *graph.Value {
		return m.input("logits", graph.T(d, rows, vocab), func() float64 { return 4 * m.rng.NormFloat64() })
	}
	t.add(fmt.Sprintf("cross_entropy/%v/%dx%d", d, rows, vocab), Tolerance{Ulps: 4, Terms: rows + vocab, Abs: 0x1p-20}, func(m *maker) {
		x := logits(m)
		labels, weights := m.labels(rows, vocab)
		m.outputs(m.Emit(graph.CrossEntropy{}, x, labels, weights)...)
	})
	t.add(fmt.Sprintf("cross_entropy_grad/%v/%dx%d", d, rows, vocab), Tolerance{Ulps: 32, Abs: 0x1p-22}, func(m *maker) {
		x := logits(m)
		labels, weights := m.labels(rows, vocab)
		lse := m.Emit(graph.CrossEntropy{}, x, labels, weights)[1]
		m.outputs(m.Emit(graph.CrossEntropyGrad{}, x, labels, weights, lse, m.scalar("dloss", 0.7))...)
	})
}

// linearCrossEntropy has h in format d and w, which may merely be stored in it, in format
// stored.
func (t *table) linearCrossEntropy(d, stored graph.DType, rows, width, vocab, chunk int) {
	operands := func(m *maker) []*graph.Value {
		h, w := m.normal("h", d, rows, width), m.normal("w", stored, vocab, width)
		labels, weights := m.labels(rows, vocab)
		return []*graph.Value{h, w, labels, weights}
	}
	name := fmt.Sprintf("%v/%dx%dx%d/%d", d, rows, width, vocab, chunk)
	if stored != d {
		name = fmt.Sprintf("%v_%s", stored, name)
	}
	t.add("linear_cross_entropy/"+name, Tolerance{Ulps: 4, Terms: rows + width, Abs: 0x1p-20}, func(m *maker) {
		y := m.Emit(graph.LinearCrossEntropy{Chunk: chunk}, operands(m)...)
		m.outputs(y[0], y[1])
	})
	// The gradient of the logits may be rounded to the format of h before it is multiplied.
	tol := Tolerance{Ulps: 32, Terms: rows + width + vocab, Inner: 1, InnerDType: d, Abs: 0x1p-20}
	t.add("linear_cross_entropy_grad/"+name, tol, func(m *maker) {
		op := graph.LinearCrossEntropyGrad{Chunk: chunk}
		y := m.Emit(op, append(operands(m), m.scalar("dloss", 0.7))...)
		m.outputs(y[0], y[1], y[2])
	})
	t.add("linear_cross_entropy_grad/"+name+"_frozen", tol, func(m *maker) {
		op := graph.LinearCrossEntropyGrad{Chunk: chunk, Frozen: true}
		y := m.Emit(op, append(operands(m), m.scalar("dloss", 0.7))...)
		m.outputs(y[0], y[1])
	})
	t.add("linear_cross_entropy_grad/"+name+"_accumulate", tol, func(m *maker) {
		dw := m.state("dw", graph.T(graph.F32, vocab, width), m.rng.NormFloat64)
		y := m.Emit(graph.LinearCrossEntropyGrad{Chunk: chunk}, append(operands(m), m.scalar("dloss", 0.7), dw)...)
		m.outputs(y[0], y[1], y[2])
	})
}
