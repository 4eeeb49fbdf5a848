package pass

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// StagingWindow is how many bytes of the states of a step are on the device at once, unless
// [Unit.Staging] says otherwise: enough for copies at the full rate of the bus.
const StagingWindow = 16 << 20

// stagingGrain divides the number of elements of a window: kernels take whole blocks.
const stagingGrain = 2048

// inFlight is how many windows are on the device at once: one comes in, one is updated, one
// goes out, so that both directions of the bus are in use.
const inFlight = 3

// window is a part of a weight whose states are on the device at once.
type window struct {
	step        *graph.Node
	from, elems int64
	states      []*graph.Value // fetched
}

// offload keeps in the host's memory what the unit says.
func offload(u *Unit) error {
	if u.OffloadStates {
		u.F = withStatesAway(u.F)
	}
	if err := offloadStates(u); err != nil {
		return err
	}
	if err := offloadActivations(u); err != nil {
		return err
	}
	if u.Rival != nil && u.OffloadActivations && u.Rival.Slower(u.F) > 0 {
		return ErrSlower
	}
	return nil
}

// withStatesAway returns f with those states offloaded that can be, and f itself if none can. Nodes of f may be
// part of other programs, so nodes that read or write these states are copied. IDs stay.
func withStatesAway(f *graph.Func) *graph.Func {
	now := map[*graph.Value]*graph.Value{}
	states := map[*graph.State]*graph.State{}
	replace := func(v *graph.Value) *graph.Value {
		w := *v
		if s := v.State; s != nil && s.Offloadable {
			if states[s] == nil {
				away := *s
				away.Offloaded = true
				states[s] = &away
			}
			w.State = states[s]
		}
		now[v] = &w
		return &w
	}
	current := func(v *graph.Value) *graph.Value { return cmp.Or(now[v], v) }
	g := f.Shallow()
	for i, v := range f.States {
		if v.State.Offloadable {
			if len(states) == 0 {
				g.States = slices.Clone(f.States)
			}
			g.States[i] = replace(v)
		}
	}
	if len(states) == 0 {
		return f
	}
	g.Nodes, g.Outputs = slices.Clone(f.Nodes), slices.Clone(f.Outputs)
	for i, n := range f.Nodes {
		if !slices.ContainsFunc(n.In, func(v *graph.Value) bool { return now[v] != nil }) {
			continue
		}
		m := *n
		m.In, m.Out = slices.Clone(n.In), slices.Clone(n.Out)
		for k, v := range n.In {
			m.In[k] = current(v)
		}
		for k, v := range n.Out {
			m.Out[k] = replace(v)
			m.Out[k].Node = &m
		}
		g.Nodes[i] = &m
	}
	for i, o := range f.Outputs {
		g.Outputs[i].Value = current(o.Value)
	}
	return g
}

// offloadStates cuts the steps of an optimizer whose states are offloaded into windows. The
// states of a window are fetched while the two before it are updated, and written back while
// those after it are.
func offloadStates(u *Unit) error {
	windows, err := offloaded(u)
	if err != nil || len(windows) == 0 {
		return err
	}
	current := map[string]*graph.Value{} // versions of the states
	fetched, next := 0, 0
	fetch := func(b *graph.Builder, upTo int) {
		for ; fetched < min(upTo, len(windows)); fetched++ {
			w := &windows[fetched]
			for _, s := range w.step.In[2 : 2+w.step.Op.(graph.Optimizer).States()] {
				from, n := graph.StateRange(s.Type, w.step.In[0].Type, w.from, w.elems)
				b.At(w.step, func() {
					w.states = append(w.states, b.Emit(graph.Fetch{From: from, Elems: n}, cmp.Or(current[s.Name], s))[0])
				})
			}
		}
	}
	writeBack := func(b *graph.Builder, w *window) {
		for i, v := range w.states {
			s := w.step.In[2+i]
			from, _ := graph.StateRange(s.Type, w.step.In[0].Type, w.from, w.elems)
			b.At(w.step, func() { current[s.Name] = b.Emit(graph.WriteBack{From: from}, cmp.Or(current[s.Name], s), v)[0] })
		}
	}
	u.F, err = u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		if next == len(windows) || windows[next].step != n {
			return nil
		}
		op := n.Op.(graph.Optimizer)
		in = slices.Clone(in)
		var out []*graph.Value
		for ; next < len(windows) && windows[next].step == n; next++ {
			w := &windows[next]
			fetch(b, inFlight) // at the first
			copy(in[2:], w.states)
			out = b.Emit(graph.StepPart{Step: op, From: w.from}, in...)
			copy(w.states, out[1:])
			for _, a := range graph.Aliases(op, len(in)) { // weight and gradient
				if a.In < 2 {
					in[a.In] = out[a.Out]
				}
			}
			if next > 0 {
				writeBack(b, &windows[next-1])
			}
			fetch(b, next+inFlight)
			if next == len(windows)-1 {
				writeBack(b, w)
			}
		}
		return out
	})
	return err
}

// offloaded returns the windows of all steps whose states are offloaded, in order.
func offloaded(u *Unit) (windows []window, err error) {
	uses := u.F.Uses()
	for _, n := range u.F.Nodes {
		var names []string
		for _, v := range n.In {
			if s := graph.Storage(v).State; s != nil && s.Offloaded {
				names = append(names, s.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		op, ok := n.Op.(graph.Optimizer)
		if _, whole := n.Op.(graph.Adafactor); !ok || whole || len(names) != op.States() {
			return nil, fmt.Errorf("%s (%s) needs %v whole on the device: only states of steps that work element by element can be offloaded", n.Op.Name(), n.Layer, names)
		}
		for _, v := range n.Out[1 : 1+op.States()] {
			if uses[v.ID] > 0 {
				return nil, fmt.Errorf("%s is read in the update that changes it: it cannot be offloaded", v.State.Name)
			}
		}
		weight, bytes := n.In[0].Type, int64(0) // all elements
		for _, v := range n.In[2 : 2+op.States()] {
			bytes += v.Type.Bytes()
		}
		all := weight.Shape.Elems()
		most := cmp.Or(u.Staging, StagingWindow) * all / bytes
		elems := max(stagingGrain, most/stagingGrain*stagingGrain)
		for from := int64(0); from < all; from += elems {
			windows = append(windows, window{step: n, from: from, elems: min(elems, all-from)})
		}
	}
	return windows, nil
}
