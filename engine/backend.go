package engine

import (
	"time"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Backend is a kind of device with its settings: it loads programs.
type Backend interface {
	// Name is what messages call the device.
	Name() string
	// Arithmetic names what decides how results are rounded: the same one gives
	// the same bits on every machine, others agree to rounding.
	Arithmetic() string
	// Traits are what programs for the device are compiled with.
	Traits() Traits
	// Workspace is what the program's kernels need next to the arena, in bytes.
	Workspace(p *Program) (int64, error)
	// Load allocates the arena, all zeros, and makes the program's functions
	// ready to run. From here on nothing is allocated.
	Load(p *Program) (Image, error)
}

// Image is a program loaded on a device. Each region of the arena has a
// contract of its own:
//
//   - inputs and outputs are host views, of the arena itself or of a copy made with each run;
//   - states are read and written by copying;
//   - temporaries can be read by an observer, between two nodes.
//
// All calls come from one goroutine at a time, but for Input and Peek: while one goroutine
// runs functions on a slot, another may fill the other, and a third may peek at states. An
// image that follows runs (see [Watch]) is also read and written meanwhile, where a run has ended
// with gradients.
type Image interface {
	// Run runs a function on the inputs of a slot. It may return before the
	// device has finished, and later calls run after it.
	Run(fn string, slot int) error
	// Sync waits for all runs and reports what went wrong in them.
	Sync() error
	// Input is the host's view of the inputs of a slot. It waits for the runs that
	// read them.
	Input(slot int) []byte
	// Outputs is the host's view of the outputs, valid after Sync.
	Outputs() []byte
	// Read and Write copy bytes of the arena, after all runs so far. From the end of the arena
	// on are the offloaded states, in the host's memory.
	Read(dst []byte, offset int64) error
	Write(offset int64, src []byte) error
	// Guard sets who is asked before a run changes states, from the runs after all so far
	// on; nil for nobody. The node that changes them runs once before has returned, and
	// not at all after an error, which is the run's. Any goroutine of the device may call it.
	Guard(before func(states []string) error)
	// Peek copies bytes of states as they are after the runs before Guard, while later
	// runs go on. The caller knows that they have not been changed since: Guard says so
	// beforehand.
	Peek(dst []byte, offset int64) error
	// Observe sets who watches the runs from now on; nil for nobody.
	Observe(o *Observer)
	// Used is the highest byte of the arena that any kernel was given, to compare
	// with Layout.Bytes.
	Used() int64
	// Close frees the device's memory.
	Close() error
}

// Observer watches runs node by node. Between nodes the device waits, so that
// values can be read ([Executable.ReadValue]).
type Observer struct {
	// Before, when set, is called before a node runs.
	Before func(n *graph.Node)
	// After, when set, is called when a node has run, with the time it took;
	// false ends the run there.
	After func(n *graph.Node, took time.Duration) bool
}

// Traits are what the compiler must know about a device: plain data, so that a
// program can be planned for an absent device.
type Traits struct {
	// Name is the kind of device.
	Name string
	// Align is the alignment of every tensor in the arena, in bytes.
	Align int64
	// Fusion is what its kernels can fuse.
	Fusion pass.Fusion
}

// CPU are the traits of the processor. Tensors begin at a cache line, which is a
// full vector register too.
var CPU = Traits{Name: "cpu", Align: 64, Fusion: pass.FuseAll}

// CUDA are the traits of NVIDIA cards. Tensors begin where cudaMalloc's do, so
// that every vector load is aligned and rows begin at a memory sector. A matmul
// that recomputed GELU as it reads would do so in every tile of the other
// operand, which costs a Turing card more than storing the result once.
var CUDA = Traits{Name: "cuda", Align: 256, Fusion: withoutOperands(pass.FuseAll)}

func withoutOperands(f pass.Fusion) pass.Fusion {
	f.Operands = false
	return f
}
