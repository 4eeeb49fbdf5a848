package engine

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// Gradients are exchanged in buckets: large enough for full bandwidth, small enough to need
// little memory and to be sent while others are still being computed. The first is small so
// that the exchange begins early; small models have about fewBuckets of them, smaller.
const (
	BucketBytes      = 25 << 20
	leastBucketBytes = 1 << 20
	fewBuckets       = 16
)

// Buckets returns the gradients of a program's micro-batches in the order in which the
// functions finish with them; those of one list are exchanged together. The order depends
// only on the program: where functions differ, on the first that uses a gradient.
func (p *Program) Buckets() [][]*graph.State { return buckets(p.Funcs) }

func buckets(funcs []*Func) (list [][]*graph.State) {
	var now []*graph.State
	all, total := finished(funcs), int64(0)
	for _, s := range all {
		total += s.Type.Bytes()
	}
	later := min(BucketBytes, max(leastBucketBytes, total/fewBuckets))
	bytes, most := int64(0), int64(leastBucketBytes)
	for _, s := range all {
		n := s.Type.Bytes()
		if len(now) > 0 && bytes+n > most {
			list, now, bytes, most = append(list, now), nil, 0, later
		}
		now, bytes = append(now, s), bytes+n
	}
	if len(now) > 0 {
		list = append(list, now)
	}
	return list
}

// finished returns the gradients of micro-batches in the order of their last use.
func finished(funcs []*Func) (list []*graph.State) {
	for _, f := range funcs {
		if !IsVariant(f.Name, FuncMicro) {
			continue
		}
		uses, states := GradientUses(f.F), map[string]*graph.State{}
		for _, v := range f.F.States {
			states[v.State.Name] = v.State
		}
		for _, n := range f.F.Nodes {
			for _, name := range uses[n].Ends {
				if !slices.ContainsFunc(list, func(s *graph.State) bool { return s.Name == name }) {
					list = append(list, states[name])
				}
			}
		}
	}
	return list
}
