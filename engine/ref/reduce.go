package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// reduce combines all elements whose index agrees outside op.Axes.
func reduce(op graph.Reduce, x tensor, out graph.Type) []float64 {
	y := make([]float64, out.Shape.Elems())
	if op.Kind == graph.ReduceMax {
		for i := range y {
			y[i] = math.Inf(-1)
		}
	}
	// kept is the operand's shape with the reduced dimensions at extent 1: its
	// strides in the operand's index space are those of the result.
	kept := x.Shape.Clone()
	for d := range kept {
		if op.Has(d) {
			kept[d] = 1
		}
	}
	st := kept.Strides(x.Shape)
	i := 0
	each(x.Shape, func(at []int) {
		o := offset(at, st)
		if op.Kind == graph.ReduceMax {
			y[o] = max(y[o], x.data[i])
		} else {
			y[o] += x.data[i]
		}
		i++
	})
	if op.Kind == graph.ReduceMean {
		for i := range y {
			y[i] /= float64(op.Count(x.Shape))
		}
	}
	return y
}
