package ptxsim

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

const full = math.MaxUint32 // all lanes

// group is a set of a warp's lanes at the same instruction.
type group struct {
	pc      int
	mask    uint32
	waiting bool // at an instruction that needs lanes which are elsewhere
}

// warp is the state of 32 threads. The lanes of a register are adjacent in memory.
type warp struct {
	r []lanes32
	d []lanes64
	p []uint32

	b      *block
	id     int
	exists uint32 // lanes that exist in the block
	live   uint32 // existing lanes that have not ended
	groups []group
	cur    *inst
	steps  int64
	state  warpState
	bar    *barrierOp

	written [3][]uint32 // lanes written, by class and register, for CheckUninitialized

	copies  []asyncCopy // cp.async under way
	commits [32]uint32  // number of groups that each lane has committed

	timing *timing // nil: nothing is counted

	serial uint32   // number of accesses that the checks for races have seen
	synced uint32   // serial at the last barrier or bar.warp: lanes are ordered after accesses up to it
	seen   []uint32 // serials of the block's warps that this warp is ordered after

	// The rest is scratch.
	addr       lanes64
	off        offsets
	t          lanes32
	u          lanes64
	lastAlloc  *allocation
	fenced     bool
	ticks      uint64 // for %clock
	collective bool   // the access is by the warp as a whole, not by lanes
	tile       tile
}

type warpState uint8

const (
	running warpState = iota
	atBarrier
	done
)

// block runs one block after another, reusing its memory.
type block struct {
	x      *launch
	id     int64
	number uint32 // see globalTouch
	ctaid  [3]uint32
	shared []byte
	local  []byte // for all warps
	warps  []*warp
	bars   [16]barrierState
	shadow *sharedShadow
	tally  *tally
}

// newBlock returns a block for one worker of a launch, reusing one from an earlier launch if possible.
func newBlock(x *launch) *block {
	k := x.k
	b, _ := k.blocks.Get().(*block)
	if b == nil || len(b.warps) != x.warps || len(b.shared) != x.shared {
		b = &block{shared: make([]byte, x.shared), local: make([]byte, int(k.local)*32*x.warps)}
		for i := range x.warps {
			b.warps = append(b.warps, &warp{
				b: b, id: i, r: make([]lanes32, k.count[classR]), d: make([]lanes64, k.count[classD]), p: make([]uint32, k.count[classP]), seen: make([]uint32, x.warps),
			})
		}
	}
	b.x, b.tally, b.shadow = x, nil, nil
	if x.options.Counters != nil {
		b.tally = newTally(len(k.code))
	}
	for _, w := range b.warps {
		w.timing = nil
		if b.tally != nil {
			w.timing = newTiming(k)
		}
	}
	if x.options.Checks&(CheckShared|CheckUninitialized) != 0 {
		b.shadow = newSharedShadow(x.shared)
	}
	for i, w := range b.warps {
		w.exists = full
		if rest := x.threads - i*32; rest < 32 {
			w.exists = 1<<rest - 1
		}
		for j, f := range k.fixed {
			w.fill(f.ref, func(int) uint64 { return x.fixed[j] })
		}
		if x.options.Checks&CheckUninitialized != 0 && w.written[0] == nil {
			for c := range w.written {
				w.written[c] = make([]uint32, k.count[c])
			}
		}
	}
	return b
}

// leave keeps a block for later launches.
func (b *block) leave() {
	k := b.x.k
	b.x = nil
	for _, w := range b.warps {
		w.lastAlloc = nil
	}
	k.blocks.Put(b)
}

// fill sets all lanes of a register.
func (w *warp) fill(r ref, value func(l int) uint64) {
	for l := range 32 {
		v := value(l)
		switch r.class {
		case classR:
			w.r[r.index][l] = uint32(v)
		case classD:
			w.d[r.index][l] = v
		case classP:
			w.p[r.index] = uint32(v)
		}
	}
}

// get returns a register's value in one lane.
func (w *warp) get(r ref, l int) uint64 {
	switch r.class {
	case classR:
		return uint64(w.r[r.index][l])
	case classD:
		return w.d[r.index][l]
	}
	return uint64(w.p[r.index] >> l & 1)
}

// set writes a register in one lane.
func (w *warp) set(r ref, l int, v uint64) {
	switch r.class {
	case classR:
		w.r[r.index][l] = uint32(v)
	case classD:
		w.d[r.index][l] = v
	case classP:
		w.p[r.index] = w.p[r.index]&^(1<<l) | uint32(v&1)<<l
	}
}

// reset prepares for running block n.
func (b *block) reset(n int64) {
	g := b.x.grid.Grid
	b.id, b.number = n, (b.x.first+uint32(n))&^strongBit
	b.ctaid = [3]uint32{uint32(n % int64(g[0])), uint32(n / int64(g[0]) % int64(g[1])), uint32(n / int64(g[0]) / int64(g[1]))}
	clear(b.shared)
	clear(b.local)
	clear(b.bars[:])
	if b.shadow != nil {
		b.shadow.reset()
	}
	for _, w := range b.warps {
		w.live, w.state, w.steps, w.bar = w.exists, running, 0, nil
		w.groups = append(w.groups[:0], group{mask: w.exists})
		w.copies, w.commits = w.copies[:0], [32]uint32{}
		w.serial, w.synced, w.fenced, w.ticks, w.lastAlloc = 0, 0, false, 0, nil
		clear(w.seen)
		if w.timing != nil {
			w.timing.reset()
		}
		w.zero()
		for name, r := range b.x.k.specials {
			w.fill(r, func(l int) uint64 { return w.special(name, l) })
		}
		if b.x.options.Checks&CheckUninitialized != 0 {
			w.forget()
		}
	}
}

// zero clears the registers of the text, so that a kernel's results never depend on what ran before.
func (w *warp) zero() {
	for _, s := range w.b.x.k.variables {
		switch s.class {
		case classR:
			clear(w.r[s.from:s.to])
		case classD:
			clear(w.d[s.from:s.to])
		case classP:
			clear(w.p[s.from:s.to])
		}
	}
}

// forget marks all registers as not yet written.
func (w *warp) forget() {
	for c := range w.written {
		clear(w.written[c])
	}
	k := w.b.x.k
	for _, f := range k.fixed {
		w.written[f.ref.class][f.ref.index] = full
	}
	for _, r := range k.specials {
		w.written[r.class][r.index] = full
	}
	for _, r := range k.defined {
		w.written[r.class][r.index] = full
	}
}

// quantum is how many instructions a warp that waits for nothing executes before the next warp gets its turn.
const quantum = 1 << 16

// run interprets one block.
func (b *block) run(n int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(*Fault)
			if !ok {
				panic(p)
			}
			err = f
		}
	}()
	b.reset(n)
	for {
		alive, ran := false, false
		for _, w := range b.warps {
			if w.state == running {
				w.run()
				ran = true
			}
			alive = alive || w.state != done
		}
		if !alive {
			b.end()
			return nil
		}
		if !ran && !b.release() {
			b.stuck()
		}
	}
}

// end adds up the time that the block took.
func (b *block) end() {
	if b.tally == nil {
		return
	}
	var longest int64
	for _, w := range b.warps {
		longest = max(longest, w.timing.from)
	}
	b.tally.alone += longest
}

// fail ends the launch with an error at the current instruction.
func (w *warp) fail(lane int, format string, a ...any) {
	x := w.b.x
	t := uint32(w.id*32 + lane)
	panic(&Fault{
		Kernel: x.k.Name, Block: w.b.ctaid,
		Thread: w.thread(t),
		Where:  x.k.module.where(w.cur.st), Reason: fmt.Sprintf(format, a...),
	})
}

// at is the index of the current instruction.
func (w *warp) at() int { return w.cur.at }

// thread is the index in the block of its n-th thread.
func (w *warp) thread(n uint32) [3]uint32 {
	d := w.b.x.grid.Block
	return [3]uint32{n % d[0], n / d[0] % d[1], n / d[0] / d[1]}
}

// run executes until the warp waits at a barrier, has ended, or has used up its turn. Of lanes at different
// instructions, those at the lowest go first, which reconverges structured code: what branches skip comes
// before the point where they meet.
func (w *warp) run() {
	start := w.steps
	for w.state == running {
		g := w.next()
		if g == nil {
			return
		}
		w.advance(g)
		if w.steps > w.b.x.options.Limit {
			w.fail(bits.TrailingZeros32(w.live), "the warp has taken %d instructions: an endless loop, or Options.Limit is too small", w.steps)
		}
		if w.steps-start > quantum {
			return
		}
	}
}

// next merges groups that have met and returns the one to run.
func (w *warp) next() *group {
	if len(w.groups) > 1 {
		slices.SortFunc(w.groups, func(a, b group) int { return a.pc - b.pc })
		n := 0
		for _, g := range w.groups {
			if n > 0 && w.groups[n-1].pc == g.pc {
				w.groups[n-1].mask |= g.mask
				w.groups[n-1].waiting = false
			} else if g.mask != 0 {
				w.groups[n] = g
				n++
			}
		}
		w.groups = w.groups[:n]
	}
	if w.live == 0 {
		w.state = done
		w.land(full, 0, true)
		return nil
	}
	for i := range w.groups {
		if !w.groups[i].waiting {
			return &w.groups[i]
		}
	}
	g := &w.groups[0]
	w.cur = &w.b.x.k.code[g.pc]
	w.lacking(g.mask)
	return nil
}

// part sends the lanes of m where a table says; the rest of the group continues.
func (w *warp) part(g *group, in *inst, pc int, mask, m uint32) {
	g.pc, g.mask = pc+1, mask&^m
	for m != 0 {
		to := in.target(w, bits.TrailingZeros32(m))
		some := uint32(0)
		lanesOf(m, func(l int) {
			if in.target(w, l) == to {
				some |= 1 << l
			}
		})
		w.groups = append(w.groups, group{pc: to, mask: some})
		m &^= some
	}
	w.groups = slices.DeleteFunc(w.groups, func(x group) bool { return x.mask == 0 })
}

// await leaves a group at an instruction that needs lanes which are elsewhere, as a loop may be further on in
// the text. It fails if no other lanes can come.
func (w *warp) await(g *group, pc int, mask, m uint32) {
	g.pc, g.waiting = pc, true
	if m != mask || !slices.ContainsFunc(w.groups, func(x group) bool { return !x.waiting }) {
		w.lacking(m)
	}
}

// lacking reports an instruction that lacks some of the lanes it needs.
func (w *warp) lacking(m uint32) {
	what := "the mask names lanes that are elsewhere for good"
	switch w.cur.control {
	case barrier:
		what = "a barrier in divergent code"
	case converged:
		what = "the instruction needs all 32 lanes of the warp"
	}
	w.fail(bits.TrailingZeros32(m), "%s: lanes %#08x are here (%s)", what, m, w.positions())
}

// positions lists where the lanes of a warp are.
func (w *warp) positions() string {
	s := ""
	for i, g := range w.groups {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("lanes %#08x at line %d", g.mask, w.b.x.k.code[g.pc].st.line)
	}
	if gone := w.exists &^ w.live; gone != 0 {
		s += fmt.Sprintf(", lanes %#08x have ended", gone)
	}
	return s
}

// advance runs one group until it meets another, or the order of execution changes.
func (w *warp) advance(g *group) {
	code := w.b.x.k.code
	alone := len(w.groups) == 1
	limit := math.MaxInt
	if !alone {
		for i := range w.groups {
			if w.groups[i].pc > g.pc {
				limit = min(limit, w.groups[i].pc)
			}
		}
	}
	pc, mask := g.pc, g.mask
	checked := w.b.x.options.Checks&CheckUninitialized != 0
	counts := w.b.tally
	steps := w.steps
	budget := steps + quantum
	defer func() { w.steps = steps }()
	for pc != limit {
		in := &code[pc]
		w.cur = in
		steps++
		m := mask
		if in.pred >= 0 {
			p := w.p[in.pred]
			if in.negated {
				p = ^p
			}
			m &= p
		}
		if counts != nil {
			counts.issue(pc, m)
			w.timing.pass(in)
		}
		if checked {
			w.checkRegisters(in, mask, m)
		}
		switch in.control {
		case straight:
			if m != 0 {
				in.run(w, m)
			}
			pc++
			continue
		case branch:
			switch {
			case m == 0:
				pc++
				continue
			case m == mask && alone:
				if in.to <= pc && steps > budget {
					g.pc = in.to
					return
				}
				pc = in.to
				continue
			case m == mask:
				g.pc = in.to
				return
			}
			g.pc, g.mask = pc+1, mask&^m
			w.groups = append(w.groups, group{pc: in.to, mask: m})
			return
		case branchTable:
			if m == 0 {
				pc++
				continue
			}
			w.part(g, in, pc, mask, m)
			return
		case leave:
			w.live &^= m
			for i := range w.groups {
				w.groups[i].waiting = false // perhaps it waits for these lanes
			}
			g.pc, g.mask = pc+1, mask&^m
			if m == mask {
				g.pc = math.MaxInt
				w.groups = slices.DeleteFunc(w.groups, func(x group) bool { return x.mask == 0 })
			}
			return
		case converged:
			if m != 0 {
				if m != full {
					w.await(g, pc, mask, m)
					return
				}
				in.run(w, m)
			}
			pc++
		case agreed:
			if m != 0 && !w.agree(g, in, pc, mask, m) {
				return
			}
			pc++
		case barrier:
			if m == 0 {
				pc++
				continue
			}
			if m != w.live {
				w.await(g, pc, mask, m)
				return
			}
			g.pc = pc + 1
			w.arrive(in)
			if w.state == running {
				pc++
				continue
			}
			return
		}
	}
	g.pc = pc
}

// agree runs an instruction that needs the lanes in a mask, or leaves the group waiting for them.
func (w *warp) agree(g *group, in *inst, pc int, mask, m uint32) bool {
	for rest := m; rest != 0; {
		l := bits.TrailingZeros32(rest)
		members := w.r[in.members.index][l]
		same := uint32(0)
		lanesOf(rest, func(k int) {
			if w.r[in.members.index][k] == members {
				same |= 1 << k
			}
		})
		rest &^= same
		if members>>l&1 == 0 {
			w.fail(l, "the lane is not in its own mask %#08x", members)
		}
		if gone := members &^ w.live; gone != 0 {
			w.fail(l, "the mask %#08x names lanes %#08x, which have ended or do not exist", members, gone)
		}
		if same != members {
			if m != mask && len(w.groups) == 1 || mask&^m&members != 0 {
				w.fail(l, "the mask names lanes %#08x, of which %#08x do not execute the instruction", members, members&^same)
			}
			g.pc, g.waiting = pc, true
			return false
		}
	}
	for rest := m; rest != 0; {
		members := w.r[in.members.index][bits.TrailingZeros32(rest)]
		in.run(w, members)
		rest &^= members
	}
	return true
}

// merge32 copies the lanes of a mask.
func merge32(d, s *lanes32, m uint32) {
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		d[l] = s[l]
	}
}

func merge64(d, s *lanes64, m uint32) {
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		d[l] = s[l]
	}
}
