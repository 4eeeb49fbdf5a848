package ref

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// gather reads the result's element at each index from the operand's offset there.
func gather(x tensor, out graph.Type, from func(at []int) int) []float64 {
	y := make([]float64, 0, out.Shape.Elems())
	each(out.Shape, func(at []int) { y = append(y, x.data[from(at)]) })
	return y
}

func transpose(op graph.Transpose, x tensor, out graph.Type) []float64 {
	st := strides(x.Shape)
	perm := make([]int, len(st))
	for i, p := range op.Perm {
		perm[i] = st[p]
	}
	return gather(x, out, func(at []int) int { return offset(at, perm) })
}

func slice(op graph.Slice, x tensor, out graph.Type) []float64 {
	st := strides(x.Shape)
	return gather(x, out, func(at []int) int {
		i := at[op.Axis]
		return offset(at, st) + (op.Start+i*op.Step-i)*st[op.Axis]
	})
}

func sliceGrad(op graph.SliceGrad, x tensor, out graph.Type) []float64 {
	y := make([]float64, out.Shape.Elems())
	st := strides(out.Shape)
	i := 0
	each(x.Shape, func(at []int) {
		a := at[op.Slice.Axis]
		y[offset(at, st)+(op.Slice.Start+a*op.Slice.Step-a)*st[op.Slice.Axis]] = x.data[i]
		i++
	})
	return y
}

func sliceWrite(op graph.SliceWrite, x, part tensor) []float64 {
	y := slices.Clone(x.data)
	st := strides(x.Shape)
	i := 0
	each(part.Shape, func(at []int) {
		a := at[op.Slice.Axis]
		y[offset(at, st)+(op.Slice.Start+a*op.Slice.Step-a)*st[op.Slice.Axis]] = part.data[i]
		i++
	})
	return y
}

func concat(op graph.Concat, in []tensor, out graph.Type) []float64 {
	y := make([]float64, out.Shape.Elems())
	st := strides(out.Shape)
	start := 0
	for _, x := range in {
		i := 0
		each(x.Shape, func(at []int) {
			y[offset(at, st)+start*st[op.Axis]] = x.data[i]
			i++
		})
		start += x.Shape[op.Axis]
	}
	return y
}

func expand(x tensor, out graph.Type) []float64 {
	st := x.Shape.Strides(out.Shape)
	return gather(x, out, func(at []int) int { return offset(at, st) })
}
