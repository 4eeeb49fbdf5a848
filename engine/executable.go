package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Executable is a program loaded on a device, with access to its values by name.
type Executable struct {
	p     *Program
	on    Backend
	image Image
	// guard is called before states change; nil: none.
	guard func(states []string) error
	// slot is the set of inputs that the last run read.
	slot int
	// unrounded means that weights have changed without the states that hold them in 16 bits: some of
	// the functions read these, some change a weight alone.
	unrounded                   bool
	readsRounded, leavesRounded map[string]bool
	// copies hold the outputs that are states, by "function/name".
	copies map[string][]byte
}

// Load loads the program on a device: from here on nothing is allocated.
func (p *Program) Load(b Backend) (*Executable, error) {
	if want := b.Traits().Align; p.Traits.Align%want != 0 {
		return nil, fmt.Errorf("the program was compiled for %s, which aligns tensors to %d bytes; %s needs %d", p.Traits.Name, p.Traits.Align, b.Name(), want)
	}
	image, err := b.Load(p)
	if err != nil {
		return nil, err
	}
	x := &Executable{p: p, on: b, image: image, copies: map[string][]byte{}, unrounded: true, readsRounded: map[string]bool{}, leavesRounded: map[string]bool{}}
	for _, f := range p.Funcs {
		for _, o := range f.F.Outputs {
			if graph.Storage(o.Value).State != nil {
				x.copies[f.Name+"/"+o.Name] = make([]byte, o.Value.Type.Bytes())
			}
		}
		x.lookForRounded(f)
	}
	return x, nil
}

// lookForRounded takes note of whether a function reads weights in 16 bits, and whether it changes a weight that is
// kept so without that.
func (x *Executable) lookForRounded(f *Func) {
	if f.Name == FuncRound {
		return
	}
	x.readsRounded[f.Name] = slices.ContainsFunc(f.F.States, func(v *graph.Value) bool { return v.State.Role == graph.Rounded })
	changes := map[string]bool{}
	for _, n := range f.F.Nodes {
		for _, name := range n.Changes() {
			changes[name] = true
		}
	}
	for name := range changes {
		if r := pass.RoundedName(name); x.p.State(r) != nil && !changes[r] {
			x.leavesRounded[f.Name] = true
		}
	}
}

// LoadForward compiles functions without a backward half for a device and loads
// them on it, to evaluate, predict or generate with.
func LoadForward(on Backend, o CompileOptions, funcs ...*graph.Func) (*Executable, error) {
	traits := on.Traits()
	o.Traits = &traits
	p, err := CompileForward(o, funcs...)
	if err != nil {
		return nil, err
	}
	return p.Load(on)
}

// Close frees the device's memory; tensors must not be used afterwards. It first calls
// the guard for all states.
func (x *Executable) Close() error {
	return errors.Join(x.changeAll(), x.image.Close())
}

// Program returns the program that was loaded.
func (x *Executable) Program() *Program { return x.p }

// Backend returns the device that the program was loaded on.
func (x *Executable) Backend() Backend { return x.on }

// ArenaUsed returns the highest byte of the arena that any kernel was given, to compare
// with Layout.Bytes.
func (x *Executable) ArenaUsed() int64 { return x.image.Used() }

// Arithmetic identifies what decides how the program's results are rounded: the device's
// arithmetic, with any choices made when the program was loaded.
func (x *Executable) Arithmetic() string {
	if a, ok := x.image.(interface{ Arithmetic() string }); ok {
		return a.Arithmetic()
	}
	return x.on.Arithmetic()
}

// Matmuls returns a record of what computes each matmul, if that was chosen when the
// program was loaded, and a readable text; nil and empty if there was no choice.
func (x *Executable) Matmuls() (record []byte, text string) {
	if m, ok := x.image.(interface{ Matmuls() ([]byte, string) }); ok {
		return m.Matmuls()
	}
	return nil, ""
}

// Observe sets the observer of the runs from now on; nil for none.
func (x *Executable) Observe(o *Observer) { x.image.Observe(o) }

// Hold keeps the device awake between runs until release is called; it suits
// many short runs in a row. It must not be nested.
func (x *Executable) Hold() (release func()) {
	if h, ok := x.image.(interface{ Hold() (release func()) }); ok {
		return h.Hold()
	}
	return func() {}
}

// Run runs a function on the inputs of a slot. It may return before the device
// has finished: [Executable.Output] and [Executable.Sync] wait.
func (x *Executable) Run(fn string, slot int) error {
	if err := x.prepare(fn, slot); err != nil {
		return err
	}
	return x.image.Run(fn, slot)
}

// prepare is what precedes a run: weights that something else has written are rounded.
func (x *Executable) prepare(fn string, slot int) error {
	x.slot = slot
	if x.unrounded && x.readsRounded[fn] {
		x.unrounded = false
		if err := x.image.Run(FuncRound, slot); err != nil {
			return err
		}
	}
	x.unrounded = x.unrounded || x.leavesRounded[fn]
	return nil
}

// Sync waits for all runs and reports what went wrong in them.
func (x *Executable) Sync() error { return x.image.Sync() }

// Input returns the buffer of an input in a slot, once the runs that read the slot are
// done; ok is false if there is none.
func (x *Executable) Input(slot int, name string) (t Tensor, ok bool) {
	i := slices.IndexFunc(x.p.Inputs, func(v *graph.Value) bool { return v.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return view(x.p.Inputs[i].Type, name, x.image.Input(slot), x.p.Layout.Input[name].Offset), true
}

// Output returns a result of a function, valid until the next run. A result that is an
// input, or a view of one, is read in place.
func (x *Executable) Output(fn, name string) (Tensor, error) {
	f := x.p.Func(fn)
	if f == nil {
		return Tensor{}, fmt.Errorf("the program has no function %q", fn)
	}
	v := f.F.Output(name)
	if v == nil {
		return Tensor{}, fmt.Errorf("function %s has no output %q", fn, name)
	}
	if err := x.Sync(); err != nil {
		return Tensor{}, err
	}
	l := &x.p.Layout
	switch root := graph.Storage(v); {
	case root.State != nil:
		data := x.copies[fn+"/"+name]
		return Tensor{name, v.Type, data}, x.image.Read(data, x.p.StateAt(root.State))
	case root.Node == nil:
		return view(v.Type, name, x.image.Input(x.slot), l.Input[root.Name].Offset), nil
	}
	return view(v.Type, name, x.image.Outputs(), l.Output[fn+"/"+name].Offset), nil
}

// OutputF32 returns the elements of an F32 result, as [Executable.Output] does.
func (x *Executable) OutputF32(fn, name string) ([]float32, error) {
	t, err := x.Output(fn, name)
	if err != nil {
		return nil, err
	}
	if t.Type.DType != graph.F32 {
		return nil, fmt.Errorf("output %s of %s is %v, not F32", name, fn, t.Type)
	}
	return t.F32(), nil
}

func view(t graph.Type, name string, region []byte, at int64) Tensor {
	return Tensor{name, t, region[at : at+t.Bytes() : at+t.Bytes()]}
}
