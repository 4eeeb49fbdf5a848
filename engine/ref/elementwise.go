package ref

import "github.com/snug-ml/snug/engine/graph"

// elementwise applies op.Fn to operands that broadcast to the result's shape.
func elementwise(op graph.Elementwise, in []tensor, out graph.Type) []float64 {
	var st [3][]int
	for i, t := range in {
		st[i] = t.Shape.Strides(out.Shape)
	}
	y := make([]float64, 0, out.Shape.Elems())
	each(out.Shape, func(at []int) {
		var arg [3]float64
		for i, t := range in {
			arg[i] = t.data[offset(at, st[i])]
		}
		y = append(y, op.Fn.Eval(op.Alpha, arg[0], arg[1], arg[2]))
	})
	return y
}

// body runs the instructions one after the other over whole tensors and rounds each to its type.
func (m *machine) body(b *graph.Body, in []tensor) ([][]float64, error) {
	regs := append([]tensor(nil), in...)
	for _, s := range b.Instrs {
		args := make([]tensor, len(s.Arg))
		types := make([]graph.Type, len(s.Arg))
		for i, a := range s.Arg {
			args[i], types[i] = regs[a], regs[a].Type
		}
		out, err := s.Op.Infer(types)
		if err != nil {
			return nil, err
		}
		y, err := m.eval(s.Op, args, out)
		if err != nil {
			return nil, err
		}
		regs = append(regs, tensor{out[0].With(s.DType), m.round(y[0], s.DType)})
	}
	res := make([][]float64, len(b.Results))
	for i, r := range b.Results {
		res[i] = regs[r].data
	}
	return res, nil
}

// fused runs body and the reductions of its last results.
func (m *machine) fused(op graph.Fused, in []tensor, out []graph.Type) ([][]float64, error) {
	res, err := m.body(op.Body, in)
	if err != nil {
		return nil, err
	}
	first := len(res) - len(op.Reductions)
	for k, r := range op.Reductions {
		res[first+k] = reduce(r, tensor{out[0], res[first+k]}, out[first+k])
	}
	return res, nil
}
