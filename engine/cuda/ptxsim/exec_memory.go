package ptxsim

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

var memoryOps = map[string]func(c *compiler) error{
	"ld": (*compiler).load, "ldu": (*compiler).load, "st": (*compiler).store,
	"atom": (*compiler).atomic, "red": (*compiler).atomic,
	"cp": (*compiler).copyAsync, "prefetch": (*compiler).hint, "prefetchu": (*compiler).hint, "applypriority": (*compiler).hint,
	"membar": (*compiler).fence, "fence": (*compiler).fence,
}

// accessKind is what kind of access the checks see.
type accessKind uint8

const (
	plainLoad accessKind = iota
	plainStore
	strongLoad // volatile, relaxed, acquire: does not race with other strong accesses
	strongStore
	atomicAccess
	asyncStore   // cp.async, when it is issued
	constantLoad // ld.global.nc, whose cache no write reaches
)

func (k accessKind) writes() bool {
	return k == plainStore || k == strongStore || k == atomicAccess || k == asyncStore
}
func (k accessKind) strong() bool { return k == strongLoad || k == strongStore || k == atomicAccess }

// spaceOf finds the window of a generic address and the address within it.
func spaceOf(a uint64) (space, uint64) {
	switch {
	case a >= sharedWindow && a < sharedWindow+windowSize:
		return shared, a - sharedWindow
	case a >= localWindow && a < localWindow+windowSize:
		return local, a - localWindow
	}
	return global, a
}

// addresses computes w.addr.
func (w *warp) addresses(p *pointer) {
	if p.base.class == classD {
		b := &w.d[p.base.index]
		for i := range w.addr {
			w.addr[i] = b[i] + p.off
		}
		return
	}
	b := &w.r[p.base.index]
	for i := range w.addr {
		w.addr[i] = uint64(b[i] + uint32(p.off))
	}
}

// resolve finds the memory of n bytes at w.addr for those lanes of m that access the same memory as the
// first. It returns that memory and those lanes, and puts their offsets into w.off.
func (w *warp) resolve(sp space, m uint32, n int, kind accessKind) (mem []byte, lanes uint32) {
	first := bits.TrailingZeros32(m)
	if sp == generic {
		var same uint32
		s0, _ := spaceOf(w.addr[first])
		for k := m; k != 0; k &= k - 1 {
			l := bits.TrailingZeros32(k)
			if s, a := spaceOf(w.addr[l]); s == s0 {
				same |= 1 << l
				w.addr[l] = a
			}
		}
		sp, m = s0, same
	}
	mask := uint64(n - 1)
	size := uint64(n)
	switch sp {
	case shared:
		mem = w.b.shared
		limit := uint64(len(mem))
		rest := m
		if m == full && w.within(0, limit, size) {
			rest = 0
		}
		for k := rest; k != 0; k &= k - 1 {
			l := bits.TrailingZeros32(k)
			a := w.addr[l]
			if a&mask != 0 {
				w.misaligned(l, sp, a, n)
			}
			if a+size > limit || a > limit {
				w.fail(l, "out of bounds: %d bytes at %#x of shared memory, which has %d", n, a, limit)
			}
			w.off[l] = int(a)
		}
		if w.b.shadow != nil {
			w.checkShared(m, n, kind)
		}
		if w.b.tally != nil {
			w.countShared(m, n)
		}
		return mem, m
	case local:
		return w.resolveLocal(m, n)
	case param:
		mem = w.b.x.params
		for k := m; k != 0; k &= k - 1 {
			l := bits.TrailingZeros32(k)
			a := w.addr[l]
			if a&mask != 0 {
				w.misaligned(l, sp, a, n)
			}
			if a+size > uint64(len(mem)) || a > uint64(len(mem)) {
				w.fail(l, "out of bounds: %d bytes at %#x of the parameters, which have %d", n, a, len(mem))
			}
			w.off[l] = int(a)
		}
		return mem, m
	}
	a0 := w.addr[first]
	a := w.lastAlloc
	if a == nil || a0-a.base >= uint64(len(a.mem)) {
		if a = w.b.x.mem.find(a0); a == nil {
			w.misalignedFirst(first, a0, n)
			w.fail(first, "out of bounds: %d bytes at %#x of global memory: %s", n, a0, w.b.x.mem.describe(a0))
		}
		w.lastAlloc = a
	}
	limit := uint64(len(a.mem))
	rest := m
	if m == full && w.within(a.base, limit, size) {
		lanes, rest = full, 0
	}
	for k := rest; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		at := w.addr[l]
		if at&mask != 0 {
			w.misaligned(l, global, at, n)
		}
		o := at - a.base
		if o+size > limit || o >= limit {
			if o < limit || w.b.x.mem.find(at) == nil {
				w.fail(l, "out of bounds: %d bytes at %#x of global memory: %s", n, at, w.b.x.mem.describe(at))
			}
			continue // in another allocation
		}
		w.off[l] = int(o)
		lanes |= 1 << l
	}
	if kind.writes() && a.readOnly {
		w.fail(first, "a write to a constant at %#x", a0)
	}
	if a.valid != nil || w.b.x.order != nil {
		w.checkGlobal(a, lanes, n, kind)
	}
	if w.b.tally != nil {
		w.countGlobal(lanes, n, kind)
	}
	return a.mem, lanes
}

// within puts the offsets of all lanes' addresses from a base into w.off, and reports whether all accesses of n bytes are
// aligned and in the size bytes from there.
func (w *warp) within(base, size, n uint64) bool {
	if size < n {
		return false
	}
	low, outside := span(&w.off, &w.addr, base, size-n)
	return low&(n-1) == 0 && outside>>63 == 0
}

func (w *warp) misalignedFirst(l int, a uint64, n int) {
	if a&uint64(n-1) != 0 {
		w.misaligned(l, global, a, n)
	}
}

func (w *warp) misaligned(l int, sp space, a uint64, n int) {
	w.fail(l, "misaligned: %d bytes at %#x of %s memory", n, a, sp)
}

func (w *warp) resolveLocal(m uint32, n int) ([]byte, uint32) {
	size := w.b.x.k.local
	base := w.id * 32 * int(size)
	lanesOf(m, func(l int) {
		a := w.addr[l]
		if a&uint64(n-1) != 0 {
			w.misaligned(l, local, a, n)
		}
		if a+uint64(n) > size || a > size {
			w.fail(l, "out of bounds: %d bytes at %#x of local memory, which has %d", n, a, size)
		}
		w.off[l] = base + l*int(size) + int(a)
	})
	return w.b.local, m
}

// cacheHints change nothing that is modeled.
var cacheHints = []string{"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc",
	"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
	"L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"}

var strengths = []string{"volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys"}

// memoryOptions are the parts of an opcode that ld and st take.
var memoryOptions = slices.Concat([]string{"v2", "v4", "global", "shared", "shared::cta", "local", "param", "const", "param::entry", "param::func"}, cacheHints, strengths)

// memoryOp is what ld and st have in common.
type memoryOp struct {
	typ   typ
	space space
	count int
	kind  accessKind
	at    pointer
	bytes int
}

// memoryOp parses an opcode of ld or st whose address is operand i.
func (c *compiler) memoryOp(i int, write bool) (o memoryOp, err error) {
	if c.has("L2::cache_hint") && len(c.args) == 3 {
		c.args = c.args[:2]
	}
	if len(c.args) != 2 {
		return o, c.errorf("%d operands, 2 are needed", len(c.args))
	}
	if o.typ, err = c.typ(0); err != nil {
		return o, err
	}
	if err := c.allow(memoryOptions...); err != nil {
		return o, err
	}
	if o.typ.size() == 0 || o.typ == tTF32 || o.typ == tBF16 || o.typ == tF16x2 || o.typ == tBF16x2 {
		return o, c.errorf("type .%s is not possible here", o.typ)
	}
	sp := generic
	for _, p := range c.parts[1:] {
		p, _, _ = strings.Cut(strings.Replace(p, "shared::cta", "shared", 1), "::")
		if s, ok := spaceNames[p]; ok {
			sp = s
		}
	}
	o.count = 1
	if c.has("v2") {
		o.count = 2
	} else if c.has("v4") {
		o.count = 4
	}
	strong := c.has("volatile") || c.has("relaxed") || c.has("acquire") || c.has("release")
	switch {
	case write && strong:
		o.kind = strongStore
	case write:
		o.kind = plainStore
	case strong:
		o.kind = strongLoad
	case c.has("nc"):
		o.kind = constantLoad
	}
	o.bytes = o.count * o.typ.size()
	if o.bytes > 16 {
		return o, c.errorf("%d bytes at once, the most is 16", o.bytes)
	}
	if o.at, err = c.pointer(i, sp); err != nil {
		return o, err
	}
	o.space = o.at.space
	if o.space == constant {
		o.space = global // constants have their own allocation
	}
	if write && o.space == param {
		return o, c.errorf("the parameters of a kernel cannot be written")
	}
	return o, nil
}

func (c *compiler) load() error {
	o, err := c.memoryOp(1, false)
	if err != nil {
		return err
	}
	names := vector(c.args[0])
	if len(names) != o.count {
		return c.errorf("%d registers for %d values", len(names), o.count)
	}
	ds, widths := make([]ref, o.count), make([]int, o.count)
	for i, n := range names {
		d, t, err := c.wide(n, o.typ, true)
		if err != nil {
			return err
		}
		ds[i], widths[i] = d, t.size()
	}
	n := o.typ.size()
	c.in.run = func(w *warp, m uint32) {
		w.addresses(&o.at)
		for m != 0 {
			mem, lanes := w.resolve(o.space, m, o.bytes, o.kind)
			for i, d := range ds {
				switch {
				case n == 4 && d.class == classR:
					loadWords(&w.r[d.index], &w.off, mem, 4*i, lanes)
				case n == 8:
					r := &w.d[d.index]
					for k := lanes; k != 0; k &= k - 1 {
						l := bits.TrailingZeros32(k)
						r[l] = binary.LittleEndian.Uint64(mem[w.off[l]+8*i:])
					}
				default:
					w.loadNarrow(d, widths[i], o.typ, mem, i*n, lanes)
				}
			}
			m &^= lanes
		}
	}
	return nil
}

// loadWords loads words from offsets that resolve has checked.
func loadWords(r *lanes32, off *offsets, mem []byte, plus int, lanes uint32) {
	at := unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), plus)
	if lanes == full {
		for l := range r {
			r[l] = *(*uint32)(unsafe.Add(at, off[l]))
		}
		return
	}
	for k := lanes; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		r[l] = *(*uint32)(unsafe.Add(at, off[l]))
	}
}

// storeWords stores words at offsets that resolve has checked.
func storeWords(mem []byte, plus int, off *offsets, r *lanes32, lanes uint32) {
	at := unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), plus)
	for k := lanes; k != 0; k &= k - 1 {
		l := bits.TrailingZeros32(k)
		*(*uint32)(unsafe.Add(at, off[l])) = r[l]
	}
}

// loadNarrow loads values into registers that may be wider; signed types are sign-extended.
func (w *warp) loadNarrow(d ref, width int, t typ, mem []byte, plus int, lanes uint32) {
	n := t.size()
	lanesOf(lanes, func(l int) {
		v := loadBytes(mem[w.off[l]+plus:], n)
		if t.signed() {
			v = truncate(uint64(extend(v, n)), width)
		}
		w.set(d, l, v)
	})
}

func loadBytes(b []byte, n int) uint64 {
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func storeBytes(b []byte, n int, v uint64) {
	switch n {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

func (c *compiler) store() error {
	o, err := c.memoryOp(0, true)
	if err != nil {
		return err
	}
	names := vector(c.args[1])
	if len(names) != o.count {
		return c.errorf("%d registers for %d values", len(names), o.count)
	}
	ss := make([]ref, o.count)
	for i, n := range names {
		if ss[i], _, err = c.wide(n, o.typ, false); err != nil {
			return err
		}
	}
	n := o.typ.size()
	c.in.run = func(w *warp, m uint32) {
		w.addresses(&o.at)
		for m != 0 {
			mem, lanes := w.resolve(o.space, m, o.bytes, o.kind)
			for i, s := range ss {
				if n == 4 && s.class == classR {
					storeWords(mem, 4*i, &w.off, &w.r[s.index], lanes)
					continue
				}
				for k := lanes; k != 0; k &= k - 1 {
					l := bits.TrailingZeros32(k)
					storeBytes(mem[w.off[l]+n*i:], n, w.get(s, l))
				}
			}
			m &^= lanes
		}
	}
	return nil
}

func (c *compiler) hint() error {
	c.in.run = func(*warp, uint32) {}
	c.in.pipe = PipeControl
	return nil
}

// fence compiles a memory fence; one warp's accesses already happen in the order of the text.
func (c *compiler) fence() error {
	if err := c.allow("gl", "cta", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release"); err != nil {
		return err
	}
	if len(c.args) != 0 {
		return c.errorf("%d operands, none is needed", len(c.args))
	}
	wide := !c.has("cta")
	c.in.run = func(w *warp, _ uint32) {
		if wide {
			w.fenced = true
		}
	}
	return nil
}

// atomic compiles atom and red. Lanes execute one after another, the lowest first; so do blocks, as atomics
// show their order.
func (c *compiler) atomic() error {
	returns := c.parts[0] == "atom"
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	ops := []string{"and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max"}
	allowed := append(append([]string{"global", "shared", "shared::cta", "noftz", "L2::cache_hint"}, strengths...), ops...)
	if err := c.allow(allowed...); err != nil {
		return err
	}
	name, sp := "", generic
	for _, p := range c.parts[1:] {
		for _, o := range ops {
			if o == p {
				name = p
			}
		}
		if s, ok := spaceNames[p]; ok {
			sp = s
		}
	}
	operands := 2
	if name == "cas" {
		operands = 3
	}
	at := 0
	if returns {
		at, operands = 1, operands+1
	}
	if len(c.args) != operands {
		return c.errorf("%d operands, %d are needed", len(c.args), operands)
	}
	f, err := c.atomicFunction(t, name)
	if err != nil {
		return err
	}
	p, err := c.pointer(at, sp)
	if err != nil {
		return err
	}
	b, err := c.src(at+1, t)
	if err != nil {
		return err
	}
	x := b
	if name == "cas" {
		if !returns {
			return c.errorf("red has no .cas")
		}
		if x, err = c.src(at+2, t); err != nil {
			return err
		}
	}
	var d ref
	if returns {
		if d, err = c.dst(t); err != nil {
			return err
		}
	}
	n := t.size()
	c.k.atomics = c.k.atomics || sp != shared
	c.in.run = func(w *warp, m uint32) {
		w.addresses(&p)
		for m != 0 {
			mem, lanes := w.resolve(p.space, m, n, atomicAccess)
			for k := lanes; k != 0; k &= k - 1 {
				l := bits.TrailingZeros32(k)
				old := loadBytes(mem[w.off[l]:], n)
				storeBytes(mem[w.off[l]:], n, f(old, w.get(b, l), w.get(x, l)))
				if returns {
					w.set(d, l, old)
				}
			}
			m &^= lanes
		}
	}
	return nil
}

// atomicFunction returns a function that computes the new value from the old one and the operands.
func (c *compiler) atomicFunction(t typ, name string) (func(old, b, x uint64) uint64, error) {
	n := t.size()
	if t.float() {
		if name != "add" {
			return nil, c.errorf(".%s is not possible for .%s", name, t)
		}
		if t == tF64 {
			return func(old, b, _ uint64) uint64 {
				return math.Float64bits(math.Float64frombits(old) + math.Float64frombits(b))
			}, nil
		}
		f := formatOf(t)
		x := manner{ftz: t == tF32} // global atomics on .f32 flush subnormals on all cards
		return packed(t, func(old, b, _ uint64) uint64 { return x.finish(f, sumOdd(x.operand(f, old), x.operand(f, b))) }), nil
	}
	if n < 4 && !(name == "cas" && n == 2) {
		return nil, c.errorf("type .%s is not possible here", t)
	}
	less := func(a, b uint64) bool { return a < b }
	if t.signed() {
		less = func(a, b uint64) bool { return extend(a, n) < extend(b, n) }
	}
	switch name {
	case "and":
		return func(old, b, _ uint64) uint64 { return old & b }, nil
	case "or":
		return func(old, b, _ uint64) uint64 { return old | b }, nil
	case "xor":
		return func(old, b, _ uint64) uint64 { return old ^ b }, nil
	case "exch":
		return func(_, b, _ uint64) uint64 { return b }, nil
	case "add":
		return func(old, b, _ uint64) uint64 { return truncate(old+b, n) }, nil
	case "inc":
		return func(old, b, _ uint64) uint64 {
			if old >= b {
				return 0
			}
			return old + 1
		}, nil
	case "dec":
		return func(old, b, _ uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		}, nil
	case "min":
		return func(old, b, _ uint64) uint64 {
			if less(b, old) {
				return b
			}
			return old
		}, nil
	case "max":
		return func(old, b, _ uint64) uint64 {
			if less(old, b) {
				return b
			}
			return old
		}, nil
	case "cas":
		return func(old, b, x uint64) uint64 {
			if old == b {
				return x
			}
			return old
		}, nil
	}
	return nil, c.errorf("an operation is missing")
}

// asyncCopy is one cp.async of a warp that has not landed. Copies land as late as allowed: when they are
// waited for.
type asyncCopy struct {
	lanes uint32
	dst   [32]int    // offsets in shared memory
	src   [32]uint64 // addresses
	n     int
	take  [32]uint8  // bytes to copy; the rest is filled with zeros
	group [32]uint32 // the group that it will be, or is, committed with
}

func (c *compiler) copyAsync() error {
	if !c.has("async") {
		return c.errorf("only cp.async is modeled")
	}
	switch {
	case c.has("commit_group"):
		c.in.run = func(w *warp, m uint32) { lanesOf(m, func(l int) { w.commits[l]++ }) }
		return nil
	case c.has("wait_all"):
		c.in.run = func(w *warp, m uint32) { w.land(m, 0, true) }
		return nil
	case c.has("wait_group"):
		s, err := c.arg(0)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(s, 0, 16)
		if err != nil {
			return c.errorf("%q is not a number of groups", s)
		}
		c.in.run = func(w *warp, m uint32) { w.land(m, uint32(n), false) }
		return nil
	}
	return c.copyIssue()
}

func (c *compiler) copyIssue() error {
	if err := c.allow("async", "ca", "cg", "shared", "shared::cta", "global", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"); err != nil {
		return err
	}
	if c.has("L2::cache_hint") && len(c.args) > 3 {
		c.args = c.args[:len(c.args)-1]
	}
	if len(c.args) != 3 && len(c.args) != 4 {
		return c.errorf("%d operands, 3 or 4 are needed", len(c.args))
	}
	dst, err := c.pointer(0, shared)
	if err != nil {
		return err
	}
	src, err := c.pointer(1, global)
	if err != nil {
		return err
	}
	size, err := strconv.ParseUint(c.args[2], 0, 8)
	if err != nil || size != 16 && (c.has("cg") || size != 4 && size != 8) {
		return c.errorf("a copy of %s bytes", c.args[2])
	}
	n := int(size)
	var some ref
	if len(c.args) == 4 {
		if some, err = c.src(3, tU32); err != nil {
			return err
		}
	}
	partial := len(c.args) == 4
	c.in.run = func(w *warp, m uint32) {
		x := w.newCopy()
		x.lanes, x.n, x.group = m, n, w.commits
		reads := m
		lanesOf(m, func(l int) {
			x.take[l] = uint8(n)
			if partial {
				k := w.get(some, l)
				if k > uint64(n) {
					w.fail(l, "a source of %d bytes for a copy of %d", k, n)
				}
				if x.take[l] = uint8(k); k == 0 {
					reads &^= 1 << l
				}
			}
		})
		w.addresses(&src)
		x.src = w.addr
		if partial {
			lanesOf(reads, func(l int) {
				if x.take[l] < uint8(n) {
					w.checkPart(l, n, int(x.take[l]))
					reads &^= 1 << l
				}
			})
		}
		for reads != 0 {
			_, lanes := w.resolve(global, reads, n, plainLoad)
			reads &^= lanes
		}
		w.addresses(&dst)
		w.resolve(shared, m, n, asyncStore)
		x.dst = w.off
	}
	return nil
}

// checkPart checks the source of a copy of which fewer than n bytes are read.
func (w *warp) checkPart(l, n, take int) {
	a := w.addr[l]
	if a%uint64(n) != 0 {
		w.misaligned(l, global, a, n)
	}
	if _, err := w.b.x.mem.Bytes(a, take); err != nil {
		w.fail(l, "out of bounds: %v", err)
	}
}

// newCopy appends a copy to w.copies.
func (w *warp) newCopy() *asyncCopy {
	if n := len(w.copies); n < cap(w.copies) {
		w.copies = w.copies[:n+1]
	} else {
		w.copies = append(w.copies, asyncCopy{})
	}
	return &w.copies[len(w.copies)-1]
}

// land completes the lanes' copies, except those of the last `keep` groups committed, or all of them.
func (w *warp) land(m uint32, keep uint32, all bool) {
	kept := 0
	for i := range w.copies {
		x := &w.copies[i]
		for k := x.lanes & m; k != 0; k &= k - 1 {
			l := bits.TrailingZeros32(k)
			if !all && (w.commits[l] < keep || x.group[l] >= w.commits[l]-keep) {
				continue
			}
			w.landLane(x, l)
			x.lanes &^= 1 << l
		}
		if x.lanes == 0 {
			continue
		}
		if kept != i {
			w.copies[kept] = *x
		}
		kept++
	}
	w.copies = w.copies[:kept]
}

func (w *warp) landLane(x *asyncCopy, l int) {
	to := w.b.shared[x.dst[l] : x.dst[l]+x.n]
	take := int(x.take[l])
	if take > 0 {
		a := w.lastAlloc
		if a == nil || x.src[l]-a.base >= uint64(len(a.mem)) {
			a = w.b.x.mem.find(x.src[l])
			w.lastAlloc = a
		}
		copy(to[:take], a.mem[x.src[l]-a.base:])
	}
	clear(to[take:])
	if w.b.shadow != nil {
		w.b.shadow.landed(w, l, x.dst[l], x.n)
	}
}
