package cloudbase

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

// least returns the minimum that training needs; see [plan.Least].
func (n *net) least(masked bool) plan.Least {
	weights, in := 0.0, n.View
	if n.Architecture == "cnn" {
		in = 1
	}
	for _, c := range n.Channels {
		weights += 9 * size.Float(in, c)
		in = c
	}
	out := plan.Least{
		{Of: plan.Trained, Count: weights, Keys: "model.channels"},
		{Of: plan.EachRow, Count: engine.Slots * 4 * size.Float(n.Frames, n.Height, n.Width), Keys: "model.frames, model.height, model.width or training.batch_size"},
	}
	if masked {
		return out
	}
	c := n.size()
	out = append(out, plan.Part{Of: plan.Trained, Count: size.Float(c, c) + size.Float(c, c/2), Keys: "model.channels"})
	each := 0.0 // number of weights of a block that joins the frames
	switch n.Architecture {
	case "transformer":
		each = (4 + 2*mlpRatio) * size.Float(c, c)
	case "ssm":
		each = 3*ssmExpand*size.Float(c, c) + 3*ssmExpand*size.Float(c, n.StateSize)
	}
	return append(out, plan.Part{Of: plan.Trained, Count: float64(n.Layers) * each, Keys: "model.layers, model.state_size or model.channels"})
}
