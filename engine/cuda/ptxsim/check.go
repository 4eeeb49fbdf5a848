package ptxsim

import "math/bits"

// checkRegisters fails if registers are read in lanes that never wrote them: mask are the lanes at the
// instruction, m those of them that execute it.
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

// mark is an access by a lane. It comes before an access of another warp if that warp has seen its serial
// through a barrier, and before one of another lane of the same warp if a barrier or bar.warp came between.
type mark struct {
	serial uint32 // among the warp's accesses, from 1; 0: there was none. Lanes of one instruction do not race.
	warp   uint8
	lane   uint8
	strong bool
}

// readers are the lanes of a warp that read with nothing between that orders them.
type readers struct {
	serial uint32 // of the last read; 0: there was none
	lanes  uint32 // none of a read by the warp as a whole, which its own lanes come after
	warp   uint8
	strong bool // all of them
}

// touch records the last writer of a piece of memory and its last readers: the latest of two different warps,
// which are enough where barriers are for the whole block.
type touch struct {
	write mark
	reads [2]readers
}

// sharedShadow is what the checks know about shared memory. Accesses of four bytes and more are recorded by
// word, narrower ones by byte.
type sharedShadow struct {
	valid  []uint8 // by word: a bit for each byte that has been written
	flight []uint8 // by word: warp+1 of a cp.async under way
	words  []touch
	bytes  []touch // nil until there is a narrow access
}

func newSharedShadow(n int) *sharedShadow {
	n = (n + 3) / 4
	return &sharedShadow{valid: make([]uint8, n), flight: make([]uint8, n), words: make([]touch, n)}
}

func (s *sharedShadow) reset() {
	clear(s.valid)
	clear(s.flight)
	clear(s.words)
	s.bytes = nil
}

// landed ends a cp.async: its bytes count as written by that lane now.
func (s *sharedShadow) landed(w *warp, l, at, n int) {
	w.serial++
	for i := at / 4; i < (at+n)/4; i++ {
		s.flight[i] = 0
		s.valid[i] = 15
		s.words[i].write = mark{w.serial, uint8(w.id), uint8(l), false}
	}
}

// ordered reports whether an earlier access is ordered before this one of lane l.
func (w *warp) ordered(x *mark, l uint8) bool {
	if int(x.warp) != w.id {
		return w.seen[x.warp] >= x.serial
	}
	return x.lane == l || x.serial <= w.synced || x.serial == w.serial
}

// unordered returns those of earlier readers that are not ordered before this access of lane l, and whether
// there are any.
func (w *warp) unordered(x *readers, l uint8) (lanes uint32, any bool) {
	if int(x.warp) != w.id {
		return x.lanes, w.seen[x.warp] < x.serial
	}
	if x.serial <= w.synced {
		return 0, false
	}
	lanes = x.lanes &^ (1 << l)
	return lanes, lanes != 0
}

func (w *warp) checkShared(m uint32, n int, kind accessKind) {
	s := w.b.shadow
	if n < 4 && s.bytes == nil {
		s.bytes = make([]touch, 4*len(s.words))
	}
	w.serial++
	for k := m; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		me := mark{w.serial, uint8(w.id), uint8(l), kind.strong()}
		if n < 4 {
			w.checkNarrow(s, &me, w.off[l], n, kind)
			continue
		}
		for i := w.off[l] / 4; i < (w.off[l]+n)/4; i++ {
			if kind == plainLoad && s.bytes == nil && s.valid[i] == 15 && s.flight[i] == 0 {
				// What follows, for nearly all accesses.
				if t := &s.words[i]; w.ordered(&t.write, me.lane) {
					w.read(t, &me)
				} else {
					w.touch(t, &me, 4*i, kind)
				}
				continue
			}
			w.checkContent(s, l, i, 15, kind)
			w.touch(&s.words[i], &me, 4*i, kind)
			if s.bytes != nil {
				for j := 4 * i; j < 4*i+4; j++ {
					w.race(&s.bytes[j], &me, j, kind)
				}
			}
		}
	}
}

// checkNarrow checks an access within a word.
func (w *warp) checkNarrow(s *sharedShadow, me *mark, at, n int, kind accessKind) {
	w.checkContent(s, int(me.lane), at/4, (1<<n-1)<<(at%4), kind)
	w.race(&s.words[at/4], me, at, kind)
	for i := at; i < at+n; i++ {
		w.touch(&s.bytes[i], me, i, kind)
	}
}

// checkContent checks the bytes of a word that are set in which: that they have been written, and that no
// pending copy will overwrite them.
func (w *warp) checkContent(s *sharedShadow, l, word int, which uint8, kind accessKind) {
	if s.flight[word] != 0 {
		w.fail(l, "byte %#x of shared memory is the target of a cp.async of warp %d that has not been waited for", 4*word, s.flight[word]-1)
	}
	missing := which &^ s.valid[word]
	if missing != 0 && (!kind.writes() || kind == atomicAccess) && w.b.x.options.Checks&CheckUninitialized != 0 {
		w.fail(l, "byte %#x of shared memory is read and nothing has been written there", 4*word+bits.TrailingZeros8(missing))
	}
	switch {
	case kind == asyncStore:
		s.flight[word] = uint8(w.id + 1)
	case kind.writes():
		s.valid[word] |= which
	}
}

// touch checks an access for races and records it.
func (w *warp) touch(t *touch, me *mark, at int, kind accessKind) {
	w.race(t, me, at, kind)
	switch {
	case kind == asyncStore: // recorded when it lands
	case kind.writes():
		t.write = *me
	default:
		w.read(t, me)
	}
}

// read records a read.
func (w *warp) read(t *touch, me *mark) {
	r := &t.reads[0]
	if r.warp != me.warp || r.serial <= w.synced {
		if r.warp != me.warp {
			t.reads[1] = *r
		}
		*r = readers{warp: me.warp, strong: true}
	}
	r.serial = me.serial
	r.strong = r.strong && me.strong
	if !w.collective {
		r.lanes |= 1 << me.lane
	}
}

// race reports an access that no barrier orders after an earlier one.
func (w *warp) race(t *touch, me *mark, at int, kind accessKind) {
	if w.b.x.options.Checks&CheckShared == 0 {
		return
	}
	if x := &t.write; !w.ordered(x, me.lane) && !(x.strong && me.strong) {
		w.raced(x, me, at, "written")
	}
	if !kind.writes() {
		return
	}
	for i := range t.reads {
		x := &t.reads[i]
		if lanes, any := w.unordered(x, me.lane); any && !(x.strong && me.strong) {
			w.raced(&mark{warp: x.warp, lane: uint8(bits.TrailingZeros32(lanes))}, me, at, "read")
		}
	}
}

func (w *warp) raced(x, me *mark, at int, what string) {
	how := "no barrier"
	if int(x.warp) == w.id {
		how = "no bar.warp"
	}
	w.fail(int(me.lane), "race: byte %#x of shared memory was %s by thread %v and %s comes between", at, what, w.thread(uint32(x.warp)*32+uint32(x.lane)&31), how)
}

// pageBytes is how much memory one page of a global shadow covers.
const pageBytes = 4096

// globalShadow records which block last touched each piece of an allocation, in the launch that a page
// belongs to.
type globalShadow struct{ pages []*globalPage }

// globalPage records accesses of four bytes and more by word, narrower ones by byte.
type globalPage struct {
	serial uint32
	words  [pageBytes / 4]globalTouch
	bytes  *[pageBytes]globalTouch // nil until there is a narrow access
}

// globalTouch holds block numbers plus 1, with the top bit set for a strong access.
type globalTouch struct{ writer, reader uint32 }

const strongBit = 1 << 31

// globalOrder is how atomics order the blocks of a launch: a block comes after another if it accesses an
// address by an atomic after a fenced atomic of the other. Blocks run one after another while this is
// recorded.
type globalOrder struct {
	released map[uint64][]int64
	block    int64 // the block that acquired is about
	acquired map[int64]bool
	taken    map[uint64]int // how much of each released list acquired holds
}

func newGlobalOrder() *globalOrder {
	return &globalOrder{released: map[uint64][]int64{}, block: -1}
}

// atomic records an atomic at an address.
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
		me := uint32(w.b.id+1) &^ strongBit
		if kind.strong() {
			me |= strongBit
		}
		w.touchGlobal(a, l, at, n, me, kind)
	}
}

// touchGlobal checks a lane's access for races between blocks and records it.
func (w *warp) touchGlobal(a *allocation, l, at, n int, me uint32, kind accessKind) {
	p := a.page(at, w.b.x.serial)
	addr, in := a.base+uint64(at), at%pageBytes
	if n < 4 {
		if p.bytes == nil {
			p.bytes = new([pageBytes]globalTouch)
		}
		w.raceGlobal(l, &p.words[in/4], me, addr, kind)
		for i := in; i < in+n; i++ {
			w.raceGlobal(l, &p.bytes[i], me, addr, kind)
			p.bytes[i].record(me, kind)
		}
		return
	}
	for i := in / 4; i < (in+n)/4; i++ {
		w.raceGlobal(l, &p.words[i], me, addr, kind)
		p.words[i].record(me, kind)
	}
	if p.bytes != nil {
		for i := in; i < in+n; i++ {
			w.raceGlobal(l, &p.bytes[i], me, addr, kind)
		}
	}
}

func (t *globalTouch) record(me uint32, kind accessKind) {
	if kind.writes() {
		t.writer = me
	} else {
		t.reader = me
	}
}

func (w *warp) raceGlobal(l int, t *globalTouch, me uint32, addr uint64, kind accessKind) {
	w.orderedGlobal(l, t.writer, me, addr, "written")
	if kind.writes() {
		w.orderedGlobal(l, t.reader, me, addr, "read")
	}
}

func (w *warp) orderedGlobal(l int, other, me uint32, addr uint64, what string) {
	if other == 0 || (other^me)&^strongBit == 0 || other&me&strongBit != 0 {
		return
	}
	block := int64(other&^strongBit) - 1
	if w.b.x.order.before(block, w.b.id) {
		return
	}
	w.fail(l, "race: global memory at %#x was %s by block %d of the same launch, and nothing orders the two", addr, what, block)
}

// page returns the shadow page for an offset, cleared if it is from an earlier launch.
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
