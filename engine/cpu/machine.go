// Package cpu runs programs on the processor: the default device and the
// reference for every other.
//
// It promises: no allocation per run; memory is limited to the planned arena and the
// workspace that [Code.Workspace] states; and results that do not depend on the number of
// workers, because work is cut into fixed tasks and no sum is ever split by worker.
package cpu

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/offheap"
)

// Machine is a set of workers and their workspace, shared by the functions of
// a program.
type Machine struct {
	pool     *pool
	memory   []byte
	shared   []byte
	scratch  [][]byte
	fault    atomic.Pointer[error]
	held     bool                        // the workers are awake between runs
	observer *engine.Observer            // nil: no observer
	guard    func(states []string) error // called before a node changes states; nil: none
}

// Workspace is what a program needs in addition to its arena, in bytes.
type Workspace struct {
	Shared int64 // once
	Worker int64 // for each worker
}

// Max is the larger of both needs.
func (w Workspace) Max(v Workspace) Workspace {
	return Workspace{max(w.Shared, v.Shared), max(w.Worker, v.Worker)}
}

// Bytes is the total for a number of workers.
func (w Workspace) Bytes(workers int) int64 {
	return roundUp(w.Shared) + int64(workers)*roundUp(w.Worker)
}

// page separates the workspaces of workers, so that no cache line is shared.
const page = 4096

func roundUp(n int64) int64 { return (n + page - 1) / page * page }

// workers is the number of workers for a requested number of threads: 0 means one
// for each processor that Go may use.
func workers(threads int) int {
	if threads <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return threads
}

// NewMachine starts workers for threads with the given workspace.
func NewMachine(threads int, w Workspace) (*Machine, error) {
	n := workers(threads)
	mem, err := offheap.Allocate(w.Bytes(n))
	if err != nil {
		return nil, err
	}
	m := &Machine{pool: newPool(n), memory: mem}
	m.shared, mem = mem[:w.Shared:w.Shared], mem[roundUp(w.Shared):]
	for range n {
		m.scratch = append(m.scratch, mem[:w.Worker:w.Worker])
		mem = mem[roundUp(w.Worker):]
	}
	return m, nil
}

// Workers is the number of workers.
func (m *Machine) Workers() int { return m.pool.workers }

// Close ends the workers and frees the workspace.
func (m *Machine) Close() error {
	m.pool.close()
	return offheap.Release(m.memory)
}

// Hold keeps the workers awake between runs until release is called: for many short runs
// in a row, where waking them would cost as much as the runs themselves.
func (m *Machine) Hold() (release func()) {
	m.held = true
	m.pool.start()
	return func() {
		m.held = false
		m.pool.stop()
	}
}

// fail records the first error of a run; kernels cannot return one.
func (m *Machine) fail(err error) { m.fault.CompareAndSwap(nil, &err) }

// ref is the address of a value: an offset from a base that is known once the program is
// loaded.
type ref struct {
	base *unsafe.Pointer
	off  uintptr
	n    int // elements
}

// from returns r from a byte on, for [ref.bytes].
func (r ref) from(off int) ref { return ref{r.base, r.off + uintptr(off), 0} }

func (r ref) ptr() unsafe.Pointer { return unsafe.Add(*r.base, r.off) }
func (r ref) f32() []float32      { return unsafe.Slice((*float32)(r.ptr()), r.n) }
func (r ref) u16() []uint16       { return unsafe.Slice((*uint16)(r.ptr()), r.n) }
func (r ref) i32() []int32        { return unsafe.Slice((*int32)(r.ptr()), r.n) }
func (r ref) u8() []uint8         { return unsafe.Slice((*uint8)(r.ptr()), r.n) }
func (r ref) scalar() float32     { return *(*float32)(r.ptr()) }

// phase is one parallel region.
type phase struct {
	tasks int
	run   func(task, worker int)
}

// nodeCode is a node with the code that runs it.
type nodeCode struct {
	node    *graph.Node
	phases  []phase
	changes []string // the states that it writes
	uses    engine.Uses
}

// Code is a function ready to run.
type Code struct {
	m     *Machine // set by Bind
	nodes []nodeCode
	need  Workspace
}

// Workspace is the workspace that the code needs.
func (c *Code) Workspace() Workspace { return c.need }

// Bind attaches the code to the machine that will run it.
func (c *Code) Bind(m *Machine) error {
	if int64(len(m.shared)) < c.need.Shared || int64(len(m.scratch[0])) < c.need.Worker {
		return fmt.Errorf("the machine's workspace is smaller than the %d bytes and %d per worker that the code needs", c.need.Shared, c.need.Worker)
	}
	c.m = m
	return nil
}

// Run executes the code once; if w is not nil, it follows the run.
func (c *Code) Run(w *engine.Watch) error {
	m := c.m
	m.fault.Store(nil)
	if !m.held {
		m.pool.start()
		defer m.pool.stop()
	}
	for i := range c.nodes {
		s := &c.nodes[i]
		if w != nil && s.uses.Begins != nil {
			if err := w.Begins(s.uses.Begins); err != nil {
				return err
			}
		}
		if m.guard != nil && len(s.changes) > 0 {
			if err := m.guard(s.changes); err != nil {
				return err
			}
		}
		if o := m.observer; o != nil {
			if goOn, err := c.observed(s, o); err != nil || !goOn {
				return err
			}
		} else {
			for _, p := range s.phases {
				m.pool.region(p.tasks, p.run)
			}
		}
		if w != nil && s.uses.Ends != nil {
			if err := errors.Join(m.failure(), w.Ends(s.uses.Ends)); err != nil {
				return err
			}
		}
	}
	return m.failure()
}

// observed runs one step for an observer, which may end the run.
func (c *Code) observed(s *nodeCode, o *engine.Observer) (goOn bool, err error) {
	if o.Before != nil {
		o.Before(s.node)
	}
	began := time.Now()
	for _, p := range s.phases {
		c.m.pool.region(p.tasks, p.run)
	}
	took := time.Since(began)
	if err := c.m.failure(); err != nil {
		return false, err
	}
	return o.After == nil || o.After(s.node, took), nil
}

// failure is the first error of the run.
func (m *Machine) failure() error {
	if err := m.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Address is the address of a value, for the compiler.
type Address struct {
	// Base points to the address of the value's region, set when the program is
	// loaded; Offset is the bytes from there.
	Base   *unsafe.Pointer
	Offset int64
}

// Compile translates f, with its values at the addresses that at returns, for a machine
// of that many threads.
func Compile(f *graph.Func, threads int, by *products, at func(v *graph.Value) (Address, error)) (*Code, error) {
	if unconfigured != nil {
		return nil, unconfigured
	}
	c := &compiler{code: &Code{}, workers: workers(threads), products: by, at: at}
	uses := engine.GradientUses(f)
	for _, n := range f.Nodes {
		if graph.IsFree(n.Op) {
			continue
		}
		phases, err := c.lower(n)
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", n.Op.Name(), n.Layer, err)
		}
		c.code.nodes = append(c.code.nodes, nodeCode{n, phases, n.Changes(), uses[n]})
	}
	return c.code, nil
}

type compiler struct {
	code    *Code
	workers int
	// products can be computed by a library; nil: there is none.
	products *products
	at       func(v *graph.Value) (Address, error)
}

func (c *compiler) ref(v *graph.Value) ref {
	a, err := c.at(v)
	if err != nil {
		panic(lowerError{err})
	}
	return ref{a.Base, uintptr(a.Offset), int(v.Shape().Elems())}
}

func (c *compiler) refs(vs []*graph.Value) []ref {
	rs := make([]ref, len(vs))
	for i, v := range vs {
		rs[i] = c.ref(v)
	}
	return rs
}

// lowerError carries an error out of nested lowering.
type lowerError struct{ err error }

// worker is the scratch of worker w.
func (c *Code) worker(w int) []byte { return c.m.scratch[w] }

// need records the workspace of a node.
func (c *compiler) need(shared, worker int) {
	c.code.need = c.code.need.Max(Workspace{int64(shared), int64(worker)})
}

// floats is n floats of scratch from byte offset off.
func floats(scratch []byte, off, n int) []float32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&scratch[off])), n)
}

// ints is n integers of scratch.
func ints(scratch []byte, n int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(&scratch[0])), n)
}

// grain is how many elements of a cheap function make a task worth its region.
const grain = 16 << 10

// mostTasks bounds the tasks of a cheap function: enough for any number of workers, few
// enough that each covers a long range of memory, which suits prefetching.
const mostTasks = 128

// chunks divides n items into tasks of at least least items.
func chunks(n, least int) (tasks, size int) {
	size = max(1, least, n/mostTasks)
	return max(1, (n+size-1)/size), size
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }
