package plan

import (
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
)

// Block says what one recomputation unit of the model keeps from its forward to its backward half.
type Block struct {
	Block     int            `json:"block"` // counted from 1; 0 is outside of blocks
	Layer     string         `json:"layer"`
	Recompute pass.Recompute `json:"recompute"`
	Values    int            `json:"values"`
	Bytes     int64          `json:"bytes"`
}

// savedByBlock sums up what each block adds to the activations. It returns nil for a function without a
// backward half. Activations outside of all blocks come last.
func savedByBlock(p *engine.Program, f *engine.Func) []Block {
	k := classify(f.F)
	blocks := make([]Block, max(1, len(f.Blocks)))
	backward := false
	for _, n := range f.F.Nodes {
		if n.Backward {
			backward = true
			continue
		}
		b := &blocks[min(n.Block, len(blocks)-1)]
		b.Layer = commonLayer(b.Layer, n.Layer)
		for _, v := range n.Out {
			if k.saved[v.ID] && v.State == nil && !lowWeight(v) {
				b.Values++
				b.Bytes += p.Align(v.Type.Bytes())
			}
		}
	}
	if !backward {
		return nil
	}
	for i := range blocks {
		if blocks[i].Block = i; i > 0 {
			blocks[i].Recompute = f.Blocks[i]
		}
	}
	blocks[0].Layer = "outside of blocks"
	return append(blocks[1:], blocks[0])
}

// commonLayer returns the path that a and b share; an empty a is no constraint.
func commonLayer(a, b string) string {
	if a == "" || a == b {
		return b
	}
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	return strings.Join(x[:i], ".")
}
