package ptxsim

import (
	"fmt"
	"math/bits"
)

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
		w.wrote(t, me)
	default:
		w.read(t, me)
	}
}

// wrote records a write. An atomic after the lane's own plain store, with nothing between that orders others
// after the store, does not hide it.
func (w *warp) wrote(t *touch, me *mark) {
	x := &t.write
	plain := int(x.warp) == w.id && x.serial > w.synced && !x.strong
	*x = *me
	x.strong = me.strong && !plain
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
	if x, did := w.conflict(t, me, kind); did != "" {
		w.raced(&x, me, fmt.Sprintf("byte %#x of shared memory", at), did)
	}
}

// conflict returns an earlier access within the block that nothing orders before this one, and what it did;
// nothing if there is none.
func (w *warp) conflict(t *touch, me *mark, kind accessKind) (earlier mark, did string) {
	if x := &t.write; !w.ordered(x, me.lane) && !(x.strong && me.strong) {
		return *x, "written"
	}
	if !kind.writes() {
		return mark{}, ""
	}
	for i := range t.reads {
		x := &t.reads[i]
		if lanes, any := w.unordered(x, me.lane); any && !(x.strong && me.strong) {
			return mark{warp: x.warp, lane: uint8(bits.TrailingZeros32(lanes))}, "read"
		}
	}
	return mark{}, ""
}

func (w *warp) raced(x, me *mark, where, did string) {
	how := "no barrier"
	if int(x.warp) == w.id {
		how = "no bar.warp"
	}
	w.fail(int(me.lane), "race: %s was %s by thread %v and %s comes between", where, did, w.thread(uint32(x.warp)*32+uint32(x.lane)&31), how)
}

// pageBytes is how much memory one page of a global shadow covers.
const pageBytes = 1024

// globalShadow records which threads last touched each piece of an allocation.
type globalShadow struct{ pages []*globalPage }

// globalPage records accesses of one byte by byte, of two by pairs of bytes, and wider ones by word. Each
// level is nil until there is such an access.
type globalPage [3][]globalTouch

// globalTouch holds numbers of blocks, which are those of no other launch in the same memory: what earlier
// launches left is told apart by them and need not be cleared.
type globalTouch struct {
	writer uint32    // number of the last block, with strongBit for a strong access
	reader [2]uint32 // the last two different blocks that read
	nc     uint32    // a block that read by ld.global.nc
	touch            // accesses by writer and by reader[0]
}

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
	if a.valid != nil {
		w.checkValid(a, m, n, kind)
	}
	if x.order == nil || a.readOnly {
		return
	}
	w.serial++
	for k := m; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		at := w.off[l]
		if kind == atomicAccess {
			x.order.atomic(w.b.id, a.base+uint64(at), w.fenced)
		}
		w.touchGlobal(a, &mark{w.serial, uint8(w.id), uint8(l), kind.strong()}, at, n, kind)
	}
}

// checkValid checks that what is read has been written, and marks what is written.
func (w *warp) checkValid(a *allocation, m uint32, n int, kind accessKind) {
	reads := w.b.x.options.Checks&CheckUninitialized != 0 && (!kind.writes() || kind == atomicAccess)
	for k := m; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		for i := w.off[l]; i < w.off[l]+n; i++ {
			if reads && a.valid[i] == 0 {
				w.fail(l, "byte %#x of global memory is read and nothing has been written there", a.base+uint64(i))
			}
			if kind.writes() {
				a.valid[i] = 1
			}
		}
	}
}

// touchGlobal checks a lane's access for races and records it.
func (w *warp) touchGlobal(a *allocation, me *mark, at, n int, kind accessKind) {
	p := a.page(at)
	in, own := at%pageBytes, min(bits.TrailingZeros(uint(n)), 2)
	if p[own] == nil {
		p[own] = make([]globalTouch, pageBytes>>own)
	}
	for level, units := range p {
		if units == nil {
			continue
		}
		for i := in >> level; i <= (in+n-1)>>level; i++ {
			t := &units[i]
			w.raceGlobal(t, me, a, at, kind)
			if level == own {
				w.recordGlobal(t, me, kind)
			}
		}
	}
}

// raceGlobal reports an access that nothing orders after an earlier one of the same launch.
func (w *warp) raceGlobal(t *globalTouch, me *mark, a *allocation, at int, kind accessKind) {
	if w.b.other(t.writer) {
		t.write = mark{}
		w.orderedGlobal(t.writer, me, a, at, "written")
	}
	switch first := w.b.x.first; {
	case kind == constantLoad && t.writer&^strongBit >= first:
		w.fail(int(me.lane), "global memory at %#x is read by ld.global.nc and was written in the same launch, by block %d", a.base+uint64(at), t.writer&^strongBit-first)
	case kind.writes() && t.nc >= first:
		w.fail(int(me.lane), "global memory at %#x is written and was read by ld.global.nc in the same launch, by block %d", a.base+uint64(at), t.nc-first)
	}
	if kind.writes() {
		if w.b.other(t.reader[0]) {
			t.reads = [2]readers{}
			w.orderedGlobal(t.reader[0], me, a, at, "read")
		}
		w.orderedGlobal(t.reader[1], me, a, at, "read")
	}
	if x, did := w.conflict(&t.touch, me, kind); did != "" {
		w.raced(&x, me, fmt.Sprintf("global memory at %#x", a.base+uint64(at)), did)
	}
}

// other reports whether a number, perhaps with strongBit, is not this block's.
func (b *block) other(number uint32) bool { return (number^b.number)&^strongBit != 0 }

// orderedGlobal fails if the access of another block of this launch is not ordered before this one.
func (w *warp) orderedGlobal(other uint32, me *mark, a *allocation, at int, did string) {
	first := w.b.x.first
	if other&^strongBit < first || other&strongBit != 0 && me.strong {
		return
	}
	block := int64(other&^strongBit - first)
	if w.b.x.order.before(block, w.b.id) {
		return
	}
	w.fail(int(me.lane), "race: global memory at %#x was %s by block %d of the same launch, and nothing orders the two", a.base+uint64(at), did, block)
}

// recordGlobal records an access that raceGlobal has checked.
func (w *warp) recordGlobal(t *globalTouch, me *mark, kind accessKind) {
	number := w.b.number
	if me.strong {
		number |= strongBit
	}
	if kind.writes() {
		if !w.b.other(t.writer) {
			number &= t.writer // strong only if all are
		}
		t.writer = number
		w.wrote(&t.touch, me)
		return
	}
	if w.b.other(t.reader[0]) {
		t.reader[1], t.reads = t.reader[0], [2]readers{}
	} else {
		number &= t.reader[0]
	}
	t.reader[0] = number
	if kind == constantLoad {
		t.nc = w.b.number
	}
	w.read(&t.touch, me)
}

// page returns the shadow page for an offset.
func (a *allocation) page(at int) *globalPage {
	if a.shadow == nil {
		a.shadow = &globalShadow{make([]*globalPage, (len(a.mem)+pageBytes-1)/pageBytes)}
	}
	p := a.shadow.pages[at/pageBytes]
	if p == nil {
		p = &globalPage{}
		a.shadow.pages[at/pageBytes] = p
	}
	return p
}
