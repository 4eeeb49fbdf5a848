package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/offheap"
)

// Backend is the processor as a device.
type Backend struct {
	// Threads is how many workers compute; 0: as many as Go may use.
	Threads int
	// matmuls is set by UseLibrary; nil: snug's kernels compute all matmuls.
	matmuls *Matmuls
}

// Name implements [engine.Backend].
func (Backend) Name() string { return "the CPU" }

// Arithmetic implements engine.Backend.
func (Backend) Arithmetic() string { return "cpu kernels " + Kernels() }

// Traits implements [engine.Backend].
func (Backend) Traits() engine.Traits { return engine.CPU }

// Workspace implements [engine.Backend].
func (b Backend) Workspace(p *engine.Program) (int64, error) {
	x := &executable{p: p, on: b}
	need, err := x.compile()
	return need.Bytes(workers(b.Threads)), err
}

// Load implements [engine.Backend].
func (b Backend) Load(p *engine.Program) (engine.Image, error) {
	if p.Layout.Host.Bytes > 0 {
		return nil, errors.New("the program keeps states in the host's memory, which is what the processor computes in")
	}
	x := &executable{p: p, on: b}
	need, err := x.compile()
	if err != nil {
		return nil, err
	}
	if x.arena, err = offheap.Allocate(p.Layout.Bytes); err != nil {
		return nil, err
	}
	if x.machine, err = NewMachine(b.Threads, need); err != nil {
		_ = offheap.Release(x.arena)
		return nil, err
	}
	for r := range engine.Regions {
		x.bases[r] = unsafe.Add(unsafe.Pointer(unsafe.SliceData(x.arena)), p.Layout.Region(r).Offset)
	}
	if err := x.chooseMatmuls(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	for _, c := range x.code {
		if err := c.Bind(x.machine); err != nil {
			_ = x.Close()
			return nil, err
		}
	}
	return x, nil
}

// executable is a program loaded into memory.
type executable struct {
	p        *engine.Program
	on       Backend
	products *products // nil: snug's kernels compute all matmuls
	arena    []byte
	machine  *Machine
	code     map[string]*Code
	bases    [engine.Regions]unsafe.Pointer // base addresses of the regions, for the code; Inputs is that of the slot
	used     int64
}

// compile translates the program's functions into code.
func (x *executable) compile() (need Workspace, err error) {
	x.code = map[string]*Code{}
	if x.on.matmuls != nil && x.products == nil {
		x.products = &products{Matmuls: x.on.matmuls, plans: map[product]productPlans{}, times: map[string][2]float64{}}
	}
	for _, f := range x.p.Funcs {
		code, err := Compile(f.F, x.on.Threads, x.products, func(v *graph.Value) (Address, error) {
			at, err := x.p.Place(f, v)
			if err != nil {
				return Address{}, err
			}
			x.used = max(x.used, x.p.End(at))
			return Address{Base: &x.bases[at.Region], Offset: at.Offset}, nil
		})
		if err != nil {
			return need, fmt.Errorf("%s: %w", f.Name, err)
		}
		x.code[f.Name] = code
		need = need.Max(code.Workspace())
	}
	return need, nil
}

// chooseMatmuls measures what should compute matmuls, and compiles again with the choice.
// The workspace does not depend on it.
func (x *executable) chooseMatmuls() error {
	if x.products == nil {
		return nil
	}
	changed, err := x.products.choose(x.machine, x.arena)
	if err != nil || !changed {
		return err
	}
	_, err = x.compile()
	return err
}

func (x *executable) Run(fn string, slot int) error { return x.RunWatched(fn, slot, nil) }

// RunWatched runs a function; if w is not nil, it follows the run.
func (x *executable) RunWatched(fn string, slot int, w *engine.Watch) error {
	c := x.code[fn]
	if c == nil {
		return fmt.Errorf("the program has no function %q", fn)
	}
	x.bases[engine.Inputs] = unsafe.Pointer(unsafe.SliceData(x.Input(slot)))
	return c.Run(w)
}

// Sync has nothing to wait for: a run returns when it is done.
func (x *executable) Sync() error { return nil }

func (x *executable) Input(slot int) []byte { return x.span(x.p.Layout.Slot(slot)) }

func (x *executable) Outputs() []byte { return x.span(x.p.Layout.Outputs) }

func (x *executable) span(s engine.Span) []byte { return x.arena[s.Offset : s.Offset+s.Bytes] }

func (x *executable) Read(dst []byte, offset int64) error {
	copy(dst, x.arena[offset:offset+int64(len(dst))])
	return nil
}

func (x *executable) Write(offset int64, src []byte) error {
	copy(x.arena[offset:offset+int64(len(src))], src)
	return nil
}

// Guard implements [engine.Image].
func (x *executable) Guard(before func(states []string) error) { x.machine.guard = before }

// Peek implements [engine.Image]: a run changes nothing that the guard has not granted.
func (x *executable) Peek(dst []byte, offset int64) error { return x.Read(dst, offset) }

func (x *executable) Observe(o *engine.Observer) { x.machine.observer = o }

// Hold keeps the workers awake between runs until release is called.
func (x *executable) Hold() (release func()) { return x.machine.Hold() }

func (x *executable) Used() int64 { return x.used }

func (x *executable) Close() error {
	err := x.machine.Close()
	if e := offheap.Release(x.arena); err == nil {
		err = e
	}
	return err
}
