package ref

import "slices"

func topK(k int, x tensor) [][]float64 {
	var values, indices []float64
	for _, r := range rowsOf(x) {
		order := make([]int, len(r))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case r[a] > r[b]:
				return -1
			case r[a] < r[b]:
				return 1
			}
			return 0
		})
		for _, i := range order[:k] {
			values, indices = append(values, r[i]), append(indices, float64(i))
		}
	}
	return [][]float64{values, indices}
}

func gatherLast(x, index tensor) ([][]float64, error) {
	n, k := x.Shape.Last(), index.Shape.Last()
	y := make([]float64, len(index.data))
	for i := range y {
		at, err := row(index, i, n)
		if err != nil {
			return nil, err
		}
		y[i] = x.data[i/k*n+at]
	}
	return one(y), nil
}

func scatterLast(n int, x, index tensor) ([][]float64, error) {
	k := index.Shape.Last()
	y := make([]float64, len(x.data)/k*n)
	for i, v := range x.data {
		at, err := row(index, i, n)
		if err != nil {
			return nil, err
		}
		y[i/k*n+at] += v
	}
	return one(y), nil
}

func argMax(x tensor) []float64 {
	var y []float64
	for _, r := range rowsOf(x) {
		best := 0
		for i, v := range r {
			if v > r[best] {
				best = i
			}
		}
		y = append(y, float64(best))
	}
	return y
}

func oneHot(n int, index tensor) []float64 {
	y := make([]float64, len(index.data)*n)
	for i, v := range index.data {
		if v >= 0 && int(v) < n {
			y[i*n+int(v)] = 1
		}
	}
	return y
}
