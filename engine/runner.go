package engine

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Tensor is the host's view of a value of an armed program: it shares the
// program's memory.
type Tensor struct {
	Name string
	Type graph.Type
	Data []byte
}

// F32 views the elements of an F32 tensor.
func (t Tensor) F32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/4)
}

// I32 views the elements of an I32 tensor.
func (t Tensor) I32() []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/4)
}

// U16 views the elements of a 16-bit tensor.
func (t Tensor) U16() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/2)
}

// Runner is an armed program.
type Runner struct {
	p       *Program
	arena   []byte
	machine *cpu.Machine
	code    map[string]*cpu.Code
	// The addresses of the regions, for the code.
	states, inputs, outputs, temps unsafe.Pointer
	used                           int64
	// slot is the set of inputs that the last run read.
	slot int
}

// codes compiles the program's functions for workers (0: as many as Go may use).
func (r *Runner) codes(workers int) (map[string]*cpu.Code, cpu.Workspace, error) {
	p := r.p
	var need cpu.Workspace
	codes := map[string]*cpu.Code{}
	for _, f := range p.Funcs {
		code, err := cpu.Compile(f.F, workers, func(v *graph.Value) (cpu.Address, error) {
			return r.address(f, v)
		})
		if err != nil {
			return nil, need, fmt.Errorf("%s: %w", f.Name, err)
		}
		codes[f.Name] = code
		need = need.Max(code.Workspace())
	}
	return codes, need, nil
}

// address is where v of f lies.
func (r *Runner) address(f *Func, v *graph.Value) (cpu.Address, error) {
	l := &r.p.Layout
	bytes := v.Type.Bytes()
	at := func(base *unsafe.Pointer, region Span, s Span) (cpu.Address, error) {
		if bytes > s.Bytes {
			return cpu.Address{}, fmt.Errorf("%s is larger than its place", v.Label())
		}
		r.used = max(r.used, region.Offset+s.Offset+align(bytes))
		return cpu.Address{Base: base, Offset: s.Offset}, nil
	}
	root := graph.Storage(v)
	for _, o := range f.F.Outputs {
		if s, ok := l.Output[f.Name+"/"+o.Name]; ok && graph.Storage(o.Value) == root {
			return at(&r.outputs, l.Outputs, s)
		}
	}
	switch {
	case root.State != nil:
		return at(&r.states, l.States, l.State[root.State.Name])
	case root.Node == nil:
		s, ok := l.Input[root.Name]
		if !ok {
			return cpu.Address{}, fmt.Errorf("input %s has no place", root.Name)
		}
		region := l.Inputs
		region.Offset += (Slots - 1) * l.InputStride
		return at(&r.inputs, region, s)
	}
	off := f.Placement.Offset[root.ID]
	if off < 0 {
		return cpu.Address{}, fmt.Errorf("%s was not placed", v.Label())
	}
	return at(&r.temps, l.Temps, Span{off, bytes})
}

// Workspace is what the program's kernels need on the CPU beside the arena, in
// bytes, with the given number of workers.
func (p *Program) Workspace(workers int) (int64, error) {
	r := &Runner{p: p}
	_, need, err := r.codes(workers)
	return need.Bytes(workers), err
}

// Arm allocates the arena, starts workers (0: one for each processor) and
// binds the functions: from here on nothing is allocated.
func (p *Program) Arm(workers int) (*Runner, error) {
	r := &Runner{p: p}
	codes, need, err := r.codes(workers)
	if err != nil {
		return nil, err
	}
	if r.arena, err = cpu.Allocate(p.Layout.Bytes); err != nil {
		return nil, err
	}
	if r.machine, err = cpu.NewMachine(workers, need); err != nil {
		_ = cpu.Release(r.arena)
		return nil, err
	}
	base := unsafe.Pointer(unsafe.SliceData(r.arena))
	l := &p.Layout
	r.states = unsafe.Add(base, l.States.Offset)
	r.inputs = unsafe.Add(base, l.Inputs.Offset)
	r.outputs = unsafe.Add(base, l.Outputs.Offset)
	r.temps = unsafe.Add(base, l.Temps.Offset)
	for _, c := range codes {
		if err := c.Bind(r.machine); err != nil {
			_ = r.Close()
			return nil, err
		}
	}
	r.code = codes
	return r, nil
}

// Close stops the workers and frees the arena; tensors must not be used after.
func (r *Runner) Close() error {
	err := r.machine.Close()
	if e := cpu.Release(r.arena); err == nil {
		err = e
	}
	return err
}

// Program is what was armed.
func (r *Runner) Program() *Program { return r.p }

// Workers is the number of workers.
func (r *Runner) Workers() int { return r.machine.Workers() }

// ArenaUsed is the highest byte of the arena that any kernel was given, to
// hold against Layout.Bytes.
func (r *Runner) ArenaUsed() int64 { return r.used }

// Profile, when fn is not nil, tells it how long each node of a run takes.
func (r *Runner) Profile(fn func(n *graph.Node, d time.Duration)) { r.machine.Profile = fn }

// Hold keeps the workers awake between runs until release is called; it suits
// many short runs in a row. It must not be nested.
func (r *Runner) Hold() (release func()) { return r.machine.Hold() }

// Run runs a function on the inputs of a slot.
func (r *Runner) Run(fn string, slot int) error {
	c := r.code[fn]
	if c == nil {
		return fmt.Errorf("the program has no function %q", fn)
	}
	r.setSlot(slot)
	return c.Run()
}

// setSlot chooses the input buffers that the code reads.
func (r *Runner) setSlot(slot int) {
	l := &r.p.Layout
	r.slot = slot
	r.inputs = unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.arena)), l.Inputs.Offset+int64(slot)*l.InputStride)
}

func (r *Runner) view(name string, t graph.Type, region, s Span) Tensor {
	at := region.Offset + s.Offset
	return Tensor{name, t, r.arena[at : at+t.Bytes() : at+t.Bytes()]}
}

// slotSpan is the region of one set of inputs.
func (r *Runner) slotSpan(slot int) Span {
	l := &r.p.Layout
	return Span{l.Inputs.Offset + int64(slot)*l.InputStride, l.InputStride}
}

// Input is the buffer of an input in a slot; ok is false if there is none.
func (r *Runner) Input(slot int, name string) (t Tensor, ok bool) {
	i := slices.IndexFunc(r.p.Inputs, func(v *graph.Value) bool { return v.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return r.view(name, r.p.Inputs[i].Type, r.slotSpan(slot), r.p.Layout.Input[name]), true
}

// Output is a result of a function, valid after its run and until the next. A
// result that is a state or an input, or a view of one, is read where that lies.
func (r *Runner) Output(fn, name string) (t Tensor, ok bool) {
	f := r.p.Func(fn)
	if f == nil {
		return Tensor{}, false
	}
	v := f.F.Output(name)
	if v == nil {
		return Tensor{}, false
	}
	l := &r.p.Layout
	switch root := graph.Storage(v); {
	case root.State != nil:
		return r.view(name, v.Type, l.States, l.State[root.State.Name]), true
	case root.Node == nil:
		return r.view(name, v.Type, r.slotSpan(r.slot), l.Input[root.Name]), true
	}
	return r.view(name, v.Type, l.Outputs, l.Output[fn+"/"+name]), true
}

// State is a tensor that the program keeps.
func (r *Runner) State(name string) (t Tensor, ok bool) {
	i := slices.IndexFunc(r.p.States, func(s *graph.State) bool { return s.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	l := &r.p.Layout
	return r.view(name, r.p.States[i].Type, l.States, l.State[name]), true
}

// Initialize gives every state its first value. Random values depend on seed
// and the state's name alone.
func (r *Runner) Initialize(seed uint64) {
	for _, s := range r.p.States {
		t, _ := r.State(s.Name)
		fill(t, s, seed)
	}
}

func fill(t Tensor, s *graph.State, seed uint64) {
	if !s.Type.DType.Float() {
		x := t.I32()
		for i := range x {
			x[i] = int32(s.Init.A)
			if s.Init.Kind == graph.InitIota {
				x[i] = int32(i)
			}
		}
		return
	}
	x := make([]float32, s.Type.Shape.Elems())
	if s.Type.DType == graph.F32 {
		x = t.F32()
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Name)) // a hash's Write cannot fail
	a, b := float32(s.Init.A), float32(s.Init.B)
	switch s.Init.Kind {
	case graph.InitNormal:
		simd.NormalF32(x, seed, h.Sum64(), 0)
		simd.MulScalar(x, x, b)
		simd.AddScalar(x, x, a)
	case graph.InitUniform:
		simd.UniformF32(x, seed, h.Sum64(), 0)
		simd.MulScalar(x, x, b-a)
		simd.AddScalar(x, x, a)
	case graph.InitIota:
		for i := range x {
			x[i] = float32(i)
		}
	case graph.InitRotary:
		dims := s.Type.Shape.Last()
		for t := range s.Type.Shape.Rows() {
			cpu.RotaryRow(x[t*dims:(t+1)*dims], t, s.Init.A)
		}
	default:
		simd.Fill(x, a)
	}
	switch s.Type.DType {
	case graph.BF16:
		simd.F32ToBF16(t.U16(), x)
	case graph.F16:
		simd.F32ToF16(t.U16(), x)
	}
}
