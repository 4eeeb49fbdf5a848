// Package engine compiles models into programs and runs them.
//
// A [Program] is one or more functions (a training micro-step, an update, an
// evaluation) that share states and one arena. Everything it needs is known
// when it is compiled: [Program.Layout] is exact to the byte, on any device.
// Loaded on a device ([Program.Load]), it allocates nothing further.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Slots is how many sets of input buffers a program has: one being computed
// on, one being filled.
const Slots = 2

// Func is one function of a program.
type Func struct {
	Name      string
	F         *graph.Func
	Placement *pass.Placement
	// Blocks is what the recompute pass did to each block, from 1.
	Blocks []pass.Recompute
}

// Span is a byte range.
type Span struct{ Offset, Bytes int64 }

// Layout is the arena of a program: four consecutive regions. The host's memory for
// offloaded data follows: states, then the activations of one function.
type Layout struct {
	States, Inputs, Outputs, Temps Span
	Host                           Span
	// Activations are the bytes of Host that hold activations.
	Activations int64
	// State, Input and Output are the places of the named tensors within their region (an
	// input's within each slot; an output's name is "function/name").
	State, Input, Output map[string]Span
	// InputStride is the distance between the input slots.
	InputStride int64
	// Bytes is the whole arena, without Host.
	Bytes int64
}

// Program is a compiled set of functions.
type Program struct {
	Traits Traits // of the device that it was compiled for
	Funcs  []*Func
	States []*graph.State // in order of their place
	Inputs []*graph.Value // the union over the functions, by name
	Layout Layout
	// Untrained are the weights that the loss does not depend on.
	Untrained []string
	// Shards describes how ranks share the optimizer; nil: they do not.
	Shards *Shards
	// Outer is the outer optimizer of ranks that train on their own; nil: there is none.
	Outer *Outer
	// Watched means that a device prepares to call a [Watch] in the middle of a run: later that
	// takes no further memory.
	Watched bool
}

// CompileOptions control the passes.
type CompileOptions struct {
	// Traits are the device's traits; nil stands for the processor's.
	Traits *Traits
	// ComputeDType is the 16-bit type of mixed precision; graph.F32 for none.
	ComputeDType graph.DType
	// TF32 rounds the factors of float32 matmuls to TF32; see [graph.TF32Rule].
	TF32 bool
	// Compress is [pass.Unit.Compress].
	Compress bool
	// Recompute and Budget (bytes of temporaries, for RecomputeAuto and OffloadActivations).
	Recompute pass.Recompute
	Budget    int64
	// OffloadActivations is [pass.Unit.OffloadActivations].
	OffloadActivations bool
	// offloadStates is [Optimizer.Offload].
	offloadStates bool
	// rounded means that steps keep weights in 16 bits too.
	rounded bool
	// Staging is [pass.Unit.Staging].
	Staging int64
	// Watched is [Program.Watched].
	Watched bool
	// Slices is in how many parts RecomputeSlices computes a block.
	Slices int
	// Price returns the time of a node, in seconds, for RecomputeAuto and OffloadActivations;
	// nil: see [pass.Unit].
	Price func(n *graph.Node) float64
	// Rival returns what a function competes with; see [pass.Unit].
	Rival func(function string) *pass.Rival
	// Cache, when set, keeps results of this compilation for programs that share it, and
	// supplies theirs. Of names the training step: in one Cache equal names are equal steps,
	// except for [Optimizer.Offload].
	Cache *Cache
	Of    any
	// Times, when set, is called with the time that each pass over a function took.
	Times func(pass string, d time.Duration)
	// Context, when it ends, ends compiling between two of its steps; nil: nothing does.
	Context context.Context
	// Verify checks every invariant after each pass.
	Verify bool
	// Dump names a pass around which the functions are printed to To.
	Dump string
	To   io.Writer
	// Label names every value the same in all precisions; see [pass.Options].
	Label bool
	// Skip leaves out a pass, for tests and comparisons.
	Skip func(pass string) bool
}

// passes returns the options of the passes.
func (o *CompileOptions) passes() pass.Options {
	return pass.Options{Verify: o.Verify, Dump: o.Dump, To: o.To, Label: o.Label, Skip: o.Skip, Times: o.Times}
}

// compile compiles functions one after the other and lays the program out.
func compile(sources []*source, o CompileOptions) (*Program, error) {
	p := &Program{Traits: o.traits(), Watched: o.Watched}
	if p.Traits.Align <= 0 {
		return nil, fmt.Errorf("the traits of %s have no alignment", p.Traits.Name)
	}
	for len(sources) > 0 {
		n := 1 // how many do not depend on what is made of the others
		for n < len(sources) && !sources[n].again {
			n++
		}
		if err := p.compile(sources[:n], &o); err != nil {
			return nil, err
		}
		sources = sources[n:]
	}
	return p, p.layOut()
}

// compile appends functions, none of which depends on what is made of another. From recomputation on they share
// nothing and are compiled at once, unless passes are timed or dumped.
func (p *Program) compile(sources []*source, o *CompileOptions) error {
	var jobs []*job
	for _, s := range sources {
		j := s.start(p, o)
		if j.err != nil {
			return j.err
		}
		jobs = append(jobs, j)
	}
	var all sync.WaitGroup
	for _, j := range jobs {
		if o.Times != nil || o.Dump != "" {
			j.finish(p, o)
			continue
		}
		all.Go(func() { j.finish(p, o) })
	}
	all.Wait()
	for _, j := range jobs {
		if j.err != nil {
			return j.err
		}
		j.keep(o.Cache)
		p.Funcs = append(p.Funcs, j.f)
	}
	return nil
}

// traits returns the device's traits, the processor's if no device is named.
func (o *CompileOptions) traits() Traits {
	if o.Traits != nil {
		return *o.Traits
	}
	return CPU
}

// layOut collects states and inputs and assigns the regions.
func (p *Program) layOut() error {
	states := map[string]*graph.State{}
	var parts []*graph.State // parts of other states
	inputs := map[string]*graph.Value{}
	for _, f := range p.Funcs {
		for _, v := range f.F.States {
			s := states[v.Name]
			if v.State.Role == graph.Activation {
				continue
			}
			if v.State.Of != nil {
				parts = append(parts, v.State)
				if whole := v.State.Of; states[whole.Name] == nil { // no function has used all of it so far
					states[whole.Name] = whole
					p.States = append(p.States, whole)
				}
			} else if s == nil {
				states[v.Name] = v.State
				p.States = append(p.States, v.State)
			} else if !s.Type.Equal(v.State.Type) {
				return fmt.Errorf("state %s is %v in one function and %v in another", v.Name, s.Type, v.State.Type)
			}
		}
		for _, v := range f.F.Inputs {
			w := inputs[v.Name]
			if w == nil {
				inputs[v.Name] = v
				p.Inputs = append(p.Inputs, v)
			} else if !w.Type.Equal(v.Type) {
				return fmt.Errorf("input %s is %v in one function and %v in another", v.Name, w.Type, v.Type)
			}
		}
	}
	slices.SortStableFunc(p.States, func(a, b *graph.State) int { return cmp.Compare(a.Role, b.Role) })
	l := &p.Layout
	l.State, l.Input, l.Output = map[string]Span{}, map[string]Span{}, map[string]Span{}
	at := int64(0)
	put := func(m map[string]Span, name string, bytes int64) {
		m[name] = Span{at, bytes}
		at += p.Align(bytes)
	}
	place := func(offloaded bool) (bytes int64) {
		at = 0
		for _, s := range p.States {
			if s.Offloaded == offloaded {
				put(l.State, s.Name, s.Type.Bytes())
			}
		}
		return at
	}
	l.Host.Bytes = place(true)
	for _, f := range p.Funcs {
		at = l.Host.Bytes
		for _, v := range f.F.States {
			if v.State.Role == graph.Activation {
				put(l.State, v.Name, v.Type.Bytes())
			}
		}
		l.Activations = max(l.Activations, at-l.Host.Bytes)
	}
	l.Host.Bytes += l.Activations
	l.States = Span{0, place(false)}
	for _, s := range parts {
		whole, ok := l.State[s.Of.Name]
		width := s.Type.DType.Size()
		if !ok || s.From*width+s.Type.Bytes() > whole.Bytes || s.From*width%p.Traits.Align != 0 {
			return fmt.Errorf("state %s is not a part of %s that begins at a place for a tensor", s.Name, s.Of.Name)
		}
		l.State[s.Name] = Span{whole.Offset + s.From*width, s.Type.Bytes()}
	}
	at = 0
	for _, v := range p.Inputs {
		put(l.Input, v.Name, v.Type.Bytes())
	}
	l.InputStride = at
	l.Inputs = Span{l.States.Bytes, Slots * at}
	at = 0
	for _, f := range p.Funcs {
		places := map[*graph.Value]Span{} // outputs of one storage share a place
		for _, o := range f.F.Outputs {
			root := graph.Storage(o.Value)
			if root.State != nil || root.Node == nil {
				continue
			}
			name := f.Name + "/" + o.Name
			if s, ok := places[root]; ok {
				l.Output[name] = s
				continue
			}
			put(l.Output, name, o.Value.Type.Bytes())
			places[root] = l.Output[name]
		}
	}
	l.Outputs = Span{l.Inputs.Offset + l.Inputs.Bytes, at}
	for _, f := range p.Funcs {
		l.Temps.Bytes = max(l.Temps.Bytes, f.Placement.Bytes)
	}
	l.Temps.Offset = l.Outputs.Offset + l.Outputs.Bytes
	l.Bytes = l.Temps.Offset + l.Temps.Bytes
	l.Host.Offset = l.Bytes
	return nil
}

// Align rounds a number of bytes up to the next offset at which a tensor may begin.
func (p *Program) Align(n int64) int64 {
	a := p.Traits.Align
	return (n + a - 1) / a * a
}

// Region is a part of the arena, or the host's memory for what is offloaded.
type Region int

// The regions.
const (
	States Region = iota
	Inputs
	Outputs
	Temps
	Host
	Regions // how many there are
)

// Region returns the place of a region; the inputs' includes all slots.
func (l *Layout) Region(r Region) Span {
	return [...]Span{l.States, l.Inputs, l.Outputs, l.Temps, l.Host}[r]
}

// Slot returns the place of the inputs of a slot.
func (l *Layout) Slot(slot int) Span {
	return Span{l.Inputs.Offset + int64(slot)*l.InputStride, l.InputStride}
}

// Place is the place of a value within its region; an input's is within each slot.
type Place struct {
	Region Region
	Span
}

// regionOf returns the region of a state.
func regionOf(s *graph.State) Region {
	if s.Offloaded {
		return Host
	}
	return States
}

// Place returns the place of v of f.
func (p *Program) Place(f *Func, v *graph.Value) (Place, error) {
	l := &p.Layout
	bytes := v.Type.Bytes()
	in := func(r Region, s Span) (Place, error) {
		if bytes > s.Bytes {
			return Place{}, fmt.Errorf("%s is larger than its place", v.Label())
		}
		return Place{r, Span{s.Offset, bytes}}, nil
	}
	root := graph.Storage(v)
	for _, o := range f.F.Outputs {
		if s, ok := l.Output[f.Name+"/"+o.Name]; ok && graph.Storage(o.Value) == root {
			return in(Outputs, s)
		}
	}
	switch {
	case root.State != nil:
		return in(regionOf(root.State), l.State[root.State.Name])
	case root.Node == nil:
		s, ok := l.Input[root.Name]
		if !ok {
			return Place{}, fmt.Errorf("input %s has no place", root.Name)
		}
		return in(Inputs, s)
	}
	off := f.Placement.Offset[root.ID]
	if off < 0 {
		return Place{}, fmt.Errorf("%s was not placed", v.Label())
	}
	return in(Temps, Span{off, bytes})
}

// End returns the first byte of the arena after at, in the last slot for an input,
// rounded up to the next tensor; 0 outside the arena.
func (p *Program) End(at Place) int64 {
	if at.Region == Host {
		return 0
	}
	base := p.Layout.Region(at.Region).Offset
	if at.Region == Inputs {
		base = p.Layout.Slot(Slots - 1).Offset
	}
	return base + at.Offset + p.Align(at.Bytes)
}

// Func returns the function called name, or nil.
func (p *Program) Func(name string) *Func {
	for _, f := range p.Funcs {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Parameters counts the elements of all weights, and of those that are trained.
func (p *Program) Parameters() (all, trained int64) {
	for _, s := range p.States {
		switch s.Role {
		case graph.Weight:
			trained += s.Type.Shape.Elems()
			all += s.Type.Shape.Elems()
		case graph.Frozen:
			all += s.Type.Shape.Elems()
		}
	}
	return all, trained
}
