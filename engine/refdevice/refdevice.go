// Package refdevice runs programs by the definitions of their operations (engine/ref):
// hundreds of times slower than the CPU's kernels, and as accurate as float64 allows. It
// is for checks, and it keeps everything built on engine honest about devices: its memory
// is out of the host's reach, inputs and outputs are copied, runs continue while the host
// does something else, and its traits differ from the CPU's.
package refdevice

import (
	"errors"
	"fmt"
	"sync"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/ref"
)

// Traits differ from those of every other device: wide alignment, and only elementwise
// loops are fused.
var Traits = engine.Traits{
	Name: "reference", Align: 256,
	Fusion: pass.Fusion{Registers: graph.MaxRegisters, Results: graph.MaxBodyResults},
}

// Backend is the reference as a device.
type Backend struct{}

// Name implements [engine.Backend].
func (Backend) Name() string { return "the reference interpreter" }

// Arithmetic implements [engine.Backend].
func (Backend) Arithmetic() string { return "the float64 reference" }

// Traits implements [engine.Backend].
func (Backend) Traits() engine.Traits { return Traits }

// Workspace implements [engine.Backend]: there are no kernels that need any.
func (Backend) Workspace(*engine.Program) (int64, error) { return 0, nil }

// Load implements [engine.Backend].
func (Backend) Load(p *engine.Program) (engine.Image, error) {
	x := &image{p: p, arena: make([]byte, p.Layout.Bytes), host: make([]byte, p.Layout.Host.Bytes), outputs: make([]byte, p.Layout.Outputs.Bytes), code: map[string][]step{}}
	for s := range x.inputs {
		x.inputs[s] = make([]byte, p.Layout.InputStride)
	}
	for _, f := range p.Funcs {
		steps, err := x.compile(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		x.code[f.Name] = steps
	}
	x.queue, x.done = make(chan job, queued), make(chan struct{})
	go x.work()
	return x, nil
}

// queued is how many runs may wait.
const queued = 16

// step is a node and the places of its values in the arena.
type step struct {
	node    *graph.Node
	in, out []tensor
	changes []string // the states that it writes
}

// tensor is a value in the arena. An input's place depends on the slot.
type tensor struct {
	at engine.Place
	t  graph.Type
}

// job is the device's next task: a run, or a signal to whatever waits for it.
type job struct {
	fn   string
	slot int
	sync chan error
}

type image struct {
	p        *engine.Program
	arena    []byte
	host     []byte                       // of offloaded states
	inputs   [engine.Slots][]byte         // the host's copies
	reading  [engine.Slots]sync.WaitGroup // runs that read them
	outputs  []byte
	code     map[string][]step
	used     int64
	observer *engine.Observer
	guard    func(states []string) error
	queue    chan job
	done     chan struct{}
}

// compile finds the places of the values of f.
func (x *image) compile(f *engine.Func) ([]step, error) {
	places := func(vs []*graph.Value) ([]tensor, error) {
		ts := make([]tensor, len(vs))
		for i, v := range vs {
			at, err := x.p.Place(f, v)
			if err != nil {
				return nil, err
			}
			x.used = max(x.used, x.p.End(at))
			ts[i] = tensor{at, v.Type}
		}
		return ts, nil
	}
	var steps []step
	for _, n := range f.F.Nodes {
		if graph.IsView(n.Op) {
			continue
		}
		in, err := places(n.In)
		if err != nil {
			return nil, err
		}
		out, err := places(n.Out)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{n, in, out, n.Changes()})
	}
	return steps, nil
}

// work is the device's goroutine: it runs what is queued, and nothing more once a run has
// failed.
func (x *image) work() {
	defer close(x.done)
	var failed error
	for j := range x.queue {
		if j.sync != nil {
			j.sync <- failed
			continue
		}
		if failed == nil {
			failed = x.run(j.fn, j.slot, nil)
		}
		x.reading[j.slot].Done()
	}
}

// run computes a function on the inputs of a slot as they are now.
func (x *image) run(fn string, slot int, o *engine.Observer) error {
	copy(x.span(x.p.Layout.Slot(slot)), x.inputs[slot])
	for _, s := range x.code[fn] {
		if x.guard != nil && len(s.changes) > 0 {
			if err := x.guard(s.changes); err != nil {
				return err
			}
		}
		if o != nil && o.Before != nil {
			o.Before(s.node)
		}
		in := make([][]float64, len(s.in))
		for i, t := range s.in {
			in[i] = x.view(t, slot).Float64s()
		}
		out, err := ref.Eval(s.node, in, ref.Rounded)
		if err != nil {
			return fmt.Errorf("%s: %s (%s): %w", fn, s.node.Op.Name(), s.node.Layer, err)
		}
		for i, t := range s.out {
			x.view(t, slot).SetFloat64s(out[i])
		}
		if o != nil && o.After != nil && !o.After(s.node, 0) {
			break
		}
	}
	copy(x.outputs, x.span(x.p.Layout.Outputs))
	return nil
}

// view returns a value in place in the arena.
func (x *image) view(t tensor, slot int) engine.Tensor {
	base := x.p.Layout.Region(t.at.Region).Offset
	if t.at.Region == engine.Inputs {
		base = x.p.Layout.Slot(slot).Offset
	}
	return engine.Tensor{Type: t.t, Data: x.span(engine.Span{Offset: base + t.at.Offset, Bytes: t.at.Bytes})}
}

// Run queues a run; an observed one is done at once, on the caller's goroutine.
func (x *image) Run(fn string, slot int) error {
	if x.code[fn] == nil && x.p.Func(fn) == nil {
		return fmt.Errorf("the program has no function %q", fn)
	}
	if x.observer == nil {
		x.reading[slot].Add(1)
		x.queue <- job{fn: fn, slot: slot}
		return nil
	}
	if err := x.Sync(); err != nil {
		return err
	}
	return x.run(fn, slot, x.observer)
}

func (x *image) Sync() error {
	done := make(chan error)
	x.queue <- job{sync: done}
	return <-done
}

func (x *image) Input(slot int) []byte {
	x.reading[slot].Wait()
	return x.inputs[slot]
}

func (x *image) Outputs() []byte { return x.outputs }

func (x *image) span(s engine.Span) []byte {
	if from := s.Offset - x.p.Layout.Host.Offset; from >= 0 && s.Bytes > 0 {
		return x.host[from : from+s.Bytes]
	}
	return x.arena[s.Offset : s.Offset+s.Bytes]
}

func (x *image) Read(dst []byte, offset int64) error {
	err := x.Sync()
	copy(dst, x.span(engine.Span{Offset: offset, Bytes: int64(len(dst))}))
	return err
}

func (x *image) Write(offset int64, src []byte) error {
	err := x.Sync()
	copy(x.span(engine.Span{Offset: offset, Bytes: int64(len(src))}), src)
	return err
}

// Guard waits for the runs so far: the guard does not apply to them.
func (x *image) Guard(before func(states []string) error) {
	_ = x.Sync() // the next run returns its error too
	x.guard = before
}

// Peek reads past the queue, as a copy engine does.
func (x *image) Peek(dst []byte, offset int64) error {
	copy(dst, x.span(engine.Span{Offset: offset, Bytes: int64(len(dst))}))
	return nil
}

func (x *image) Observe(o *engine.Observer) { x.observer = o }

func (x *image) Used() int64 { return x.used }

func (x *image) Close() error {
	if x.queue == nil {
		return errors.New("the program is closed")
	}
	close(x.queue)
	<-x.done
	x.queue = nil
	return nil
}
