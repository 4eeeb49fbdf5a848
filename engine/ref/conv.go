package ref

import "github.com/snug-ml/snug/engine/graph"

// conv calls fn with the positions, in x, w and y, of each product that
// y = conv(x, w) adds up.
func conv(op graph.Conv2D, x, w, y graph.Shape, fn func(x, w, y int)) {
	yi := 0
	each(y, func(at []int) {
		b, p, q, o := at[0], at[1], at[2], at[3]
		for c := range w[1] {
			in := c
			if op.Depthwise() {
				in = o
			}
			for i := range w[2] {
				for j := range w[3] {
					r, k := p*op.Stride[0]+i*op.Dilation[0]-op.Pad[0], q*op.Stride[1]+j*op.Dilation[1]-op.Pad[2]
					if r >= 0 && r < x[1] && k >= 0 && k < x[2] {
						fn(((b*x[1]+r)*x[2]+k)*x[3]+in, ((o*w[1]+c)*w[2]+i)*w[3]+j, yi)
					}
				}
			}
		}
		yi++
	})
}

func conv2d(op graph.Conv2D, in []tensor, out graph.Type) []float64 {
	y := make([]float64, out.Shape.Elems())
	conv(op, in[0].Shape, in[1].Shape, out.Shape, func(i, j, k int) { y[k] += in[0].data[i] * in[1].data[j] })
	return y
}

func conv2dGradInput(op graph.Conv2DGradInput, in []tensor, out graph.Type) []float64 {
	dx := make([]float64, out.Shape.Elems())
	conv(op.Conv, out.Shape, in[1].Shape, in[0].Shape, func(i, j, k int) { dx[i] += in[0].data[k] * in[1].data[j] })
	return dx
}

func conv2dGradWeight(op graph.Conv2DGradWeight, in []tensor, out graph.Type) []float64 {
	dw := make([]float64, out.Shape.Elems())
	conv(op.Conv, in[0].Shape, out.Shape, in[1].Shape, func(i, j, k int) { dw[j] += in[0].data[i] * in[1].data[k] })
	return dw
}

// windows calls fn with the position of each result and the positions of its window
// within the picture x, row by row.
func windows(op graph.Pool2D, x, y graph.Shape, fn func(y int, xs []int)) {
	st := strides(x)
	yi := 0
	each(y, func(at []int) {
		var xs []int
		for i := range op.Kernel[0] {
			for j := range op.Kernel[1] {
				r, c := at[1]*op.Stride[0]+i-op.Pad[0], at[2]*op.Stride[1]+j-op.Pad[2]
				if r >= 0 && r < x[1] && c >= 0 && c < x[2] {
					xs = append(xs, offset([]int{at[0], r, c, at[3]}, st))
				}
			}
		}
		fn(yi, xs)
		yi++
	})
}

// pooled pools what the body computes.
func (m *machine) pooled(op graph.Pool2D, in []tensor, out graph.Type) ([][]float64, error) {
	x, err := m.body(op.Body, in)
	if err != nil {
		return nil, err
	}
	s := out.Shape
	images := graph.Shape{s[0], s[1] * op.Stride[0], s[2] * op.Stride[1], s[3]}
	return one(pool2d(op, tensor{graph.Type{DType: out.DType, Shape: images}, x[0]}, out)), nil
}

// pooledGrad is the gradient of what the body computes.
func (m *machine) pooledGrad(op graph.Pool2DGrad, in []tensor, out graph.Type) ([][]float64, error) {
	y := in[len(in)-1]
	x, err := m.body(op.Pool.Body, in[1:len(in)-1])
	if err != nil {
		return nil, err
	}
	return one(pool2dGrad(op, []tensor{in[0], {out, x[0]}, y}, out)), nil
}

func pool2d(op graph.Pool2D, x tensor, out graph.Type) []float64 {
	y := make([]float64, out.Shape.Elems())
	windows(op, x.Shape, out.Shape, func(i int, xs []int) {
		y[i] = x.data[xs[0]]
		for _, j := range xs[1:] {
			if op.Kind == graph.PoolMax {
				y[i] = max(y[i], x.data[j])
			} else {
				y[i] += x.data[j]
			}
		}
		if op.Kind == graph.PoolAverage {
			y[i] /= float64(op.Kernel[0] * op.Kernel[1])
		}
	})
	return y
}

func pool2dGrad(op graph.Pool2DGrad, in []tensor, out graph.Type) []float64 {
	dx := make([]float64, out.Shape.Elems())
	dy := in[0].data
	windows(op.Pool, out.Shape, in[0].Shape, func(i int, xs []int) {
		for _, j := range xs {
			if op.Pool.Kind == graph.PoolAverage {
				dx[j] += dy[i] / float64(op.Pool.Kernel[0]*op.Pool.Kernel[1])
			} else if !(in[1].data[j] < in[2].data[i]) {
				dx[j] += dy[i]
				break
			}
		}
	})
	return dx
}
