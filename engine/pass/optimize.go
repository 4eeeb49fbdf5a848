package pass

import "github.com/snug-ml/snug/engine/graph"

// optimize is the pass: it appends what consumes the gradients.
func optimize(u *Unit) error {
	if u.Loss == "" {
		return nil
	}
	b := graph.Extend(u.F)
	b.InBackward(func() { u.Optimize(b, u.params, u.grads) })
	u.params, u.grads = nil, nil
	return nil
}
