package ref

import "github.com/snug-ml/snug/engine/graph"

func route(op graph.Route, choice tensor) ([][]float64, error) {
	n := len(choice.data)
	wanted, offsets := make([]float64, op.Experts), make([]float64, op.Experts+1)
	slot, source := make([]float64, n), make([]float64, op.Rows(choice.Shape[0], choice.Shape[1]))
	for i := range slot {
		slot[i] = -1
	}
	at := 0
	for e := range op.Experts {
		offsets[e] = float64(at)
		for i := range choice.data {
			want, err := row(choice, i, op.Experts)
			if err != nil {
				return nil, err
			}
			if want != e {
				continue
			}
			wanted[e]++
			if op.Capacity == 0 || at-int(offsets[e]) < op.Capacity {
				slot[i], source[at] = float64(at), float64(i)
				at++
			}
		}
	}
	offsets[op.Experts] = float64(at)
	for ; at < len(source); at++ {
		source[at] = -1
	}
	return [][]float64{slot, source, offsets, wanted}, nil
}

func dispatch(op graph.Dispatch, in []tensor) []float64 {
	x, source := rowsOf(in[0]), in[2].data
	k, d := in[1].Shape[1], in[0].Shape[1]
	y := make([]float64, len(source)*d)
	for r, s := range source {
		if s < 0 {
			continue
		}
		w := 1.0
		if op.Weighted {
			w = in[3].data[int(s)]
		}
		for j, v := range x[int(s)/k] {
			y[r*d+j] = w * v
		}
	}
	return y
}

func combine(op graph.Combine, in []tensor) []float64 {
	y, slot := rowsOf(in[0]), in[1].data
	k, d := in[1].Shape[1], in[0].Shape[1]
	x := make([]float64, in[1].Shape[0]*d)
	for i, s := range slot {
		if s < 0 {
			continue
		}
		w := 1.0
		if op.Weighted {
			w = in[3].data[i]
		}
		for j, v := range y[int(s)] {
			x[i/k*d+j] += w * v
		}
	}
	return x
}

func routedDot(x, y, slot tensor) []float64 {
	k := slot.Shape[1]
	dw := make([]float64, len(slot.data))
	xs, ys := rowsOf(x), rowsOf(y)
	for i, s := range slot.data {
		if s < 0 {
			continue
		}
		for j, v := range ys[int(s)] {
			dw[i] += v * xs[i/k][j]
		}
	}
	return dw
}

// groups calls fn with each row that belongs to a group.
func groups(offsets tensor, fn func(group, row int)) {
	for e := range len(offsets.data) - 1 {
		for r := int(offsets.data[e]); r < int(offsets.data[e+1]); r++ {
			fn(e, r)
		}
	}
}

func groupedMatMul(op graph.GroupedMatMul, in []tensor, out graph.Type) []float64 {
	x, w, n := in[0], in[1], out.Shape[1]
	if op.TF32 {
		x.data, w.data = tf32All(x.data), tf32All(w.data)
	}
	k := x.Shape[1]
	y := make([]float64, out.Shape.Elems())
	groups(in[2], func(e, r int) {
		for j := range n {
			sum := 0.0
			for i := range k {
				at := (e*k+i)*n + j
				if op.Trans {
					at = (e*n+j)*k + i
				}
				sum += x.data[r*k+i] * w.data[at]
			}
			if op.Bias {
				sum += in[3].data[e*n+j]
			}
			y[r*n+j] = sum
		}
	})
	return y
}

func groupedOuter(op graph.GroupedOuter, a, b, offsets tensor, out graph.Type) []float64 {
	if op.TF32 {
		a.data, b.data = tf32All(a.data), tf32All(b.data)
	}
	n, k := a.Shape[1], b.Shape[1]
	y := make([]float64, out.Shape.Elems())
	groups(offsets, func(e, r int) {
		for i := range n {
			for j := range k {
				y[(e*n+i)*k+j] += a.data[r*n+i] * b.data[r*k+j]
			}
		}
	})
	return y
}

func groupedSum(x, offsets tensor, out graph.Type) []float64 {
	n := x.Shape[1]
	y := make([]float64, out.Shape.Elems())
	groups(offsets, func(e, r int) {
		for j := range n {
			y[e*n+j] += x.data[r*n+j]
		}
	})
	return y
}
