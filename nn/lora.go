package nn

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// LoRA is a low-rank update of linear layers (Hu et al. 2021, arXiv
// 2106.09685): y + Alpha/Rank * B A dropout(x), with A [Rank, in] drawn from
// U(-1/sqrt in, 1/sqrt in) and B [out, Rank] zero, so that an adapted model
// starts as the model it adapts.
type LoRA struct {
	// Name is the scope of the two weights below that of the layer.
	Name    string
	Rank    int
	Alpha   float64
	Dropout float64
	Seed    uint64 // the run's, of the dropout
}

// Scale is what B A is multiplied by.
func (l LoRA) Scale() float64 { return l.Alpha / float64(l.Rank) }

// Weights are the names of A and B of a layer.
func (l LoRA) Weights(layer string) (down, up string) {
	return fmt.Sprintf("%s.%s.down", layer, l.Name), fmt.Sprintf("%s.%s.up", layer, l.Name)
}

// Delta is the update for x [..., in]: [..., out]. Call it within the layer's
// scope.
func (l LoRA) Delta(b *graph.Builder, x *graph.Value, out int, train bool) (d *graph.Value) {
	if l.Rank < 1 {
		b.Failf("a low-rank update wants a rank of 1 or more, got %d", l.Rank)
	}
	in := x.Shape().Last()
	b.Scope(l.Name, func() {
		down := b.Param("down", graph.Uniform(1/math.Sqrt(float64(in))), l.Rank, in)
		up := b.Param("up", graph.Zeros(), out, l.Rank)
		if train {
			x = b.Dropout(x, l.Dropout, l.Seed)
		}
		d = b.MulC(b.Linear(b.Linear(x, down, nil), up, nil), l.Scale())
	})
	return d
}

// Gated is an update that is weighted for each row of a batch by Gate, F32 [B, 1,
// 1]; nil is 1.
type Gated struct {
	LoRA
	Gate *graph.Value
}

// Adapt is y, the result of a linear layer for x [B, T, in], with the updates.
func Adapt(b *graph.Builder, x, y *graph.Value, train bool, updates ...Gated) *graph.Value {
	for _, u := range updates {
		d := u.Delta(b, x, y.Shape().Last(), train)
		if u.Gate != nil {
			d = b.Mul(d, u.Gate)
		}
		y = b.Add(y, d)
	}
	return y
}

// Merge adds the update to the weight w [out, in] of a layer, which then needs
// no adapter; down and up are A and B.
func (l LoRA) Merge(w, down, up []float32) error {
	if l.Rank < 1 || len(down)%l.Rank != 0 || len(up)%l.Rank != 0 || len(w) != len(down)/l.Rank*(len(up)/l.Rank) {
		return fmt.Errorf("an update of rank %d with factors of %d and %d elements does not fit a weight of %d", l.Rank, len(down), len(up), len(w))
	}
	in, scale := len(down)/l.Rank, l.Scale()
	sum := make([]float64, in)
	for o := range len(up) / l.Rank {
		clear(sum)
		for r, u := range up[o*l.Rank : (o+1)*l.Rank] {
			for i, d := range down[r*in : (r+1)*in] {
				sum[i] += float64(u) * float64(d)
			}
		}
		row := w[o*in : (o+1)*in]
		for i, s := range sum {
			row[i] = float32(float64(row[i]) + scale*s)
		}
	}
	return nil
}
