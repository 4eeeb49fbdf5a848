package ref

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

func crossEntropy(logits, labels, weights tensor) ([][]float64, error) {
	loss := 0.0
	var lses []float64
	for n, x := range rowsOf(logits) {
		lse := logSumExp(x)
		lses = append(lses, lse)
		label := int(labels.data[n])
		if label >= len(x) {
			return nil, fmt.Errorf("label %d of row %d is outside the vocabulary of %d", label, n, len(x))
		}
		if label >= 0 {
			loss += weights.data[n] * (lse - x[label])
		}
	}
	return [][]float64{{loss}, lses}, nil
}

// crossEntropyGrad: operands logits, labels, weights, lse, dloss.
func crossEntropyGrad(in []tensor) ([][]float64, error) {
	labels, weights, lse, dloss := in[1].data, in[2].data, in[3].data, in[4].data[0]
	var dx []float64
	for n, x := range rowsOf(in[0]) {
		label := int(labels[n])
		if label >= len(x) {
			return nil, fmt.Errorf("label %d of row %d is outside the vocabulary of %d", label, n, len(x))
		}
		for v := range x {
			switch {
			case label < 0:
				dx = append(dx, 0)
			case label == v:
				dx = append(dx, weights[n]*dloss*(math.Exp(x[v]-lse[n])-1))
			default:
				dx = append(dx, weights[n]*dloss*math.Exp(x[v]-lse[n]))
			}
		}
	}
	return one(dx), nil
}

// product is a plain matrix product in Exact mode.
func product(a, b tensor, transA, transB, tf32 bool) (tensor, error) {
	op := graph.MatMul{TransA: transA, TransB: transB, TF32: tf32}
	t, err := op.Infer([]graph.Type{a.Type, b.Type})
	if err != nil {
		return tensor{}, err
	}
	c, err := new(machine).matmul(op, []tensor{a, b})
	if err != nil {
		return tensor{}, err
	}
	return tensor{t[0], c[0]}, nil
}

// linearCrossEntropy: operands h, w, labels, weights. Chunks do not change the result;
// the scratch belongs to the device and is zero here.
func linearCrossEntropy(tf32 bool, in []tensor, out []graph.Type) ([][]float64, error) {
	logits, err := product(in[0], in[1], false, true, tf32)
	if err != nil {
		return nil, err
	}
	res, err := crossEntropy(logits, in[2], in[3])
	if err != nil {
		return nil, err
	}
	for _, t := range out[2:] {
		res = append(res, make([]float64, t.Shape.Elems()))
	}
	return res, nil
}

// linearCrossEntropyGrad: operands h, w, labels, weights, dloss, and the state that dw is
// added to.
func linearCrossEntropyGrad(tf32 bool, in []tensor, out []graph.Type) ([][]float64, error) {
	logits, err := product(in[0], in[1], false, true, tf32)
	if err != nil {
		return nil, err
	}
	fwd, err := crossEntropy(logits, in[2], in[3])
	if err != nil {
		return nil, err
	}
	lse := tensor{data: fwd[1]}
	d, err := crossEntropyGrad([]tensor{logits, in[2], in[3], lse, in[4]})
	if err != nil {
		return nil, err
	}
	dlogits := tensor{logits.Type, d[0]}
	dh, err := product(dlogits, in[1], false, false, tf32)
	if err != nil {
		return nil, err
	}
	if len(out) == 3 { // w is frozen
		return [][]float64{fwd[0], dh.data, make([]float64, out[2].Shape.Elems())}, nil
	}
	dw, err := product(dlogits, in[0], true, false, tf32)
	if err != nil {
		return nil, err
	}
	if len(in) > 5 {
		for i, v := range in[5].data {
			dw.data[i] += v
		}
	}
	return [][]float64{fwd[0], dh.data, dw.data, make([]float64, out[3].Shape.Elems())}, nil
}
