package ref

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// fetch returns a range of a state.
func fetch(op graph.Fetch, s tensor) []float64 {
	return slices.Clone(s.data[op.From : op.From+op.Elems])
}

// writeBack returns a state with a range replaced.
func writeBack(op graph.WriteBack, s, x tensor) []float64 {
	y := clone(s)
	copy(y[op.From:], x.data)
	return y
}

// stepPart takes the part from the step of the whole weight, with zeros for the other
// elements of the states.
func (m *machine) stepPart(op graph.StepPart, in []tensor) ([][]float64, error) {
	states, elems := op.States(), in[2].Shape.Elems()
	full := slices.Clone(in)
	types := make([]graph.Type, len(in))
	for i, x := range in {
		if i >= 2 && i < 2+states {
			n, at := in[0].Shape.Elems(), op.From
			if x.Shape.Elems() != elems {
				n, at = (n+graph.MomentBlock-1)/graph.MomentBlock, at/graph.MomentBlock
				full[i].Type = graph.T(x.DType, int(n))
			} else {
				full[i].Type = in[0].With(x.DType)
			}
			full[i].data = make([]float64, n)
			copy(full[i].data[at:], x.data)
		}
		types[i] = full[i].Type
	}
	out, err := op.Step.Infer(types)
	if err != nil {
		return nil, err
	}
	y, err := m.eval(op.Step, full, out)
	if err != nil {
		return nil, err
	}
	for _, a := range graph.Aliases(op, len(in)) {
		if a.In >= 2 {
			at := op.From
			if n := in[a.In].Shape.Elems(); n != elems {
				at /= graph.MomentBlock
			}
			y[a.Out] = y[a.Out][at : at+in[a.In].Shape.Elems()]
			continue
		}
		whole := clone(in[a.In])
		copy(whole[op.From:op.From+elems], y[a.Out][op.From:])
		y[a.Out] = whole
	}
	return y, nil
}
