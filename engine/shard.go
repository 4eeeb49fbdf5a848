package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// Sharding divides the optimizer among ranks, which exchange their gradients: each keeps
// the moments of its parts of the weights, and updates those parts (ZeRO, stage 1:
// Rajbhandari et al. 2020, arXiv:1910.02054). The update then takes the global gradient
// norm from [StateNorm], and the caller distributes the updated weights.
type Sharding struct{ Rank, World int }

// StateNorm is the state from which a sharded update takes the global gradient norm, F32.
const StateNorm = "update.grad_norm"

// Shards describes what each rank of a program with a [Sharding] has.
type Shards struct {
	// Trained are the weights that are updated.
	Trained []*graph.State
	// Weights are the parts of the trained weights that each rank updates: about the same
	// amount of each bucket ([Program.Buckets]).
	Weights [][]Part
	// Moments are the moments that each rank keeps, Whole all of them as a single process
	// would. A state of Moments that is smaller than its namesake in Whole is the part of
	// it that begins at its From.
	Moments [][]*graph.State
	Whole   []*graph.State
}

// Part is a range of the elements of a state.
type Part struct {
	State       *graph.State
	From, Elems int64
}

// Grain says how a state may be divided: at multiples of Elems elements, or not at all if
// it has no more. Bytes is the memory of an element on the rank that has it.
type Grain struct {
	Elems int64
	Bytes float64
}

// Divide gives each rank about the same number of bytes of each list of states, in order,
// and at most one part of each state. The first rank has the most. It depends only on its
// operands.
func Divide(lists [][]*graph.State, world int, of func(*graph.State) Grain) [][]Part {
	ranks, loads := make([][]piece, world), make([]float64, world)
	index := 0
	for _, states := range lists {
		divide(states, index, of, loads, func(rank int, p piece) {
			ranks[rank] = append(ranks[rank], p)
			loads[rank] += float64(p.Elems) * of(p.State).Bytes
		})
		index += len(states)
	}
	order := make([]int, world)
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	parts := make([][]Part, world)
	for r, from := range order {
		slices.SortFunc(ranks[from], func(a, b piece) int { return cmp.Compare(a.index, b.index) })
		for _, p := range ranks[from] {
			parts[r] = append(parts[r], p.Part)
		}
	}
	return parts
}

// piece is a part of the state with an index in all lists.
type piece struct {
	Part
	index int
}

// divide assigns the states of a list, the first of which has an index, to ranks with loads.
func divide(states []*graph.State, index int, of func(*graph.State) Grain, loads []float64, give func(rank int, p piece)) {
	// States that stay whole go, largest first, to the rank with the least.
	var whole, divided []int
	rest := 0.0
	for i, s := range states {
		if g := of(s); g.Elems >= s.Type.Shape.Elems() {
			whole = append(whole, i)
		} else {
			divided = append(divided, i)
			rest += bytesOf(s, g)
		}
	}
	slices.SortStableFunc(whole, func(a, b int) int {
		return cmp.Compare(bytesOf(states[b], of(states[b])), bytesOf(states[a], of(states[a])))
	})
	for _, i := range whole {
		least := 0
		for r := range loads {
			if loads[r] < loads[least] {
				least = r
			}
		}
		give(least, piece{Part{states[i], 0, states[i].Type.Shape.Elems()}, index + i})
	}
	// The others raise all ranks to one level, one rank after the other.
	level := levelOf(loads, rest)
	lack := make([]float64, len(loads))
	for r := range lack {
		lack[r] = max(0, level-loads[r])
	}
	due, given, rank := lack[0], 0.0, 0 // bytes up to and including this rank
	for _, i := range divided {
		g, n := of(states[i]), states[i].Type.Shape.Elems()
		for from := int64(0); from < n; {
			take := n - from
			if rank < len(loads)-1 {
				take = min(take, max(0, int64((due-given)/(g.Bytes*float64(g.Elems))+0.5)*g.Elems))
			}
			if take > 0 {
				give(rank, piece{Part{states[i], from, take}, index + i})
				given += float64(take) * g.Bytes
				from += take
			}
			if from < n {
				rank++
				due += lack[rank]
			}
		}
	}
}

func bytesOf(s *graph.State, g Grain) float64 { return float64(s.Type.Shape.Elems()) * g.Bytes }

// levelOf is the level to which the given bytes raise the lowest of the loads.
func levelOf(loads []float64, bytes float64) float64 {
	sorted := slices.Sorted(slices.Values(loads))
	for n, load := range sorted { // n of them are lower
		if n > 0 && float64(n)*(load-sorted[n-1]) >= bytes {
			return sorted[n-1] + bytes/float64(n)
		}
		bytes -= float64(n) * (load - sorted[max(n-1, 0)])
	}
	return sorted[len(sorted)-1] + bytes/float64(len(sorted))
}

// sharded adds the update of a rank, of its parts of the trained weights, to a program with
// the functions of micro-batches.
func (t *Training) sharded(trained []*graph.State, micro []*Func, s *Shards) func(b *graph.Builder, rank int) {
	o := &t.Optimizer
	s.Trained = trained
	weights := map[string]*graph.State{}
	for _, w := range trained {
		weights[Gradient+w.Name] = w
	}
	lists := buckets(micro)
	for _, list := range lists {
		for i, g := range list {
			list[i] = weights[g.Name]
		}
	}
	s.Weights = Divide(lists, t.Sharding.World, o.grain)
	emit := func(b *graph.Builder, parts []Part) {
		var params, grads []*graph.Value
		for _, p := range parts {
			params = append(params, b.State(window(p.State, p)))
			grads = append(grads, b.State(window(t.gradientOf(p.State), p)))
		}
		norm := b.State(&graph.State{Name: StateNorm, Type: graph.T(graph.F32), Role: graph.Transient})
		t.update(b, params, grads, true, norm)
	}
	moments := func(parts []Part) (list []*graph.State) {
		b := graph.NewBuilder(FuncUpdate)
		emit(b, parts)
		for _, v := range b.F.States {
			if v.State.Role == graph.Moment {
				list = append(list, v.State)
			}
		}
		return list
	}
	for _, parts := range s.Weights {
		s.Moments = append(s.Moments, moments(parts))
	}
	all := make([]Part, len(trained))
	for i, w := range trained {
		all[i] = Part{w, 0, w.Type.Shape.Elems()}
	}
	s.Whole = moments(all)
	return func(b *graph.Builder, rank int) { emit(b, s.Weights[rank]) }
}

// window returns the part of a state as a state in its place; the state itself if the part
// is all of it.
func window(s *graph.State, p Part) *graph.State {
	if p.Elems == s.Type.Shape.Elems() {
		return s
	}
	w := *s
	w.Name, w.Of, w.From = fmt.Sprintf("%s[%d:%d]", s.Name, p.From, p.From+p.Elems), s, p.From
	w.Type = graph.T(s.Type.DType, int(p.Elems))
	return &w
}

// grain says how ranks may divide a weight: an element-by-element update, in whole chunks
// of the sum of squares. Each rank has the sum of its gradients, in float32, and the
// moments.
func (o *Optimizer) grain(s *graph.State) Grain {
	g := Grain{graph.NormChunk, 4 + o.kept(s)}
	switch {
	case o.Rule == Adafactor, // sums over rows, columns and the whole
		o.Rule == Muon && matrices(s) != nil: // products of the matrix
		g.Elems = s.Type.Shape.Elems()
	}
	return g
}

// kept is about how many bytes of state the rule keeps per element of a weight.
func (o *Optimizer) kept(s *graph.State) (bytes float64) {
	n := s.Type.Shape.Elems()
	switch {
	case o.Rule == Lion, o.Rule == Muon && matrices(s) != nil, o.Rule == Adafactor && len(s.Type.Shape) < 2:
		bytes = 4
	case o.Rule == AdamW8bit && n >= Least8bit:
		bytes = 2 + 8./graph.MomentBlock
	case o.Rule == Adafactor:
		bytes = 0
	default:
		bytes = 8
	}
	if o.Round.Mode == graph.Compensated && s.Type.DType == graph.BF16 {
		bytes += 2
	}
	return bytes
}
