package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Error is a mistake found while a graph is built: shapes that do not fit,
// say. Layer is the path of the model part being built.
type Error struct {
	Layer string
	Err   error
}

func (e *Error) Error() string {
	if e.Layer == "" {
		return e.Err.Error()
	}
	return e.Layer + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Catch runs fn and returns the [Error] that a builder raised in it. Builders raise
// errors by panicking so that models read as formulas; Catch belongs at the compiler's
// entry points.
func Catch(fn func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Error:
			err = r
		default:
			panic(r)
		}
	}()
	fn()
	return nil
}

// Builder appends nodes to a function.
type Builder struct {
	F *Func

	scope    []string
	spare    []string       // for the next scope of At
	renamed  map[int]string // by index in scope: the name in earlier versions
	block    int
	blocks   int
	backward bool
	clone    bool
	streams  int
	weights  DType                 // storage of matrices; Invalid is F32
	states   map[string]*Value     // F.States by name
	now      func(v *Value) *Value // during a Rewrite
	adapt    func(l LinearLayer) *Value
	part     Part // of the weights being declared
}

// LinearLayer is a linear layer of a model under construction.
type LinearLayer struct {
	Name string // its path
	// X [rows, in] is its input, Y [rows, out] its result without bias.
	X, Y *Value
	// W is its weight, [out, in], or [in, out] with InOut. With Groups it is a stack of
	// matrices, [Groups, out, in], each for the rows that Routing gives it (see
	// [Builder.GroupedLinear]), and Y includes their biases.
	W       *Value
	InOut   bool
	Groups  int // 0: W is one matrix
	Routing Routing
}

// AdaptLinear makes fn replace the result of every linear layer whose weight is a
// parameter: by Y itself, or Y plus a low-rank update, say. fn is called in the scope of
// the layer, and not for layers that it builds itself. nil: adapt none.
func (b *Builder) AdaptLinear(fn func(l LinearLayer) *Value) { b.adapt = fn }

// Adapts reports whether linear layers are adapted one by one.
func (b *Builder) Adapts() bool { return b.adapt != nil }

// adapted returns the replacement for the result of a linear layer, which is named after
// its weight.
func (b *Builder) adapted(l LinearLayer) *Value {
	adapt := b.adapt
	if adapt == nil || l.W.State == nil {
		return l.Y
	}
	l.Name = strings.TrimSuffix(l.W.Name, ".weight")
	scope, renamed := b.scope, b.renamed
	b.adapt, b.scope, b.renamed = nil, []string{l.Name}, nil
	y := adapt(l)
	b.adapt, b.scope, b.renamed = adapt, scope, renamed
	return y
}

// NewBuilder starts an empty function.
func NewBuilder(name string) *Builder { return &Builder{F: &Func{Name: name}} }

// Extend returns a builder that appends to f. It continues the numbering of f's blocks
// and random streams.
func Extend(f *Func) *Builder {
	b := &Builder{F: f}
	for _, n := range f.Nodes {
		b.blocks = max(b.blocks, n.Block)
		switch op := n.Op.(type) {
		case Dropout:
			b.streams = max(b.streams, int(op.Stream))
		case Attention:
			b.streams = max(b.streams, int(op.Stream))
		}
	}
	return b
}

// Failf raises an [Error] at the current layer.
func (b *Builder) Failf(format string, args ...any) {
	panic(&Error{b.Layer(), fmt.Errorf(format, args...)})
}

// Refuse raises an [Error] that is a [SettingError].
func (b *Builder) Refuse(key, format string, args ...any) {
	panic(&Error{b.Layer(), SettingError{key, fmt.Sprintf(format, args...)}})
}

// Layer is the path of the current scope.
func (b *Builder) Layer() string { return strings.Join(b.scope, ".") }

// Scope runs fn with name appended to the layer path. Parameters declared in fn have the
// path as a prefix.
func (b *Builder) Scope(name string, fn func()) {
	b.scope = append(b.scope, name)
	fn()
	b.scope = b.scope[:len(b.scope)-1]
}

// ScopeRenamed is a Scope that earlier versions called old: their checkpoints have its
// parameters under that name (see [State.OldName]).
func (b *Builder) ScopeRenamed(old, name string, fn func()) {
	if b.renamed == nil {
		b.renamed = map[int]string{}
	}
	i := len(b.scope)
	b.renamed[i] = old
	b.Scope(name, fn)
	delete(b.renamed, i)
}

// Block is a Scope that is one unit of recomputation: the recompute pass drops and
// rebuilds values within a block.
func (b *Builder) Block(name string, fn func()) {
	outer := b.block
	b.blocks++
	b.block = b.blocks
	b.Scope(name, fn)
	b.block = outer
}

// Path returns name prefixed by the current layer path.
func (b *Builder) Path(name string) string {
	if len(b.scope) == 0 {
		return name
	}
	return b.Layer() + "." + name
}

// oldPath returns the path of name in earlier versions, empty if it is the same.
func (b *Builder) oldPath(name string) string {
	if len(b.renamed) == 0 {
		return ""
	}
	path := append(slices.Clone(b.scope), name)
	for i, old := range b.renamed {
		path[i] = old
	}
	return strings.Join(path, ".")
}

// follow makes b emit nodes with the marks of n.
func (b *Builder) follow(n *Node) {
	b.scope = b.scope[:0]
	if n.Layer != "" {
		b.scope = append(b.scope, n.Layer)
	}
	b.block, b.backward, b.clone = n.Block, n.Backward, n.Clone
}

// At runs fn, marking nodes as belonging where n belongs.
func (b *Builder) At(n *Node, fn func()) {
	scope, renamed, block, backward, clone := b.scope, b.renamed, b.block, b.backward, b.clone
	b.scope, b.spare, b.renamed = b.spare[:0], nil, nil
	b.follow(n)
	fn()
	b.spare = b.scope[:0]
	b.scope, b.renamed, b.block, b.backward, b.clone = scope, renamed, block, backward, clone
}

// InBackward runs fn, marking nodes as part of the backward half.
func (b *Builder) InBackward(fn func()) {
	was := b.backward
	b.backward = true
	fn()
	b.backward = was
}

// AsClone runs fn, marking nodes as recomputation.
func (b *Builder) AsClone(fn func()) {
	was := b.clone
	b.clone = true
	fn()
	b.clone = was
}

// Now returns, during a [Func.Rewrite], the new value that replaces v of the old
// function.
func (b *Builder) Now(v *Value) *Value { return b.now(v) }

// Input declares a tensor that the host writes before each run.
func (b *Builder) Input(name string, t Type) *Value {
	if v := b.F.Input(name); v != nil {
		if !v.Type.Equal(t) {
			b.Failf("input %s is declared as %v and as %v", name, v.Type, t)
		}
		return v
	}
	if err := t.fits(); err != nil {
		b.Failf("input %s: %w", name, err)
	}
	v := b.F.NewValue(t)
	v.Name = name
	b.F.Inputs = append(b.F.Inputs, v)
	return v
}

// State declares a tensor that the program keeps between runs. Declaring the same name
// again returns the same value (shared weights).
func (b *Builder) State(s *State) *Value {
	if v := b.StateValue(s.Name); v != nil {
		if !v.Type.Equal(s.Type) {
			b.Failf("state %s is declared as %v and as %v", s.Name, v.Type, s.Type)
		}
		return v
	}
	if err := s.Type.fits(); err != nil {
		b.Failf("state %s: %w", s.Name, err)
	}
	v := b.F.NewValue(s.Type)
	v.Name, v.State = s.Name, s
	b.F.States = append(b.F.States, v)
	b.states[s.Name] = v
	return v
}

// StateValue returns the first version of the state of F called name, or nil. A deep
// model asks for thousands, so the builder keeps an index, which is rebuilt if F got
// states from elsewhere.
func (b *Builder) StateValue(name string) *Value {
	if b.states == nil || len(b.states) != len(b.F.States) {
		b.states = make(map[string]*Value, len(b.F.States))
		for _, v := range b.F.States {
			b.states[v.Name] = v
		}
	}
	return b.states[name]
}

// Param declares a trained weight named by the layer path. Weights of two or
// more dimensions decay, others (biases, norms) do not.
func (b *Builder) Param(name string, init Init, dims ...int) *Value {
	t := T(F32, dims...)
	if len(dims) > 1 && b.weights != Invalid {
		t.DType = b.weights
	}
	return b.State(&State{Name: b.Path(name), OldName: b.oldPath(name), Type: t, Role: Weight, Init: init, Decay: len(dims) > 1, Part: b.part})
}

// As runs f with p as the part of the weights that Param declares.
func (b *Builder) As(p Part, f func()) {
	was := b.part
	b.part = p
	f()
	b.part = was
}

// StoreMatrices makes Param keep weights of two or more dimensions in d: half
// the bytes to read for models that are only used, not trained.
func (b *Builder) StoreMatrices(d DType) { b.weights = d }

// Output names a result of the function.
func (b *Builder) Output(name string, v *Value) {
	b.F.Outputs = append(b.F.Outputs, Output{name, v})
}

// Emit appends a node and returns its results.
func (b *Builder) Emit(op Op, in ...*Value) []*Value {
	for i, v := range in {
		if v == nil {
			b.Failf("%s: operand %d is missing", op.Name(), i)
		}
	}
	n, err := b.F.NewNode(op, in...)
	if err != nil {
		panic(&Error{b.Layer(), err})
	}
	n.Layer, n.Block, n.Backward, n.Clone = b.Layer(), b.block, b.backward, b.clone
	b.F.Nodes = append(b.F.Nodes, n)
	return n.Out
}

// emit1 is Emit for operations with one result of interest.
func (b *Builder) emit1(op Op, in ...*Value) *Value { return b.Emit(op, in...)[0] }

// Stream returns a fresh random stream number, stable for a given order of building.
func (b *Builder) Stream() uint32 {
	b.streams++
	return uint32(b.streams)
}

// Init says how a state gets its first value. Values are drawn from the run's
// seed and the state's name, so they do not depend on the order of building.
type Init struct {
	Kind InitKind
	// A and B are the parameters of the kind.
	A, B float64
	// Scaling is a further parameter of InitRotary.
	Scaling RotaryScaling
}

// InitKind names a distribution.
type InitKind uint8

// The distributions.
const (
	InitConst   InitKind = iota // the constant A
	InitNormal                  // normal, mean A, standard deviation B
	InitUniform                 // uniform in [A, B)
	InitIota                    // 0, 1, 2, ...
	InitRotary                  // the rows of a [RotaryTable] of base A and Scaling
)

// Zeros fills with 0.
func Zeros() Init { return Init{} }

// Ones fills with 1.
func Ones() Init { return Const(1) }

// Const fills with v.
func Const(v float64) Init { return Init{Kind: InitConst, A: v} }

// Normal draws with mean 0 and standard deviation s.
func Normal(s float64) Init { return Init{Kind: InitNormal, B: s} }

// Uniform draws from [-a, a).
func Uniform(a float64) Init { return Init{Kind: InitUniform, A: -a, B: a} }

// XavierUniform is Glorot and Bengio 2010: U(-a, a), a = sqrt(6/(fanIn+fanOut)).
func XavierUniform(fanIn, fanOut int) Init {
	return Uniform(math.Sqrt(6 / float64(fanIn+fanOut)))
}

// XavierNormal is Glorot and Bengio 2010: N(0, 2/(fanIn+fanOut)).
func XavierNormal(fanIn, fanOut int) Init {
	return Normal(math.Sqrt(2 / float64(fanIn+fanOut)))
}

// KaimingNormal is He et al. 2015: N(0, 2/fan).
func KaimingNormal(fan int) Init { return Normal(math.Sqrt(2 / float64(fan))) }
