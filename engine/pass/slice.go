package pass

import "github.com/snug-ml/snug/engine/graph"

// slice is the pass: blocks of [RecomputeSlices] are computed in u.Slices equal parts of
// their leading dimension, one after the other, in either half, so that what lives within
// a block has only the size of a part.
//
// Only operations whose rows are independent are cut (see [rowsOf]). Others, such as
// batch normalization, run once, on all rows: the parts that they read are put together
// first. Gradients of weights are added up in the order of the parts: only these sums are
// rounded differently than without the pass.
func slice(u *Unit) error {
	cut := false
	for _, r := range u.Blocks {
		cut = cut || r == RecomputeSlices
	}
	if !cut || u.Slices < 2 {
		return nil
	}
	f, err := sliced(u.F, u.Blocks, u.Slices, func(whole, parts int64) bool { return parts < whole })
	if err == nil {
		u.F = f
	}
	return err
}

// slicer cuts the blocks of a function.
type slicer struct {
	*rebuilder
	*defUse
	parts int
	worth func(whole, parts int64) bool
	batch []bool // by ID of a value: its leading dimension counts rows of the batch
	rules map[*graph.Node]*rows
}

// sliced returns f with the blocks of [RecomputeSlices] cut, if worth approves, given the
// memory that a half of a block needs as a whole and in parts.
func sliced(f *graph.Func, recipe []Recompute, parts int, worth func(whole, parts int64) bool) (*graph.Func, error) {
	g := f.Shallow()
	g.Nodes = make([]*graph.Node, 0, len(f.Nodes))
	g.Outputs = append([]graph.Output(nil), f.Outputs...)
	z := &slicer{rebuilder: &rebuilder{b: graph.Extend(g), now: make([]*graph.Value, f.NumValues())}, defUse: newDefUse(f), parts: parts, worth: worth}
	for _, vs := range [][]*graph.Value{g.Inputs, g.States} {
		for _, v := range vs {
			z.now[v.ID] = v
		}
	}
	z.classify()
	err := graph.Catch(func() {
		for i := 0; i < len(f.Nodes); {
			n := f.Nodes[i]
			if recipe[n.Block] != RecomputeSlices {
				z.whole(n)
				i++
				continue
			}
			j := i + 1
			for j < len(f.Nodes) && f.Nodes[j].Block == n.Block && f.Nodes[j].Backward == n.Backward {
				j++
			}
			z.run(f.Nodes[i:j], j)
			i = j
		}
		for i, o := range g.Outputs {
			g.Outputs[i].Value = z.value(o.Value)
		}
	})
	dropDead(g)
	return g, err
}

// classify finds the values whose leading dimension counts rows of the batch, and the
// nodes that can be computed part by part. Nodes that depend only on weights are not cut.
func (z *slicer) classify() {
	z.batch = make([]bool, z.f.NumValues())
	z.rules = map[*graph.Node]*rows{}
	for _, v := range z.f.Inputs {
		z.batch[v.ID] = v.Name != graph.RunCounter && divides(v, z.parts)
	}
	for _, n := range z.f.Nodes {
		if r := rowsOf(n, z.parts); r != nil {
			for i, v := range n.In {
				if r.cut[i] && z.batch[v.ID] {
					z.rules[n] = r
				}
			}
			for i, v := range n.Out {
				z.batch[v.ID] = z.rules[n] != nil && !r.sums[i]
			}
			continue
		}
		for _, v := range n.In {
			if !z.batch[v.ID] {
				continue
			}
			for _, w := range n.Out {
				z.batch[w.ID] = z.batch[w.ID] || divides(w, z.parts) && w.Shape()[0] == v.Shape()[0]
			}
		}
	}
}

// whole copies a node; a view is made where it is first read.
func (z *slicer) whole(n *graph.Node) {
	if !graph.IsView(n.Op) {
		z.copy(n)
	}
}

// run emits neighboring nodes of one half of a block, which end before position end. They are
// divided into levels: a node that needs all parts of a result runs on a later level than the
// nodes that compute them. On a level, nodes that are not cut come first, then the others, part
// after part.
//
// If parts save nothing, because the block holds little more than what it reads and writes, its
// nodes stay as they are.
func (z *slicer) run(nodes []*graph.Node, end int) {
	level, last := z.levels(nodes)
	together := z.together(nodes, level)
	from, undo := len(z.b.F.Nodes), z.remember(nodes)
	z.inParts(nodes, level, last, together)
	reads, keeps := z.around(nodes, end)
	whole := peakOf(nodes, reads, keeps)
	for _, vs := range [][]*graph.Value{reads, keeps} {
		for i, v := range vs {
			vs[i] = z.now[v.ID]
		}
	}
	if z.worth(whole, peakOf(z.b.F.Nodes[from:], reads, keeps)) {
		return
	}
	z.b.F.Nodes = z.b.F.Nodes[:from]
	undo()
	for _, n := range nodes {
		z.whole(n)
	}
}

// remember returns a function that undoes the replacements of all values that the nodes
// write or read.
func (z *slicer) remember(nodes []*graph.Node) (undo func()) {
	was := map[int]*graph.Value{}
	for _, n := range nodes {
		for _, vs := range [][]*graph.Value{n.In, n.Out} {
			for _, v := range vs {
				for ; ; v = v.Node.In[0] {
					was[v.ID] = z.now[v.ID]
					if v.Node == nil || !graph.IsView(v.Node.Op) {
						break
					}
				}
			}
		}
	}
	return func() {
		for id, v := range was {
			z.now[id] = v
		}
	}
}

// inParts emits the nodes level by level.
func (z *slicer) inParts(nodes []*graph.Node, level map[*graph.Node]int, last int, together map[int]bool) {
	for l := 0; l <= last; l++ {
		var loop []*graph.Node
		for _, n := range nodes {
			switch {
			case level[n] != l:
			case z.rules[n] != nil:
				loop = append(loop, n)
			default:
				z.whole(n)
			}
		}
		for p := range z.parts {
			z.part(loop, p, together)
		}
	}
}

// around returns the temporaries that the nodes read from before them, and those that are
// read from position end on, whether the nodes' own or not.
func (z *slicer) around(nodes []*graph.Node, end int) (reads, keeps []*graph.Value) {
	later := func(v *graph.Value) bool {
		at := z.readers.of(v.ID)
		return z.pinned[v.ID] || len(at) > 0 && at[len(at)-1] >= end
	}
	here := map[*graph.Value]bool{}
	for _, n := range nodes {
		if graph.IsView(n.Op) {
			continue
		}
		for _, v := range n.Out {
			here[v] = true
			if v.State == nil && later(v) {
				keeps = append(keeps, v)
			}
		}
	}
	seen := map[*graph.Value]bool{}
	for _, n := range nodes {
		for _, v := range n.In {
			s := graph.Storage(v)
			if here[s] || seen[s] || s.Node == nil || s.State != nil {
				continue
			}
			seen[s] = true
			reads = append(reads, s)
			if later(s) {
				keeps = append(keeps, s)
			}
		}
	}
	return reads, keeps
}

// peakOf returns the most memory that the nodes need at any of them, including what they
// read and those of these values and of their results that are kept.
func peakOf(nodes []*graph.Node, reads, keeps []*graph.Value) int64 {
	f := &graph.Func{}
	values := map[*graph.Value]*graph.Value{}
	add := func(op graph.Op, in, out []*graph.Value) {
		n := &graph.Node{Op: op}
		for _, v := range in {
			for values[v] == nil && v.Node != nil && graph.IsView(v.Node.Op) {
				v = v.Node.In[0]
			}
			if values[v] == nil {
				values[v] = f.NewValue(v.Type)
			}
			n.In = append(n.In, values[v])
		}
		for i, v := range out {
			w := f.NewValue(v.Type)
			w.Node, w.Index, w.State = n, i, v.State
			values[v] = w
			n.Out = append(n.Out, w)
		}
		f.Nodes = append(f.Nodes, n)
	}
	around := graph.GlobalNorm{} // any operation: it takes no room
	add(around, nil, reads)
	for _, n := range nodes {
		add(n.Op, n.In, n.Out)
	}
	add(around, keeps, nil)
	return peak(f)
}

// levels returns the nodes' levels, and the last one.
func (z *slicer) levels(nodes []*graph.Node) (level map[*graph.Node]int, last int) {
	level = make(map[*graph.Node]int, len(nodes))
	readers := map[int][]*graph.Node{} // of versions of states
	for _, n := range nodes {
		l := 0
		for i, v := range n.In {
			m := v.Node
			at, ok := level[m]
			switch {
			case !ok:
			case z.rules[m] == nil:
				l = max(l, at)
			case z.rules[n] != nil && z.rules[n].cut[i] && !z.rules[m].sums[v.Index]:
				l = max(l, at)
			default:
				l = max(l, at+1)
			}
			if s := graph.Storage(v); s.State != nil {
				readers[s.ID] = append(readers[s.ID], n)
			}
		}
		// A node that overwrites a state comes after all that read it.
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			for _, m := range readers[n.In[a.In].ID] {
				if m == n {
					continue
				}
				l = max(l, level[m])
				if z.rules[m] != nil {
					l = max(l, level[m]+1)
				}
			}
		}
		level[n] = l
		last = max(last, l)
	}
	return level, last
}

// together returns the values, by ID, whose parts must be put together because they are
// read outside the parts' own level.
func (z *slicer) together(nodes []*graph.Node, level map[*graph.Node]int) map[int]bool {
	needed := map[int]bool{}
	for _, m := range nodes {
		r := z.rules[m]
		if r == nil || graph.IsView(m.Op) {
			continue // a view is counted where it is read
		}
		for i, v := range m.Out {
			if r.sums[i] {
				continue
			}
			needed[v.ID] = z.pinned[v.ID]
			for _, j := range z.readers.of(v.ID) {
				n := z.f.Nodes[j]
				if at, here := level[n]; !here || at != level[m] || z.rules[n] == nil {
					needed[v.ID] = true
					continue
				}
				for k, w := range n.In {
					if graph.Storage(w) == v && !z.rules[n].cut[k] {
						needed[v.ID] = true
					}
				}
			}
		}
	}
	return needed
}

// part emits the nodes for part p.
func (z *slicer) part(nodes []*graph.Node, p int, together map[int]bool) {
	parts := map[int]*graph.Value{}
	var part func(v *graph.Value) *graph.Value
	part = func(v *graph.Value) *graph.Value {
		if w := parts[v.ID]; w != nil {
			return w
		}
		if s := graph.Storage(v); s != v && divides(s, z.parts) {
			parts[v.ID] = z.b.Reshape(part(s), portion(v.Shape(), z.parts)...)
		} else {
			n := v.Shape()[0] / z.parts
			parts[v.ID] = z.b.Slice(z.value(v), 0, p*n, n)
		}
		return parts[v.ID]
	}
	for _, n := range nodes {
		z.b.At(n, func() {
			r := z.rules[n]
			in := make([]*graph.Value, len(n.In))
			for i, v := range n.In {
				if r.cut[i] {
					in[i] = part(v)
				} else {
					in[i] = z.value(v)
				}
			}
			for i, w := range z.b.Emit(r.op(p), in...) {
				v := n.Out[i]
				switch {
				case r.sums[i]:
					if p > 0 {
						w = z.b.Add(z.now[v.ID], w)
					}
					z.now[v.ID] = w
				case together[v.ID]:
					parts[v.ID] = w
					z.join(v, w, p)
				default:
					parts[v.ID] = w
				}
			}
		})
	}
}

// join puts part p of v with the others.
func (z *slicer) join(v, part *graph.Value, p int) {
	n := part.Shape()[0]
	at := graph.Slice{Start: p * n, Len: n, Step: 1}
	if p == 0 {
		z.now[v.ID] = z.b.Emit(graph.SliceGrad{Slice: at, Dim: v.Shape()[0]}, part)[0]
		return
	}
	z.now[v.ID] = z.b.Emit(graph.SliceWrite{Slice: at}, z.now[v.ID], part)[0]
	if p == z.parts-1 {
		z.now[v.ID].Name = v.Name
	}
}
