// Package graph is the language of snug's compiler: a training step is a
// [Func], a list of [Node]s that compute [Value]s of static type in single
// assignment. There is no control flow; loops are unrolled by the [Builder] or
// are operations of their own.
//
// Everything a program keeps from one run to the next (weights, gradient
// accumulators, moments, the loss scale, counters) is a [State]: a named value
// the program owns. A node that writes a state in place says so ([Aliaser]):
// its result is the state's next version, and [Verify] refuses a read of the
// old version after the write.
//
// An operation is one Go type: its shape rule, its gradient (which emits more graph) and
// its cost are in one place, with the formula and its source in the doc comment. [Verify]
// checks every invariant, [Func.String] prints a program stably.
package graph

import (
	"fmt"
	"slices"
)

// Value is one tensor: the result of a node, an input of the function or a
// version of a state.
type Value struct {
	ID    int
	Name  string // of inputs, states and named results; else empty
	Type  Type
	Node  *Node  // nil for inputs and states
	Index int    // index in Node.Out
	State *State // set for states and for their later versions
}

// Shape is v.Type.Shape.
func (v *Value) Shape() Shape { return v.Type.Shape }

// DType is v.Type.DType.
func (v *Value) DType() DType { return v.Type.DType }

// Label is the name of v in messages: its name, otherwise the operation that made it.
func (v *Value) Label() string {
	if v.Name != "" {
		return v.Name
	}
	if v.Node == nil {
		return fmt.Sprintf("v%d", v.ID)
	}
	l := v.Node.Op.Name()
	if v.Index > 0 {
		l = fmt.Sprintf("%s#%d", l, v.Index)
	}
	if v.Node.Layer != "" {
		l = v.Node.Layer + "/" + l
	}
	return l
}

// Node is one operation applied to operands.
type Node struct {
	Op  Op
	In  []*Value
	Out []*Value
	// Layer is the path of the model part that emitted the node, such as
	// "layers.3.attention".
	Layer string
	// Block numbers the recomputation unit the node belongs to, from 1; 0 is none.
	Block int
	// Backward marks nodes added by differentiation, Clone those added by recomputation.
	Backward, Clone bool
}

// Cost is the work of one run of n.
func (n *Node) Cost() Cost {
	types := make([]Type, 0, len(n.In)+len(n.Out))
	for _, v := range n.In {
		types = append(types, v.Type)
	}
	for _, v := range n.Out {
		types = append(types, v.Type)
	}
	return n.Op.Cost(types[:len(n.In)], types[len(n.In):])
}

// Role is what a state is for: the rows of a memory plan.
type Role uint8

// The roles of states.
const (
	Weight      Role = iota // model parameter
	Frozen                  // model parameter that is not trained
	Buffer                  // model state without gradient, such as running statistics
	Gradient                // gradient accumulator
	Moment                  // optimizer moment
	Counter                 // loss scale, update counts
	CacheRole               // keys and values of generation
	Transient               // what an update leaves for the host; never saved in checkpoints
	Activation              // what a run keeps in the host's memory between its halves; never saved in checkpoints
	OuterMoment             // moment of the outer optimizer, the same on all ranks
	Reference               // weights as ranks last synchronized them; never saved in checkpoints
	Rounded                 // weights in 16 bits, as matmuls read them; never saved in checkpoints
)

var roleNames = [...]string{"weight", "frozen", "buffer", "gradient", "moment", "counter", "cache", "transient", "offloaded activation", "outer moment", "synchronized weight", "rounded weight"}

func (r Role) String() string { return roleNames[r] }

// State is a named tensor that outlives a run of the program.
type State struct {
	Name string
	// OldName, unless empty, is the name of the state in checkpoints of earlier versions.
	// Its random initial values are still drawn by that name.
	OldName string
	Type    Type
	Role    Role
	// Init fills the first value.
	Init Init
	// Decay says whether weight decay applies (matrices, not biases and norms).
	Decay bool
	// Group selects the optimizer settings of a weight: its learning rate is
	// multiplied by the group's factor. Empty is the default group.
	Group string
	// Part is what a weight is in its model; some optimizers treat parts differently.
	Part Part
	// Offloaded means that the state is kept in the host's memory, if the device has memory of
	// its own. Offloadable means that a program may choose to do so.
	Offloaded, Offloadable bool
	// Of, when set, is the state that this one is a window of: its elements from From on. A
	// function that uses a window uses neither the whole state nor an overlapping window.
	// From is also set if a separate state is a part of what is saved under its name.
	Of   *State
	From int64
}

// Home returns the state whose memory s occupies: s itself, unless it is a window.
func (s *State) Home() *State {
	if s.Of != nil {
		return s.Of
	}
	return s
}

// FrozenAs is the format of a frozen weight if frozen matrices are stored in d; Invalid:
// F32. Only matrices between vectors of the model are quantized, as in bitsandbytes; tables
// and heads are then in BF16.
func (s *State) FrozenAs(d DType) DType {
	switch {
	case d == Invalid || !s.Decay || len(s.Type.Shape) < 2:
		return F32
	case d.Quantized() && (s.Part != Hidden || len(s.Type.Shape) > 2):
		return BF16
	}
	return d
}

// Part is the part that a weight of two or more dimensions plays in its model.
type Part uint8

// The parts.
const (
	// Hidden is a matrix between vectors of the model, or a kernel of a convolution, which
	// is one matrix with its first dimension as rows.
	Hidden Part = iota
	// Outer is a table of vectors, or gives the model's results.
	Outer
	// Stacked is several matrices like Hidden, one for each expert.
	Stacked
)

// SavedName is the name under which a checkpoint holds the state: the old one if
// only that is there.
func (s *State) SavedName(has func(name string) bool) string {
	if s.OldName != "" && !has(s.Name) {
		return s.OldName
	}
	return s.Name
}

// Output is a named result of a function.
type Output struct {
	Name  string
	Value *Value
}

// Func is a straight-line program.
type Func struct {
	Name    string
	Inputs  []*Value // what the host writes before each run, in declaration order
	States  []*Value // first version of each state used, in declaration order
	Nodes   []*Node
	Outputs []Output

	nextID int
	types  []Type // passed to Infer by NewNode
}

// NumValues is an upper bound on value IDs, for tables indexed by ID.
func (f *Func) NumValues() int { return f.nextID }

// NewValue returns a value with a fresh ID that belongs to no node yet.
func (f *Func) NewValue(t Type) *Value {
	v := &Value{ID: f.nextID, Type: t}
	f.nextID++
	return v
}

// Input returns the input called name, or nil.
func (f *Func) Input(name string) *Value {
	for _, v := range f.Inputs {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Output returns the output called name, or nil.
func (f *Func) Output(name string) *Value {
	for _, o := range f.Outputs {
		if o.Name == name {
			return o.Value
		}
	}
	return nil
}

// StateValue returns the first version of the state called name, or nil.
func (f *Func) StateValue(name string) *Value {
	for _, v := range f.States {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// NewNode makes a node of f with inferred result types. It is not appended.
func (f *Func) NewNode(op Op, in ...*Value) (*Node, error) {
	types := f.types[:0]
	for _, v := range in {
		types = append(types, v.Type)
	}
	f.types = types
	out, err := op.Infer(types)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.Name(), err)
	}
	for _, t := range out {
		if err := t.fits(); err != nil {
			return nil, fmt.Errorf("%s: %w", op.Name(), err)
		}
	}
	n := f.blank(len(in), len(out))
	n.Op = op
	copy(n.In, in)
	for i, t := range out {
		n.Out[i].Type = t
	}
	for _, a := range Aliases(op, len(in)) {
		n.Out[a.Out].State = in[a.In].State
	}
	return n, nil
}

// blank returns a node with room for in operands and with out new results, in one
// allocation.
func (f *Func) blank(in, out int) *Node {
	var n *Node
	var results []Value
	if in <= 3 && out == 1 { // most nodes
		s := new(struct {
			node   Node
			result [1]Value
			out    [1]*Value
			in     [3]*Value
		})
		n, results = &s.node, s.result[:]
		n.In, n.Out = s.in[:in:in], s.out[:]
	} else {
		n, results = new(Node), make([]Value, out)
		values := make([]*Value, in+out)
		n.In, n.Out = values[:in:in], values[in:]
	}
	for i := range results {
		v := &results[i]
		v.ID, v.Node, v.Index = f.nextID, n, i
		n.Out[i] = v
		f.nextID++
	}
	return n
}

// Copy returns a copy of n, which need not belong to f, with other operands and new results that
// keep the names and states of the old ones. It is not appended.
func (f *Func) Copy(n *Node, in []*Value) *Node {
	m := f.blank(len(in), len(n.Out))
	m.Op, m.Layer, m.Block, m.Backward, m.Clone = n.Op, n.Layer, n.Block, n.Backward, n.Clone
	copy(m.In, in)
	for i, v := range n.Out {
		w := m.Out[i]
		w.Type, w.Name, w.State = v.Type, v.Name, v.State
	}
	return m
}

// Shallow returns a copy of f with the same nodes. Either can get further nodes, states and values, even at the
// same time, and the other is unaffected.
func (f *Func) Shallow() *Func {
	g := *f
	g.types = nil
	g.Nodes, g.Inputs, g.States, g.Outputs = slices.Clip(f.Nodes), slices.Clip(f.Inputs), slices.Clip(f.States), slices.Clip(f.Outputs)
	return &g
}

// Uses counts the operand positions that read each value, indexed by ID. Outputs count as
// one use.
func (f *Func) Uses() []int {
	uses := make([]int, f.nextID)
	for _, n := range f.Nodes {
		for _, v := range n.In {
			uses[v.ID]++
		}
	}
	for _, o := range f.Outputs {
		uses[o.Value.ID]++
	}
	return uses
}

// Again appends a copy of n with other operands. Types are inferred anew only if those of the operands differ.
func (b *Builder) Again(n *Node, in []*Value) []*Value {
	for i, v := range in {
		if old := n.In[i]; v != old && (v.State != old.State || !v.Type.Equal(old.Type)) {
			return b.Emit(n.Op, in...)
		}
	}
	m := b.F.Copy(n, in)
	b.F.Nodes = append(b.F.Nodes, m)
	return m.Out
}

// Rewrite rebuilds f node by node: fn gets each old node with its operands
// already replaced and returns the values that replace its results (emitting
// what it needs), or nil to keep the node as it is. Inputs and states are kept.
// Within fn, [Builder.Now] gives what replaces any earlier old value.
func (f *Func) Rewrite(fn func(b *Builder, n *Node, in []*Value) []*Value) (*Func, error) {
	var out *Func
	err := Catch(func() {
		b := &Builder{F: &Func{Name: f.Name, Inputs: f.Inputs, States: f.States, nextID: f.nextID}}
		m := make([]*Value, f.nextID)
		subst := func(v *Value) *Value {
			if r := m[v.ID]; r != nil {
				return r
			}
			return v
		}
		b.now = subst
		operands := 0
		for _, n := range f.Nodes {
			operands += len(n.In)
		}
		all := make([]*Value, operands)
		b.F.Nodes = make([]*Node, 0, len(f.Nodes))
		for _, n := range f.Nodes {
			in := all[:len(n.In):len(n.In)]
			all = all[len(n.In):]
			for i, v := range n.In {
				in[i] = subst(v)
			}
			b.follow(n)
			res := fn(b, n, in)
			if res == nil {
				res = b.Again(n, in)
			}
			for i, v := range n.Out {
				m[v.ID] = res[i]
				if v.Name != "" && res[i].Node != nil && res[i].Name == "" {
					res[i].Name = v.Name
				}
			}
		}
		for _, o := range f.Outputs {
			b.F.Outputs = append(b.F.Outputs, Output{o.Name, subst(o.Value)})
		}
		b.now = nil
		out = b.F
	})
	return out, err
}
