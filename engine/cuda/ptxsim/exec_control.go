package ptxsim

import (
	"fmt"
	"math/bits"
	"strings"
)

var controlOps map[string]func(c *compiler) error

func init() { // in init, as the table and (*compiler).call refer to each other
	controlOps = map[string]func(c *compiler) error{
		"bra": (*compiler).bra, "brx": (*compiler).brx, "ret": (*compiler).ret, "exit": (*compiler).exit, "trap": (*compiler).trap,
		"call": (*compiler).call, "bar": (*compiler).bar, "barrier": (*compiler).bar,
		"nanosleep": (*compiler).nanosleep, "pmevent": (*compiler).hint,
	}
}

func (c *compiler) bra() error {
	if err := c.allow("uni"); err != nil {
		return err
	}
	name, err := c.arg(0)
	if err != nil {
		return err
	}
	at, ok := c.st.scope.label(name)
	if !ok {
		return c.errorf("label %s is not defined", name)
	}
	c.jump(at)
	return nil
}

// brx compiles a branch to a label that an index selects from a table.
func (c *compiler) brx() error {
	if err := c.allow("idx", "uni"); err != nil {
		return err
	}
	if len(c.args) != 2 || !c.has("idx") {
		return c.errorf("an index and a table are needed")
	}
	var names []string
	for sc := c.st.scope; sc != nil && names == nil; sc = sc.up {
		names = sc.tables[c.args[1]]
	}
	index, err := c.read(c.args[0], tU32)
	if err != nil {
		return err
	}
	table := make([]int, len(names))
	for i, name := range names {
		at, ok := c.st.scope.label(name)
		if !ok {
			return c.errorf("label %s is not defined", name)
		}
		table[i] = at
	}
	if len(table) == 0 {
		return c.errorf("%s is not a table of labels", c.args[1])
	}
	at := c.inst.at // filled in completely once the function is compiled
	c.in.control = branchTable
	c.in.target = func(w *warp, l int) int {
		i := w.r[index.index][l]
		if int64(i) >= int64(len(table)) {
			w.fail(l, "index %d of a table of %d labels", i, len(table))
		}
		return at[table[i]]
	}
	return nil
}

// jump makes the instruction a branch to a statement of this instance.
func (c *compiler) jump(statement int) {
	c.in.control = branch
	c.inst.fixes = append(c.inst.fixes, fix{len(c.k.code), statement})
}

func (c *compiler) ret() error {
	if err := c.allow("uni"); err != nil {
		return err
	}
	if c.inst.up != nil {
		c.jump(len(c.inst.fn.body))
		return nil
	}
	return c.exit()
}

func (c *compiler) exit() error {
	c.in.control = leave
	return c.allow("uni")
}

func (c *compiler) trap() error {
	c.in.run = func(w *warp, m uint32) { w.fail(bits.TrailingZeros32(m), "the kernel traps") }
	return c.allow()
}

func (c *compiler) nanosleep() error {
	if _, err := c.src(0, tU32); err != nil {
		return err
	}
	c.in.run = func(*warp, uint32) {}
	return c.allow("u32")
}

// call inlines a function: its parameters are the caller's memory or registers.
func (c *compiler) call() error {
	if err := c.allow("uni"); err != nil {
		return err
	}
	args := c.args
	var rets, actual []string
	if len(args) > 0 && strings.HasPrefix(args[0], "(") {
		rets, args = split(strings.Trim(args[0], "() ")), args[1:]
	}
	if len(args) == 0 || len(args) > 2 {
		return c.errorf("a function is missing; indirect calls are not modeled")
	}
	if len(args) == 2 {
		actual = split(strings.Trim(args[1], "() "))
	}
	f := c.m.funcs[args[0]]
	if f == nil || !f.defined || f.entry {
		return c.errorf("%s is not a function that the text defines; indirect calls are not modeled", args[0])
	}
	if len(rets) != len(f.ret) || len(actual) != len(f.args) {
		return c.errorf("%s takes %d arguments and gives %d results", f.name, len(f.args), len(f.ret))
	}
	depth := 1
	for x := c.inst; x != nil; x = x.up {
		if depth++; x.fn == f {
			return c.errorf("%s calls itself, which is not modeled", f.name)
		}
	}
	if depth > maxDepth {
		return c.errorf("calls more than %d deep", maxDepth)
	}
	// A predicated call is a branch around it.
	around := -1
	st, pred, negated := c.st, c.in.pred, c.in.negated
	if pred >= 0 {
		c.in.control, c.in.negated = branch, !negated
		around = len(c.k.code)
		c.append()
	}
	in := &instance{fn: f, up: c.inst, bound: map[*symbol]binding{}}
	for i, x := range f.args {
		if err := c.pass(in, x, actual[i]); err != nil {
			return err
		}
	}
	for i, x := range f.ret {
		y := st.scope.find(rets[i])
		if y == nil || y.kind != x.kind && x.kind == symRegister || y.typ.size() != x.typ.size() && x.kind == symRegister {
			return c.errorf("%s cannot hold the result %s", rets[i], x.name)
		}
		b, err := c.bind(y)
		if err != nil {
			return err
		}
		in.bound[x] = b
	}
	if err := c.function(f, in); err != nil {
		return err
	}
	if around >= 0 {
		c.k.code[around].to = len(c.k.code)
	}
	c.st = st
	return nil
}

// pass binds a formal parameter to an actual one.
func (c *compiler) pass(in *instance, x *symbol, actual string) error {
	if x.kind != symRegister {
		y := c.st.scope.find(actual)
		if y == nil || y.kind != symParameter || y.size < x.size {
			return c.errorf("%s cannot be passed as %s", actual, x.name)
		}
		b, err := c.bind(y)
		in.bound[x] = b
		return err
	}
	outer := c.in
	defer func() { c.in = outer }()
	c.in = &inst{pred: -1, st: c.st}
	s, err := c.read(actual, x.typ)
	if err != nil {
		return err
	}
	d := c.newRegister(s.class)
	in.bound[x] = binding{ref: d}
	c.in.dst = append(c.in.dst, d)
	c.lanewise(d, [4]ref{s}, 1, func(a, _, _ uint64) uint64 { return a })
	c.append()
	return nil
}

// barrierOp is a bar instruction.
type barrierOp struct {
	id, count ref
	counted   bool
	arrive    bool // does not wait
	reduce    string
	dst, pred ref
	invert    uint32
}

// barrierState is one of a block's sixteen barriers.
type barrierState struct {
	arrived int // threads that have arrived
	count   int // threads it waits for; 0: all of the block
	waiting []*warp
	ones    int      // threads whose predicate is true
	threads int      // threads that brought a predicate
	serials []uint32 // of the warps that whoever passes comes after
	time    int64    // when the last thread arrived, for counting
}

func (c *compiler) bar() error {
	if c.has("warp") {
		return c.barWarp()
	}
	if err := c.allow("sync", "arrive", "red", "popc", "and", "or", "cta", "aligned"); err != nil {
		return err
	}
	op := &barrierOp{arrive: c.has("arrive")}
	args := c.args
	if c.has("red") {
		for _, r := range []string{"popc", "and", "or"} {
			if c.has(r) {
				op.reduce = r
			}
		}
		t, err := c.typ(0)
		if err != nil {
			return err
		}
		if len(args) < 3 || op.reduce == "" {
			return c.errorf("operands or an operation are missing")
		}
		s := args[len(args)-1]
		if strings.HasPrefix(s, "!") {
			s, op.invert = s[1:], full
		}
		if op.pred, err = c.readPredicate(s); err != nil {
			return err
		}
		if op.dst, err = c.write(args[0], t); err != nil {
			return err
		}
		args = args[1 : len(args)-1]
	}
	if len(args) == 0 || len(args) > 2 || op.arrive && len(args) < 2 {
		return c.errorf("%d operands", len(c.args))
	}
	var err error
	if op.id, err = c.read(args[0], tU32); err != nil {
		return err
	}
	if len(args) == 2 {
		op.counted = true
		if op.count, err = c.read(args[1], tU32); err != nil {
			return err
		}
	}
	c.in.control, c.in.bar = barrier, op
	return nil
}

func (c *compiler) barWarp() error {
	if err := c.allow("warp", "sync"); err != nil {
		return err
	}
	r, err := c.src(0, tB32)
	if err != nil {
		return err
	}
	c.in.control, c.in.members = agreed, r
	c.in.run = func(w *warp, _ uint32) { w.synced = w.serial } // for all lanes, whatever the mask
	return nil
}

// arrive adds a warp to a barrier.
func (w *warp) arrive(in *inst) {
	op := in.bar
	l := bits.TrailingZeros32(w.live)
	id := w.get(op.id, l)
	if id > 15 {
		w.fail(l, "barrier %d, there are 16", id)
	}
	s := &w.b.bars[id]
	count := 0
	if op.counted {
		count = int(w.get(op.count, l))
		if count == 0 || count%32 != 0 || count > 1024 {
			w.fail(l, "a barrier of %d threads, which is not a multiple of the warp's size", count)
		}
	}
	if s.arrived > 0 && s.count != count {
		w.fail(l, "a barrier of %d threads where others of the block wait for %d", count, s.count)
	}
	s.count = count
	s.arrived += 32
	if op.reduce != "" {
		s.ones += bits.OnesCount32((w.p[op.pred.index] ^ op.invert) & w.live)
		s.threads += bits.OnesCount32(w.live)
	}
	if s.serials == nil {
		s.serials = make([]uint32, len(w.b.warps))
	}
	for i, v := range w.seen {
		s.serials[i] = max(s.serials[i], v)
	}
	s.serials[w.id] = w.serial
	w.synced = w.serial
	if w.timing != nil {
		s.time = max(s.time, w.timing.from)
	}
	if op.arrive {
		return
	}
	w.state, w.bar = atBarrier, op
	s.waiting = append(s.waiting, w)
}

// release releases warps whose barriers are complete, and reports whether there were any.
func (b *block) release() bool {
	any := false
	for i := range b.bars {
		s := &b.bars[i]
		if s.arrived == 0 {
			continue
		}
		want := s.count
		if want == 0 {
			for _, w := range b.warps {
				if w.state != done {
					want += 32
				}
			}
		}
		if s.arrived < want {
			continue
		}
		if s.arrived > want {
			w := b.warps[0]
			if len(s.waiting) > 0 {
				w = s.waiting[0]
			}
			w.fail(0, "%d threads at a barrier of %d", s.arrived, want)
		}
		for _, w := range s.waiting {
			w.pass(s)
		}
		any = true
		*s = barrierState{}
	}
	return any
}

// pass takes a warp through a complete barrier.
func (w *warp) pass(s *barrierState) {
	for i, v := range s.serials {
		w.seen[i] = max(w.seen[i], v)
	}
	if w.timing != nil {
		w.timing.after(s.time)
	}
	op := w.bar
	v := uint64(s.ones)
	switch op.reduce {
	case "and":
		v = 0
		if s.ones == s.threads {
			v = 1
		}
	case "or":
		v = min(v, 1)
	}
	if op.reduce != "" {
		lanesOf(w.live, func(l int) { w.set(op.dst, l, v) })
	}
	w.state, w.bar = running, nil
}

// stuck fails for a block in which no warp can continue.
func (b *block) stuck() {
	var at *warp
	ended := 0
	list := ""
	for _, w := range b.warps {
		switch w.state {
		case done:
			ended++
		case atBarrier:
			if at == nil {
				at = w
			}
			if len(list) < 200 {
				list += fmt.Sprintf(" warp %d at line %d,", w.id, w.cur.st.line)
			}
		}
	}
	at.fail(bits.TrailingZeros32(at.live), "the block waits at barriers that are never complete:%s %d warps have ended", list, ended)
}
