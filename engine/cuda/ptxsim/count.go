package ptxsim

import (
	"math/bits"
	"slices"
)

// Pipe is the unit of a multiprocessor that an instruction keeps busy.
type Pipe uint8

// These are the pipes.
const (
	PipeNone    Pipe = iota // none: the assembler drops moves, conversions of addresses and loads of parameters
	PipeTensor              // mma
	PipeFP32                // arithmetic, comparisons and moves of float32, and of pairs of halves
	PipeFP64                // arithmetic of float64
	PipeInteger             // arithmetic and logic of integers, moves, selections
	PipeXU                  // transcendental functions, conversions between formats, popc and the like
	PipeShared              // shared memory, ldmatrix, shfl
	PipeGlobal              // global, local and constant memory, atomics
	PipeControl             // branches, barriers, votes
	Pipes
)

func (p Pipe) String() string {
	return [...]string{"none", "tensor", "fp32", "fp64", "integer", "xu", "shared", "global", "control"}[p]
}

// pipeOf returns an opcode's pipe. It goes by the PTX, which ptxas may translate differently.
func pipeOf(parts []string) Pipe {
	last := typeNames[parts[len(parts)-1]]
	has := func(s string) bool { return slices.Contains(parts, s) }
	switch parts[0] {
	case "mma":
		return PipeTensor
	case "ldmatrix", "shfl", "movmatrix":
		return PipeShared
	case "ld", "ldu", "st", "atom", "red":
		switch {
		case has("shared") || has("shared::cta"):
			return PipeShared
		case has("param"):
			return PipeNone
		}
		return PipeGlobal
	case "cp":
		return PipeGlobal
	case "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "popc", "clz", "brev", "bfind", "fns":
		return PipeXU
	case "cvt":
		to := typeNames[parts[len(parts)-2]]
		switch {
		case to == tF32 && last == tF16: // adds zero
			return PipeFP32
		case last.float() || to.float():
			return PipeXU
		}
		return PipeInteger
	case "bra", "brx", "ret", "exit", "call", "bar", "barrier", "membar", "fence", "vote", "match", "redux", "activemask", "trap", "nanosleep", "elect":
		return PipeControl
	case "mov", "cvta":
		return PipeNone
	case "selp", "prmt", "slct":
		return PipeInteger
	}
	switch {
	case last == tF64:
		return PipeFP64
	case last.float():
		return PipeFP32
	}
	return PipeInteger
}

// Count is the work of one kernel, over all launches that were counted.
type Count struct {
	Launches     int64
	Instructions [Pipes]int64 // warp instructions by pipe, as many as ptxas makes of the text's
	// Alone is the sum, over blocks, of the clocks that each would take with a multiprocessor to itself: the
	// latency of its longest warp, whatever the others do meanwhile.
	Alone int64
	// These count accesses to shared memory: requests are warp instructions; a wavefront serves 32 banks of 4
	// bytes once; ideal wavefronts are those that the words asked for would take without bank conflicts.
	SharedRequests, SharedWavefronts, SharedIdeal int64
	// These count accesses to global memory: sectors are 32 bytes; bytes are those that lanes asked for.
	LoadRequests, LoadSectors, LoadBytes    int64
	StoreRequests, StoreSectors, StoreBytes int64
	// Traffic is the bytes of global memory that have to be moved if every request is served separately: what
	// lanes asked for, or whole sectors where they asked for the same bytes.
	Traffic int64
	Lines   []LineCount // lines that ran, in the order of the text
}

// LineCount is the work of one instruction of a kernel.
type LineCount struct {
	Where             string
	Pipe              Pipe
	Executed, Lanes   int64 // warp instructions, and the threads in them
	Wavefronts, Ideal int64 // of shared memory
	Sectors, Bytes    int64 // of global memory
}

// Total returns the number of warp instructions.
func (c *Count) Total() int64 {
	var n int64
	for _, x := range c.Instructions {
		n += x
	}
	return n
}

// Counters collects counts by kernel. It must not be used by two launches at a time.
type Counters struct {
	Kernels map[string]*Count
}

// tally holds one worker's counts, by instruction, and the clocks of its blocks.
type tally struct {
	lines []lineTally
	alone int64
}

type lineTally struct {
	executed, lanes                 int64
	requests, wavefronts, ideal     int64
	globals, sectors, bytes, stored int64
	traffic                         int64
}

func newTally(n int) *tally { return &tally{lines: make([]lineTally, n)} }

func (t *tally) issue(pc int, m uint32) {
	x := &t.lines[pc]
	x.executed++
	x.lanes += int64(bits.OnesCount32(m))
}

// countShared counts wavefronts: accesses of up to 4 bytes are served by warp, of 8 bytes by half-warp, and
// of 16 by quarter-warp.
func (w *warp) countShared(m uint32, n int) {
	per := 32
	if n > 4 {
		per = 128 / n
	}
	x := &w.b.tally.lines[w.at()]
	x.requests++
	var words [128]int
	for base := 0; base < 32; base += per {
		list := words[:0]
		for l := base; l < base+per; l++ {
			if m>>l&1 == 0 {
				continue
			}
			for a := w.off[l] / 4; a <= (w.off[l]+n-1)/4; a++ {
				list = append(list, a)
			}
		}
		if len(list) == 0 {
			continue
		}
		slices.Sort(list)
		list = slices.Compact(list)
		var banks [32]int64
		for _, a := range list {
			banks[a%32]++
		}
		x.wavefronts += slices.Max(banks[:])
		x.ideal += int64(len(list)+31) / 32
	}
}

// countGlobal counts the sectors that a request touches.
func (w *warp) countGlobal(m uint32, n int, kind accessKind) {
	x := &w.b.tally.lines[w.at()]
	var sectors [64]int
	list := sectors[:0]
	lanesOf(m, func(l int) {
		list = append(list, w.off[l]/32)
		if last := (w.off[l] + n - 1) / 32; last != w.off[l]/32 {
			list = append(list, last)
		}
	})
	slices.Sort(list)
	touched, asked := int64(len(slices.Compact(list))), int64(n*bits.OnesCount32(m))
	x.globals++
	x.sectors += touched
	x.bytes += asked
	x.traffic += min(32*touched, asked)
	if kind.writes() {
		x.stored = 1
	}
}

// add adds up what the workers counted.
func (c *Counters) add(k *Kernel, tallies []*tally) {
	if c.Kernels == nil {
		c.Kernels = map[string]*Count{}
	}
	sum := c.Kernels[k.Name]
	if sum == nil {
		sum = &Count{}
		c.Kernels[k.Name] = sum
	}
	sum.Launches++
	for _, t := range tallies {
		if t != nil {
			sum.Alone += t.alone
		}
	}
	lines := map[string]int{}
	for i, l := range sum.Lines {
		lines[l.Where] = i
	}
	for i := range k.code {
		in := &k.code[i]
		var x lineTally
		for _, t := range tallies {
			if t == nil {
				continue
			}
			y := &t.lines[i]
			x.executed += y.executed
			x.lanes += y.lanes
			x.requests += y.requests
			x.wavefronts += y.wavefronts
			x.ideal += y.ideal
			x.globals += y.globals
			x.sectors += y.sectors
			x.bytes += y.bytes
			x.traffic += y.traffic
			x.stored |= y.stored
		}
		if x.executed == 0 {
			continue
		}
		for p, n := range in.takes {
			sum.Instructions[p] += int64(n) * x.executed
		}
		sum.SharedRequests += x.requests
		sum.SharedWavefronts += x.wavefronts
		sum.SharedIdeal += x.ideal
		sum.Traffic += x.traffic
		if x.stored != 0 {
			sum.StoreRequests += x.globals
			sum.StoreSectors += x.sectors
			sum.StoreBytes += x.bytes
		} else {
			sum.LoadRequests += x.globals
			sum.LoadSectors += x.sectors
			sum.LoadBytes += x.bytes
		}
		where := k.module.where(in.st)
		j, ok := lines[where]
		if !ok {
			j = len(sum.Lines)
			lines[where] = j
			sum.Lines = append(sum.Lines, LineCount{Where: where, Pipe: in.pipe})
		}
		l := &sum.Lines[j]
		l.Executed += x.executed
		l.Lanes += x.lanes
		l.Wavefronts += x.wavefronts
		l.Ideal += x.ideal
		l.Sectors += x.sectors
		l.Bytes += x.bytes
	}
}
