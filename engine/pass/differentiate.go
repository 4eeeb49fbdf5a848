package pass

import (
	"cmp"
	"fmt"
	"slices"

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
		sums := make([]gradient, f.NumValues())
		b.InBackward(func() {
			if seed == nil {
				seed = b.Scalar(1)
			}
			sums[loss.ID].sum = seed
			for i := len(forward) - 1; i >= 0; i-- {
				n := forward[i]
				reached := slices.ContainsFunc(n.Out, func(o *graph.Value) bool { return !sums[o.ID].none() })
				if !reached || !anyRequiresGrad(requiresGrad, n.In) {
					continue
				}
				b.At(n, func() {
					b.InBackward(func() {
						dout := make([]*graph.Value, len(n.Out))
						for j, o := range n.Out {
							dout[j] = sums[o.ID].total(b)
						}
						fillZeros(b, n, dout)
						for j, g := range n.Op.Grad(b, n, dout) {
							if v := n.In[j]; g != nil && requiresGrad[v.ID] {
								sums[v.ID].add(b, g)
							}
						}
					})
				})
			}
			for i, v := range wrt {
				grads[i] = sums[v.ID].total(b)
			}
		})
	})
	return grads, err
}

// gradient is that of a value, as its uses add to it.
type gradient struct {
	sum   *graph.Value
	parts []*graph.Value // of uses that read a slice; see joined
}

func (g *gradient) none() bool { return g.sum == nil && len(g.parts) == 0 }

func (g *gradient) add(b *graph.Builder, d *graph.Value) {
	switch {
	case isSliceGrad(d):
		g.parts = append(g.parts, d)
	case g.sum == nil:
		g.sum = d
	default:
		g.sum = b.Add(g.sum, d)
	}
}

// total returns the sum, nil if there is none.
func (g *gradient) total(b *graph.Builder) *graph.Value {
	for _, d := range joined(b, g.parts) {
		if g.sum == nil {
			g.sum = d
		} else {
			g.sum = b.Add(g.sum, d)
		}
	}
	g.parts = nil
	return g.sum
}

func isSliceGrad(v *graph.Value) bool {
	if v.Node == nil {
		return false
	}
	_, ok := v.Node.Op.(graph.SliceGrad)
	return ok
}

// joined returns gradients that add up to those of slices. Slices of one dimension that do not
// overlap are joined, with zeros for what none of them has: the gradient of each alone would be
// as large as the value.
func joined(b *graph.Builder, parts []*graph.Value) []*graph.Value {
	if len(parts) < 2 {
		return parts
	}
	of := map[graph.SliceGrad][]*graph.Value{}
	var each []graph.SliceGrad
	for _, p := range parts {
		s := p.Node.Op.(graph.SliceGrad)
		if of[s] == nil {
			each = append(each, s)
		}
		of[s] = append(of[s], p.Node.In[0])
	}
	slices.SortFunc(each, func(x, y graph.SliceGrad) int { return cmp.Compare(x.Slice.Start, y.Slice.Start) })
	axis, end := each[0].Slice.Axis, 0
	for _, s := range each {
		if s.Slice.Axis != axis || s.Slice.Step != 1 || s.Slice.Start < end {
			return parts
		}
		end = s.Slice.Start + s.Slice.Len
	}
	var in []*graph.Value
	zeros := func(n int) {
		if n > 0 {
			shape := parts[0].Shape().Clone()
			shape[axis] = n
			in = append(in, b.BroadcastTo(b.Scalar(0), shape...))
		}
	}
	end = 0
	for _, s := range each {
		zeros(s.Slice.Start - end)
		sum := of[s][0]
		for _, d := range of[s][1:] {
			sum = b.Add(sum, d)
		}
		in = append(in, sum)
		end = s.Slice.Start + s.Slice.Len
	}
	zeros(each[0].Dim - end)
	return []*graph.Value{b.Concat(axis, in...)}
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
