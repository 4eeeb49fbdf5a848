package ref

import "github.com/snug-ml/snug/engine/graph"

func (m *machine) matmul(op graph.MatMul, in []tensor) ([][]float64, error) {
	if op.SumA {
		op.SumA = false
		out, err := m.matmul(op, in)
		cols := in[0].Shape.Last()
		sums := make([]float64, cols)
		for i, v := range in[0].data {
			sums[i%cols] += v
		}
		return append(out, sums), err
	}
	types := []graph.Type{in[0].Type, in[1].Type}
	batch, rows, cols, inner := op.Dims(types)
	mapped := func(t tensor, f graph.Elementwise) []float64 {
		if f == (graph.Elementwise{}) {
			return t.data
		}
		return m.round(elementwise(f, []tensor{t}, t.Type), t.DType)
	}
	a, b := mapped(in[0], op.MapA), mapped(in[1], op.MapB)
	if op.TF32 {
		a, b = tf32All(a), tf32All(b)
	}
	if in[1].DType.Quantized() {
		b = m.round(b, in[0].DType)
	}
	c := make([]float64, batch*rows*cols)
	for n := range batch {
		for i := range rows {
			for j := range cols {
				sum := 0.0
				for k := range inner {
					x := (n*rows+i)*inner + k
					if op.TransA {
						x = (n*inner+k)*rows + i
					}
					y := (n*inner+k)*cols + j
					if op.TransB {
						y = (n*cols+j)*inner + k
					}
					sum += a[x] * b[y]
				}
				c[(n*rows+i)*cols+j] = sum
			}
		}
	}
	if op.Accumulate {
		for i, v := range in[2].data {
			c[i] += v
		}
		return one(c), nil
	}
	if op.Body == nil {
		return one(c), nil
	}
	// The body sees the product as a plain matmul would have stored it.
	plain := op
	plain.Body = nil
	t, err := plain.Infer(types)
	if err != nil {
		return nil, err
	}
	first := tensor{t[0], m.round(c, t[0].DType)}
	return m.body(op.Body, append([]tensor{first}, in[2:]...))
}
