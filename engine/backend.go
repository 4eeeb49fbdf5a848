package engine

import (
	"time"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Backend is a kind of device with its settings: it loads programs.
type Backend interface {
	// Name is the device's name in messages.
	Name() string
	// Arithmetic identifies what decides how results are rounded: the same name means the
	// same bits on every machine, different names agree up to rounding.
	Arithmetic() string
	// Traits are what programs for the device are compiled with.
	Traits() Traits
	// Workspace is what the program's kernels need in addition to the arena, in bytes.
	Workspace(p *Program) (int64, error)
	// Load allocates the arena, all zeros, and makes the program's functions
	// ready to run. From here on nothing is allocated.
	Load(p *Program) (Image, error)
}

// Image is a program loaded on a device. Each region of the arena has its own contract:
//
//   - inputs and outputs are host views, of the arena itself or of a copy made with each run;
//   - states are read and written by copying;
//   - temporaries can be read by an observer, between two nodes.
//
// All calls except Input and Peek come from one goroutine at a time: while one goroutine runs
// functions on a slot, another may fill the other slot, and a third may peek at states. An image
// that can watch runs (see [Watch]) is also read and written during a run, where the run has
// finished with gradients.
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
	// Read and Write copy bytes of the arena, after all runs so far. Offsets past the end of
	// the arena address the offloaded states, in the host's memory.
	Read(dst []byte, offset int64) error
	Write(offset int64, src []byte) error
	// Guard sets the function that is called before a run changes states, starting after all
	// runs so far; nil for none. The node that changes them runs once before has returned,
	// and not at all if it returns an error, which becomes the run's. Any goroutine of the
	// device may call it.
	Guard(before func(states []string) error)
	// Peek copies bytes of states as they are after the runs before Guard, while later
	// runs go on. The caller knows that they have not changed since, because Guard calls
	// before they do.
	Peek(dst []byte, offset int64) error
	// Observe sets the observer of the runs from now on; nil for none.
	Observe(o *Observer)
	// Used is the highest byte of the arena that any kernel was given, to compare
	// with Layout.Bytes.
	Used() int64
	// Close frees the device's memory.
	Close() error
}

// Observer watches runs node by node. The device waits between nodes, so that values can
// be read ([Executable.ReadValue]).
type Observer struct {
	// Before, when set, is called before a node runs.
	Before func(n *graph.Node)
	// After, when set, is called when a node has run, with the time it took;
	// false ends the run there.
	After func(n *graph.Node, took time.Duration) bool
	// Narrow waits for each kernel of a node, so that the one which fails is known.
	Narrow bool
}

// Traits are what the compiler must know about a device, as plain data, so that a program
// can be planned for an absent device.
type Traits struct {
	// Name is the kind of device.
	Name string
	// Align is the alignment of every tensor in the arena, in bytes.
	Align int64
	// Rounded makes a training step keep weights in the 16 bits that matmuls read; see [pass.Rounded].
	Rounded bool
	// Fusion says what the device's kernels can fuse.
	Fusion pass.Fusion
}

// CPU are the traits of the processor. Tensors are aligned to a cache line, which is also
// a full vector register.
var CPU = Traits{Name: "cpu", Align: 64, Fusion: pass.FuseAll}

// CUDA are the traits of NVIDIA cards. Tensors are aligned as cudaMalloc aligns, so that
// every vector load is aligned and rows begin at a memory sector. A matmul that
// recomputed GELU as it reads would do so in every tile of the other operand, which costs
// a Turing card more than storing the result once. Chunks of logits are larger than the
// caches, so what goes through memory is their exponentials, of half the size. So are
// weights, which are therefore rounded once an update.
var CUDA = Traits{Name: "cuda", Align: 256, Rounded: true, Fusion: onCards(pass.FuseAll)}

func onCards(f pass.Fusion) pass.Fusion {
	f.Operands = false
	f.Exponentials, f.Normalizations, f.Pools = true, true, true
	return f
}
