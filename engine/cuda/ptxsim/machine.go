package ptxsim

import (
	"slices"
	"strings"
)

// This file models, for counting, what instructions of PTX become on a card of compute capability 7.5: what
// ptxas compiles them to, how long a result takes, and so how long a block takes with a multiprocessor to
// itself.

// takes is how many machine instructions of each pipe an instruction of PTX compiles to.
type takes [Pipes]uint8

// expansions are the instructions that compile to several, as by ptxas 13.2 for sm_75. Exact divisions also
// have a part for rare operands, which is not included.
var expansions = map[string]takes{
	"div.u32": {PipeInteger: 15, PipeXU: 3}, "rem.u32": {PipeInteger: 15, PipeXU: 3},
	"div.s32": {PipeInteger: 22, PipeXU: 3}, "rem.s32": {PipeInteger: 22, PipeXU: 3},
	"div.u64": {PipeInteger: 64, PipeXU: 3, PipeControl: 2}, "rem.u64": {PipeInteger: 58, PipeXU: 3, PipeControl: 2},
	"div.s64": {PipeInteger: 80, PipeXU: 3, PipeControl: 2}, "rem.s64": {PipeInteger: 74, PipeXU: 3, PipeControl: 2},
	"div.rn.f32": {PipeFP32: 6, PipeXU: 1, PipeInteger: 3, PipeControl: 3}, "div.full.f32": {PipeFP32: 7, PipeXU: 1},
	"sqrt.rn.f32": {PipeFP32: 4, PipeXU: 1, PipeInteger: 5, PipeControl: 3}, "rcp.rn.f32": {PipeFP32: 3, PipeXU: 1, PipeInteger: 6, PipeControl: 3},
	"rcp.approx.f32": {PipeFP32: 6, PipeXU: 1}, "ex2.approx.f32": {PipeFP32: 3, PipeXU: 1}, "lg2.approx.f32": {PipeFP32: 3, PipeXU: 1},
	"rsqrt.approx.f32": {PipeFP32: 3, PipeXU: 1}, "sin.approx.f32": {PipeFP32: 1, PipeXU: 1}, "cos.approx.f32": {PipeFP32: 1, PipeXU: 1},
	"mul.lo.u64": {PipeInteger: 4}, "mul.lo.s64": {PipeInteger: 4}, "mul.hi.u64": {PipeInteger: 10}, "mul.hi.s64": {PipeInteger: 12},
	"mad.lo.u64": {PipeInteger: 5}, "mad.lo.s64": {PipeInteger: 5},
}

// byConstant is a division by a number in the text.
var byConstant = takes{PipeInteger: 7}

// takesOf is what ptxas compiles an instruction to.
func takesOf(parts, args []string, pipe Pipe) takes {
	if len(args) == 3 && (parts[0] == "div" || parts[0] == "rem") && strings.HasSuffix(parts[len(parts)-1], "32") && isDigit(args[2]) {
		return byConstant
	}
	if e, ok := expansions[strings.Join(parts, ".")]; ok {
		return e
	}
	var t takes
	t[pipe] = 1
	if last := typeNames[parts[len(parts)-1]]; pipe == PipeInteger && last.size() == 8 && parts[0] != "cvt" && parts[0] != "selp" && !(len(parts) > 1 && parts[1] == "wide") {
		t[pipe] = 2
	}
	return t
}

func isDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// latencies are the clocks from the issue of an instruction until its result can be used: Arafa et al. 2019
// (arXiv:1905.08778) measured these on Turing, except for tensor cores, where it is how far apart ptxas
// puts an mma and its reader. A load of global memory is one that misses all caches; divergence, bank
// conflicts and full queues are not included.
var latencies = [Pipes]int64{PipeTensor: 14, PipeFP32: 4, PipeFP64: 45, PipeInteger: 4, PipeXU: 16, PipeShared: 30, PipeGlobal: 279, PipeControl: 4}

// spacing is the clocks for which an instruction keeps a scheduler's pipe from the next one of the same warp.
var spacing = [Pipes]int64{PipeTensor: 8, PipeFP32: 2, PipeFP64: 64, PipeInteger: 2, PipeXU: 8, PipeShared: 2, PipeGlobal: 2, PipeControl: 1}

// timing models a warp alone on a multiprocessor. Instructions between two branches or barriers begin once
// what they read is ready, in any order, as the assembler may schedule them; those after begin later.
type timing struct {
	from, last int64        // when the present stretch began; when its last instruction begins
	issued     int64        // instructions in the stretch
	busy       [Pipes]int64 // clocks for which they take each pipe
	ready      [3][]int64   // when each register is ready, by class

	first  int  // first instruction of the stretch
	again  int  // how often the stretch was repeated
	stores bool // the stretch stores
	loops  bool // its last instruction may branch to the first, which would continue the stretch
}

// unrolled is how often ptxas unrolls small loops: those of fewer than unrolledInstructions, without a branch
// among them and without stores, which the next round's loads would have to pass. This was observed with this
// repository's kernels.
const unrolled, unrolledInstructions = 4, 40

func newTiming(k *Kernel) *timing {
	t := &timing{}
	for c := range t.ready {
		t.ready[c] = make([]int64, k.count[c])
	}
	return t
}

func (t *timing) reset() {
	for c := range t.ready {
		clear(t.ready[c])
	}
	t.after(0)
}

// pass accounts for an instruction.
func (t *timing) pass(in *inst) {
	if t.loops && in.at != t.first { // it did not branch back
		t.after(t.end())
	}
	t.loops = false
	if t.first < 0 {
		t.first = in.at
	}
	at := t.from + t.issued
	for _, r := range in.src {
		at = max(at, t.ready[r.class][r.index])
	}
	var latency int64
	for p, n := range in.takes {
		if n == 0 || Pipe(p) == PipeNone {
			continue
		}
		t.issued += int64(n)
		at = max(at, t.from+t.busy[p])
		t.busy[p] += int64(n) * spacing[p]
		latency = max(latency, latencies[p]+int64(n-1)*spacing[p])
	}
	for _, r := range in.dst {
		t.ready[r.class][r.index] = at + latency
	}
	t.last = max(t.last, at)
	t.stores = t.stores || in.stores
	switch in.control {
	case branch:
		if in.to == t.first && !t.stores && in.at-in.to < unrolledInstructions && !in.rolled && t.again < unrolled-1 {
			t.again++
			t.loops = true
			return
		}
		t.after(t.end())
	case branchTable, leave, barrier:
		t.after(t.end())
	}
}

// end is when instructions after the stretch can begin.
func (t *timing) end() int64 {
	return max(t.last, t.from+t.issued, t.from+slices.Max(t.busy[:])) + latencies[PipeControl]
}

// after begins a new stretch.
func (t *timing) after(at int64) {
	t.from, t.last, t.issued, t.busy = at, at, 0, [Pipes]int64{}
	t.first, t.again, t.stores, t.loops = -1, 0, false, false
}
