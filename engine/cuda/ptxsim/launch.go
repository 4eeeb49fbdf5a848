package ptxsim

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Grid is the shape of a launch.
type Grid struct {
	Grid, Block [3]uint32 // zeros count as one, which a driver refuses
	Shared      uint32    // bytes of dynamic shared memory
}

// Check names what a launch checks in addition to bounds, alignment and divergence, which are always checked.
type Check uint8

// These are the checks.
const (
	CheckUninitialized Check = 1 << iota // reads of unwritten registers and shared memory; for global memory see Memory.Shadow
	CheckShared                          // data races in shared memory
	CheckGlobal                          // data races in global memory
	CheckAll           = CheckUninitialized | CheckShared | CheckGlobal
)

// Options are the options of a launch. The zero value runs without checks or counting, on all processors.
type Options struct {
	Checks   Check
	Counters *Counters // counts are added to it
	Workers  int       // goroutines that run blocks; 0: one per processor. Results do not depend on it.
	Limit    int64     // warp instructions that a block may execute before it counts as endless; 0: 2^32
}

// Fault is an error at an instruction of a kernel.
type Fault struct {
	Kernel string
	Block  [3]uint32
	Thread [3]uint32 // the first thread concerned
	Where  string    // line and text of the instruction, and the line of the source if the PTX gives it
	Reason string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%s, block %v, thread %v, %s: %s", f.Kernel, f.Block, f.Thread, f.Where, f.Reason)
}

// launch is what all blocks of a launch share.
type launch struct {
	mem     *Memory
	k       *Kernel
	grid    Grid
	threads int
	warps   int
	params  []byte
	shared  int
	options Options
	fixed   []uint64 // values of k.fixed
	serial  uint32
	first   uint32       // number of the first block
	order   *globalOrder // how atomics order blocks, for CheckGlobal
}

// Launch runs a kernel to its end. An error in the kernel is a *Fault; memory is then in an undefined state.
func Launch(mem *Memory, k *Kernel, grid Grid, params []byte, o Options) error {
	if k == nil {
		return errors.New("launch: no such kernel")
	}
	x := &launch{mem: mem, k: k, grid: grid, params: params, options: o}
	blocks, err := x.prepare()
	if err != nil {
		return fmt.Errorf("launch of %s: %w", k.Name, err)
	}
	workers := o.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if k.atomics || o.Checks != 0 {
		workers = 1 // what atomics return, and which error comes first, depends on the order of blocks
	}
	workers = int(min(int64(workers), blocks))
	var next, failed atomic.Int64
	failed.Store(math.MaxInt64)
	faults := make([]error, workers)
	var wg sync.WaitGroup
	tallies := make([]*tally, workers)
	for i := range workers {
		run := func() {
			b := newBlock(x)
			defer b.leave()
			tallies[i] = b.tally
			for {
				n := next.Add(1) - 1
				if n >= blocks || n > failed.Load() {
					return
				}
				if err := b.run(n); err != nil {
					// Blocks are taken in order, so the first to fail is known once all before it have ended.
					for {
						old := failed.Load()
						if n >= old {
							return
						}
						if failed.CompareAndSwap(old, n) {
							faults[i] = &failure{n, err}
							return
						}
					}
				}
			}
		}
		if workers == 1 {
			run()
			break
		}
		wg.Add(1)
		go func() { defer wg.Done(); run() }()
	}
	wg.Wait()
	if o.Counters != nil {
		o.Counters.add(k, tallies)
	}
	for _, e := range faults {
		var f *failure
		if errors.As(e, &f) && f.block == failed.Load() {
			return f.err
		}
	}
	return nil
}

type failure struct {
	block int64
	err   error
}

func (f *failure) Error() string { return f.err.Error() }

// prepare checks a launch as the driver would, and returns the number of blocks.
func (x *launch) prepare() (int64, error) {
	k, g := x.k, &x.grid
	for i := range 3 {
		g.Grid[i], g.Block[i] = max(g.Grid[i], 1), max(g.Block[i], 1)
	}
	if g.Grid[0] > math.MaxInt32 || g.Grid[1] > 65535 || g.Grid[2] > 65535 {
		return 0, fmt.Errorf("a grid of %v, the most is [2147483647 65535 65535]", g.Grid)
	}
	if g.Block[0] > 1024 || g.Block[1] > 1024 || g.Block[2] > 64 || g.Block[0]*g.Block[1]*g.Block[2] > 1024 {
		return 0, fmt.Errorf("a block of %v, the most is 1024 threads", g.Block)
	}
	x.threads = int(g.Block[0] * g.Block[1] * g.Block[2])
	if k.MaxThreads > 0 && x.threads > k.MaxThreads {
		return 0, fmt.Errorf("%d threads a block, .maxntid says at most %d", x.threads, k.MaxThreads)
	}
	if k.Required[0] > 0 && k.Required != g.Block {
		return 0, fmt.Errorf("a block of %v, .reqntid says %v", g.Block, k.Required)
	}
	if len(x.params) != k.ParamBytes {
		return 0, fmt.Errorf("%d bytes of parameters, it takes %d", len(x.params), k.ParamBytes)
	}
	shared := k.dynamicBase() + uint64(g.Shared)
	if shared > maxShared {
		return 0, fmt.Errorf("%d bytes of shared memory, at most %d are possible", shared, maxShared)
	}
	x.shared = int(shared)
	x.warps = (x.threads + 31) / 32
	if x.options.Limit == 0 {
		x.options.Limit = 1 << 32
	}
	if err := x.mem.load(k.module); err != nil {
		return 0, err
	}
	for i := range k.fixed {
		v := k.fixed[i].value
		if k.fixed[i].kind == fixedGlobal {
			v += x.mem.symbols[k.fixed[i].sym]
		}
		x.fixed = append(x.fixed, v)
	}
	x.mem.launches++
	x.serial = x.mem.launches
	if x.options.Checks&CheckGlobal != 0 {
		x.order = newGlobalOrder()
	}
	blocks := int64(g.Grid[0]) * int64(g.Grid[1]) * int64(g.Grid[2])
	x.first = x.mem.number(blocks)
	return blocks, nil
}
