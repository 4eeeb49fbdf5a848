package ref

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// row is the element id of ids as an index below n.
func row(ids tensor, i, n int) (int, error) {
	id := int(ids.data[i])
	if id < 0 || id >= n {
		return 0, fmt.Errorf("id %d at position %d is outside [0, %d)", id, i, n)
	}
	return id, nil
}

func embedding(table, ids tensor) ([][]float64, error) {
	vocab, d := table.Shape[0], table.Shape[1]
	y := make([]float64, 0, len(ids.data)*d)
	for i := range ids.data {
		id, err := row(ids, i, vocab)
		if err != nil {
			return nil, err
		}
		y = append(y, table.data[id*d:(id+1)*d]...)
	}
	return one(y), nil
}

func embeddingGrad(op graph.EmbeddingGrad, in []tensor) ([][]float64, error) {
	dy, ids := in[0], in[1]
	d := dy.Shape.Last()
	y := make([]float64, op.Vocab*d)
	if len(in) > 2 {
		copy(y, in[2].data)
	}
	for i := range ids.data {
		id, err := row(ids, i, op.Vocab)
		if err != nil {
			return nil, err
		}
		for j := range d {
			y[id*d+j] += dy.data[i*d+j]
		}
	}
	return one(y), nil
}
