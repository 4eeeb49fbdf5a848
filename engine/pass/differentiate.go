package pass

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// Differentiate appends to f the gradients of the scalar loss with respect to wrt, by
// reverse accumulation. seed is the gradient of the loss itself; nil means 1. A value
// that the loss does not depend on gets a nil gradient.
func Differentiate(f *graph.Func, loss *graph.Value, wrt []*graph.Value, seed *graph.Value) ([]*graph.Value, error) {
	grads := make([]*graph.Value, len(wrt))
	err := graph.Catch(func() {
		b := graph.Extend(f)
		if loss.Shape().Elems() != 1 {
			b.Failf("the loss is %v, want a scalar", loss.Type)
		}
		// requiresGrad[v.ID]: whether v depends on wrt.
		requiresGrad := make([]bool, f.NumValues())
		for _, v := range wrt {
			requiresGrad[v.ID] = true
		}
		forward := f.Nodes
		for _, n := range forward {
			for _, v := range n.In {
				if requiresGrad[v.ID] {
					for _, o := range n.Out {
						requiresGrad[o.ID] = true
					}
					break
				}
			}
		}
		sum := make([]*graph.Value, f.NumValues())
		b.InBackward(func() {
			if seed == nil {
				seed = b.Scalar(1)
			}
			sum[loss.ID] = seed
			for i := len(forward) - 1; i >= 0; i-- {
				n := forward[i]
				dout := make([]*graph.Value, len(n.Out))
				any := false
				for j, o := range n.Out {
					dout[j] = sum[o.ID]
					any = any || dout[j] != nil
				}
				if !any || !anyRequiresGrad(requiresGrad, n.In) {
					continue
				}
				b.At(n, func() {
					b.InBackward(func() {
						fillZeros(b, n, dout)
						for j, g := range n.Op.Grad(b, n, dout) {
							v := n.In[j]
							switch {
							case g == nil || !requiresGrad[v.ID]:
							case sum[v.ID] == nil:
								sum[v.ID] = g
							default:
								sum[v.ID] = b.Add(sum[v.ID], g)
							}
						}
					})
				})
			}
		})
		for i, v := range wrt {
			grads[i] = sum[v.ID]
		}
	})
	return grads, err
}

func anyRequiresGrad(requiresGrad []bool, vs []*graph.Value) bool {
	for _, v := range vs {
		if requiresGrad[v.ID] {
			return true
		}
	}
	return false
}

// fillZeros gives the first result a gradient of zeros when only another result
// has one; gradient rules rely on it.
func fillZeros(b *graph.Builder, n *graph.Node, dout []*graph.Value) {
	if dout[0] == nil {
		dout[0] = b.BroadcastTo(b.Scalar(0), n.Out[0].Shape()...)
	}
}

// differentiate is the pass: gradients of u.Loss for every trained weight.
func differentiate(u *Unit) error {
	if u.Loss == "" {
		return nil
	}
	loss := u.F.Output(u.Loss)
	if loss == nil {
		return fmt.Errorf("no output is called %q", u.Loss)
	}
	var params []*graph.Value
	for _, v := range u.F.States {
		if v.State.Role == graph.Weight {
			params = append(params, v)
		}
	}
	grads, err := Differentiate(u.F, loss, params, u.Seed)
	u.params, u.grads = params, grads
	return err
}
