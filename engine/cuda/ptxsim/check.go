package ptxsim

import "math/bits"

// checkRegisters refuses to read registers in lanes that never wrote them: mask are the lanes at the instruction, m
// those of them that execute it.
func (w *warp) checkRegisters(in *inst, mask, m uint32) {
	for i, r := range in.src {
		need := m
		if i == 0 && in.pred >= 0 {
			need = mask
		}
		if missing := need &^ w.written[r.class][r.index]; missing != 0 {
			w.fail(bits.TrailingZeros32(missing), "reads %s, which the thread has not written", w.b.x.k.names[r.class][r.index])
		}
	}
	for _, r := range in.dst {
		w.written[r.class][r.index] |= m
	}
}

// mark is who touched a byte of shared memory last. Accesses of other warps are in order if the warp's clock then is
// one that this warp has seen by a barrier; those of other lanes of the same warp, if bar.warp has come between.
type mark struct {
	clock  uint32
	serial uint32 // of the warp's accesses: lanes of one instruction do not race
	warp   uint8
	lane   uint8 // allLanes: the warp as a whole
	strong bool
	set    bool
}

const allLanes = 255

// sharedShadow is what the checks know of each byte of shared memory.
type sharedShadow struct {
	valid  []bool
	flight []uint8 // warp+1 of a cp.async under way
	write  []mark
	reads  [][2]mark // the last ones of two different warps
}

func newSharedShadow(n int) *sharedShadow {
	return &sharedShadow{make([]bool, n), make([]uint8, n), make([]mark, n), make([][2]mark, n)}
}

func (s *sharedShadow) reset() {
	clear(s.valid)
	clear(s.flight)
	clear(s.write)
	clear(s.reads)
}

// landed ends a cp.async: the bytes are written by that lane now.
func (s *sharedShadow) landed(w *warp, l, at, n int) {
	w.serial++
	for i := at; i < at+n; i++ {
		s.flight[i] = 0
		s.valid[i] = true
		s.write[i] = mark{w.clock, w.serial, uint8(w.id), uint8(l), false, true}
	}
}

// ordered says whether an earlier access is before this one of lane l.
func (w *warp) ordered(x mark, l uint8) bool {
	switch {
	case !x.set:
		return true
	case int(x.warp) != w.id:
		return w.seen[x.warp] >= x.clock
	}
	return x.lane == l || x.lane == allLanes || l == allLanes && x.serial == w.serial || x.serial == w.serial || x.clock < w.clock
}

func (w *warp) checkShared(m uint32, n int, kind accessKind) {
	s := w.b.shadow
	races := w.b.x.options.Checks&CheckShared != 0
	unwritten := w.b.x.options.Checks&CheckUninitialized != 0
	w.serial++
	for k := m; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		me := mark{w.clock, w.serial, uint8(w.id), uint8(l), kind.strong(), true}
		for i := w.off[l]; i < w.off[l]+n; i++ {
			if s.flight[i] != 0 {
				w.fail(l, "byte %#x of shared memory is the target of a cp.async of warp %d that has not been waited for", i, s.flight[i]-1)
			}
			if unwritten && !s.valid[i] && (!kind.writes() || kind == atomicAccess) {
				w.fail(l, "byte %#x of shared memory is read and nothing has been written there", i)
			}
			if races {
				w.race(s, i, me, kind)
			}
			switch {
			case kind == asyncStore:
				s.flight[i] = uint8(w.id + 1)
			case kind.writes():
				s.valid[i] = true
				s.write[i] = me
			default:
				if w.collective {
					me.lane = allLanes
				}
				if r := &s.reads[i]; r[0].set && r[0].warp != me.warp {
					r[1] = r[0]
					r[0] = me
				} else {
					r[0] = me
				}
			}
		}
	}
}

// race reports an access without a barrier behind an earlier one.
func (w *warp) race(s *sharedShadow, i int, me mark, kind accessKind) {
	report := func(x mark, what string) {
		how := "no barrier"
		if int(x.warp) == w.id {
			how = "no bar.warp"
		}
		w.fail(int(me.lane), "race: byte %#x of shared memory was %s by thread %v and %s comes between", i, what, w.thread(uint32(x.warp)*32+uint32(x.lane)&31), how)
	}
	l := me.lane
	if x := s.write[i]; !w.ordered(x, l) && !(x.strong && kind.strong()) {
		report(x, "written")
	}
	if kind.writes() {
		for _, x := range s.reads[i] {
			if !w.ordered(x, l) && !(x.strong && kind.strong()) {
				report(x, "read")
			}
		}
	}
}

// pageBytes is how much memory one page of a global shadow covers.
const pageBytes = 4096

// globalShadow is which block touched each byte of an allocation last, in the launch that a page belongs to.
type globalShadow struct{ pages []*globalPage }

type globalPage struct {
	serial         uint32
	writer, reader [pageBytes]uint32 // block+1, the top bit for a strong access
}

const strongBit = 1 << 31

// globalOrder is which blocks of a launch are ordered by atomics: one that has read an address behind a fenced atomic of
// another. Blocks run one after another while it is kept.
type globalOrder struct {
	released map[uint64][]int64
	block    int64 // the one that acquired is about
	acquired map[int64]bool
	taken    map[uint64]int // how much of each released list acquired holds
}

func newGlobalOrder() *globalOrder {
	return &globalOrder{released: map[uint64][]int64{}, block: -1}
}

// atomic records one at an address.
func (o *globalOrder) atomic(block int64, addr uint64, fenced bool) {
	if o.block != block {
		o.block, o.acquired, o.taken = block, map[int64]bool{}, map[uint64]int{}
	}
	list := o.released[addr]
	for _, b := range list[o.taken[addr]:] {
		o.acquired[b] = true
	}
	if fenced {
		list = append(list, block)
		o.released[addr] = list
	}
	o.taken[addr] = len(list)
}

func (o *globalOrder) before(other, block int64) bool {
	return o.block == block && o.acquired[other]
}

func (w *warp) checkGlobal(a *allocation, m uint32, n int, kind accessKind) {
	x := w.b.x
	unwritten := a.valid != nil && x.options.Checks&CheckUninitialized != 0
	var page *globalPage
	for k := m; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		at := w.off[l]
		if a.valid != nil {
			for i := at; i < at+n; i++ {
				if unwritten && a.valid[i] == 0 && (!kind.writes() || kind == atomicAccess) {
					w.fail(l, "byte %#x of global memory is read and nothing has been written there", a.base+uint64(i))
				}
				if kind.writes() {
					a.valid[i] = 1
				}
			}
		}
		if x.order == nil || a.readOnly {
			continue
		}
		if kind == atomicAccess {
			x.order.atomic(w.b.id, a.base+uint64(at), w.fenced)
		}
		page = a.page(at, x.serial)
		me := uint32(w.b.id+1) &^ strongBit
		if kind.strong() {
			me |= strongBit
		}
		for i := at % pageBytes; i < at%pageBytes+n; i++ {
			w.raceGlobal(l, page.writer[i], me, a.base+uint64(at), "written")
			if kind.writes() {
				w.raceGlobal(l, page.reader[i], me, a.base+uint64(at), "read")
				page.writer[i] = me
			} else {
				page.reader[i] = me
			}
		}
	}
}

func (w *warp) raceGlobal(l int, other, me uint32, addr uint64, what string) {
	if other == 0 || (other^me)&^strongBit == 0 || other&me&strongBit != 0 {
		return
	}
	block := int64(other&^strongBit) - 1
	if w.b.x.order.before(block, w.b.id) {
		return
	}
	w.fail(l, "race: global memory at %#x was %s by block %d of the same launch, and nothing orders the two", addr, what, block)
}

// page is the shadow of the bytes around an offset, fresh for a launch.
func (a *allocation) page(at int, serial uint32) *globalPage {
	if a.shadow == nil {
		a.shadow = &globalShadow{make([]*globalPage, (len(a.mem)+pageBytes-1)/pageBytes)}
	}
	p := a.shadow.pages[at/pageBytes]
	if p == nil {
		p = &globalPage{}
		a.shadow.pages[at/pageBytes] = p
	}
	if p.serial != serial {
		*p = globalPage{serial: serial}
	}
	return p
}
