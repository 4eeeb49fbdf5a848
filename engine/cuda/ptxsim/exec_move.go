package ptxsim

import (
	"math"
	"math/bits"
	"strings"
)

var moveOps = map[string]func(c *compiler) error{
	"mov": (*compiler).mov, "cvt": (*compiler).cvt, "cvta": (*compiler).cvta,
	"setp": (*compiler).setp, "set": (*compiler).set, "selp": (*compiler).selp, "slct": (*compiler).slct,
	"isspacep": (*compiler).isspacep, "createpolicy": (*compiler).createpolicy,
}

func (c *compiler) mov() error {
	t, err := c.typed(2)
	if err != nil {
		return err
	}
	if t.size() == 1 || t == tBF16 || t == tTF32 || t == tBF16x2 {
		return c.errorf("type .%s is not possible here", t)
	}
	switch {
	case strings.HasPrefix(c.args[0], "{"):
		return c.unpack(t)
	case strings.HasPrefix(c.args[1], "{"):
		return c.pack(t)
	case strings.HasPrefix(c.args[1], "%clock") || strings.HasPrefix(c.args[1], "%globaltimer"):
		return c.clock(t)
	}
	d, s, err := c.operands(t, t)
	if err != nil {
		return err
	}
	di, si := d.index, s[0].index
	switch d.class {
	case classR:
		c.in.run = func(w *warp, m uint32) {
			if m == full {
				w.r[di] = w.r[si]
				return
			}
			merge32(&w.r[di], &w.r[si], m)
		}
	case classD:
		c.in.run = func(w *warp, m uint32) {
			if m == full {
				w.d[di] = w.d[si]
				return
			}
			merge64(&w.d[di], &w.d[si], m)
		}
	default:
		c.in.run = func(w *warp, m uint32) { w.p[di] = w.p[di]&^m | w.p[si]&m }
	}
	return nil
}

// part returns the type of one of n elements of a packed register.
func (c *compiler) part(t typ, n int) (typ, error) {
	if n == 2 || n == 4 {
		switch t.size() / n {
		case 1:
			return tB8, nil
		case 2:
			return tB16, nil
		case 4:
			return tB32, nil
		}
	}
	return 0, c.errorf("%d elements of .%s", n, t)
}

func (c *compiler) unpack(t typ) error {
	names := vector(c.args[0])
	et, err := c.part(t, len(names))
	if err != nil {
		return err
	}
	s, err := c.src(1, t)
	if err != nil {
		return err
	}
	var ds []ref
	for _, n := range names {
		d, err := c.write(n, et)
		if err != nil {
			return err
		}
		ds = append(ds, d)
	}
	n := et.size()
	c.in.run = func(w *warp, m uint32) {
		for ; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			v := w.get(s, l)
			for _, d := range ds {
				w.r[d.index][l] = uint32(truncate(v, n))
				v >>= 8 * n
			}
		}
	}
	return nil
}

func (c *compiler) pack(t typ) error {
	names := vector(c.args[1])
	et, err := c.part(t, len(names))
	if err != nil {
		return err
	}
	d, err := c.dst(t)
	if err != nil {
		return err
	}
	var ss []ref
	for _, n := range names {
		s, err := c.read(n, et)
		if err != nil {
			return err
		}
		ss = append(ss, s)
	}
	n := et.size()
	c.in.run = func(w *warp, m uint32) {
		for ; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			v := uint64(0)
			for i, s := range ss {
				v |= uint64(w.r[s.index][l]) << (8 * n * i)
			}
			w.set(d, l, v)
		}
	}
	return nil
}

// clock compiles a read of a clock, which counts the warp's instructions.
func (c *compiler) clock(t typ) error {
	d, err := c.dst(t)
	if err != nil {
		return err
	}
	upper := strings.HasSuffix(c.args[1], "_hi")
	c.in.run = func(w *warp, m uint32) {
		w.ticks++
		v := w.ticks
		if upper {
			v >>= 32
		}
		lanesOf(m, func(l int) { w.set(d, l, v) })
	}
	return nil
}

func (c *compiler) cvta() error {
	to := c.has("to")
	sp := generic
	for _, p := range c.parts[1:] {
		if s, ok := spaceNames[p]; ok {
			sp = s
		}
	}
	if err := c.allow("to", "global", "shared", "shared::cta", "local", "const", "param"); err != nil {
		return err
	}
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	if t != tU64 || sp == generic || sp == param {
		return c.errorf("only 64-bit addresses of .global, .shared, .local and .const are modeled")
	}
	base := uint64(0)
	switch sp {
	case shared:
		base = sharedWindow
	case local:
		base = localWindow
	}
	if to {
		base = -base
	}
	return c.lane(t, []typ{t}, func(a, _, _ uint64) uint64 { return a + base })
}

func (c *compiler) isspacep() error {
	if err := c.allow("global", "shared", "shared::cta", "local", "const"); err != nil {
		return err
	}
	if len(c.parts) != 2 {
		return c.errorf("a state space is missing")
	}
	sp := spaceNames[c.parts[1]]
	return c.lane(tPred, []typ{tU64}, func(a, _, _ uint64) uint64 {
		s, _ := spaceOf(a)
		if s == sp {
			return 1
		}
		return 0
	})
}

// createpolicy compiles a hint for caches, which are not modeled.
func (c *compiler) createpolicy() error {
	d, err := c.dst(tB64)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) { lanesOf(m, func(l int) { w.set(d, l, 0) }) }
	return nil
}

// comparison returns a function that compares two values of a type by a named operator.
func (c *compiler) comparison(t typ, name string) (func(a, b uint64) bool, error) {
	ftz := c.has("ftz")
	if t.float() {
		return c.comparisonFloat(t, name, ftz)
	}
	n := t.size()
	if alias, ok := map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[name]; ok {
		if t.signed() {
			return nil, c.errorf(".%s is for unsigned types", name)
		}
		name = alias
	}
	less := func(a, b uint64) bool { return a < b }
	if t.signed() {
		less = func(a, b uint64) bool { return extend(a, n) < extend(b, n) }
	}
	switch name {
	case "eq":
		return func(a, b uint64) bool { return a == b }, nil
	case "ne":
		return func(a, b uint64) bool { return a != b }, nil
	case "lt":
		return less, nil
	case "le":
		return func(a, b uint64) bool { return !less(b, a) }, nil
	case "gt":
		return func(a, b uint64) bool { return less(b, a) }, nil
	case "ge":
		return func(a, b uint64) bool { return !less(a, b) }, nil
	}
	return nil, c.errorf(".%s is not a comparison of .%s", name, t)
}

func (c *compiler) comparisonFloat(t typ, name string, ftz bool) (func(a, b uint64) bool, error) {
	fm, x := formatOf(t), manner{ftz: ftz}
	cmp := func(f func(a, b float64) bool) func(a, b uint64) bool {
		return func(a, b uint64) bool { return f(x.operand(fm, a), x.operand(fm, b)) }
	}
	unordered := func(a, b float64) bool { return a != a || b != b }
	switch name {
	case "eq":
		return cmp(func(a, b float64) bool { return a == b }), nil
	case "ne":
		return cmp(func(a, b float64) bool { return a != b && !unordered(a, b) }), nil
	case "lt":
		return cmp(func(a, b float64) bool { return a < b }), nil
	case "le":
		return cmp(func(a, b float64) bool { return a <= b }), nil
	case "gt":
		return cmp(func(a, b float64) bool { return a > b }), nil
	case "ge":
		return cmp(func(a, b float64) bool { return a >= b }), nil
	case "equ":
		return cmp(func(a, b float64) bool { return a == b || unordered(a, b) }), nil
	case "neu":
		return cmp(func(a, b float64) bool { return a != b }), nil
	case "ltu":
		return cmp(func(a, b float64) bool { return !(a >= b) }), nil
	case "leu":
		return cmp(func(a, b float64) bool { return !(a > b) }), nil
	case "gtu":
		return cmp(func(a, b float64) bool { return !(a <= b) }), nil
	case "geu":
		return cmp(func(a, b float64) bool { return !(a < b) }), nil
	case "num":
		return cmp(func(a, b float64) bool { return !unordered(a, b) }), nil
	case "nan":
		return cmp(unordered), nil
	}
	return nil, c.errorf(".%s is not a comparison of .%s", name, t)
}

// combine returns how setp and set combine the comparison with a predicate.
func (c *compiler) combine() func(r, p uint32) uint32 {
	switch {
	case c.has("and"):
		return func(r, p uint32) uint32 { return r & p }
	case c.has("or"):
		return func(r, p uint32) uint32 { return r | p }
	case c.has("xor"):
		return func(r, p uint32) uint32 { return r ^ p }
	}
	return nil
}

// third reads the predicate that a comparison is combined with, "p" or "!p".
func (c *compiler) third(combined bool) (p ref, invert uint32, err error) {
	want := 3
	if combined {
		want = 4
	}
	if len(c.args) != want {
		return p, 0, c.errorf("%d operands, %d are needed", len(c.args), want)
	}
	if !combined {
		return p, 0, nil
	}
	s := c.args[3]
	if strings.HasPrefix(s, "!") {
		s, invert = s[1:], full
	}
	p, err = c.readPredicate(s)
	return p, invert, err
}

func (c *compiler) setp() error {
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	if len(c.parts) < 3 || t.size() < 2 {
		return c.errorf("a comparison or a type is missing")
	}
	name := c.parts[1]
	join := c.combine()
	if err := c.allow(name, "and", "or", "xor", "ftz"); err != nil {
		return err
	}
	third, invert, err := c.third(join != nil)
	if err != nil {
		return err
	}
	both := strings.Split(c.args[0], "|")
	a, err := c.src(1, t)
	if err != nil {
		return err
	}
	b, err := c.src(2, t)
	if err != nil {
		return err
	}
	if len(both) > 2 {
		return c.errorf("%s names more than two predicates", c.args[0])
	}
	var ds [2]ref
	for i, s := range both {
		if ds[i], err = c.write(strings.TrimSpace(s), tPred); err != nil {
			return err
		}
	}
	compare, err := c.comparer(t, name, a, b)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) {
		r := compare(w, m)
		other := ^r
		if join != nil {
			p := w.p[third.index] ^ invert
			r, other = join(r, p), join(other, p)
		}
		w.p[ds[0].index] = w.p[ds[0].index]&^m | r&m
		if len(both) == 2 {
			w.p[ds[1].index] = w.p[ds[1].index]&^m | other&m
		}
	}
	return nil
}

// comparer returns a function that compares two registers and returns the lanes for which the comparison is
// true.
func (c *compiler) comparer(t typ, name string, a, b ref) (func(w *warp, m uint32) uint32, error) {
	f, err := c.comparison(t, name)
	if err != nil {
		return nil, err
	}
	if t.size() == 4 && t.integer() {
		flip := uint32(1 << 31)
		if t.signed() {
			flip = 0
		}
		switch name {
		case "lt", "lo":
			return func(w *warp, _ uint32) uint32 { return less32(&w.r[a.index], &w.r[b.index], flip) }, nil
		case "gt", "hi":
			return func(w *warp, _ uint32) uint32 { return less32(&w.r[b.index], &w.r[a.index], flip) }, nil
		case "ge", "hs":
			return func(w *warp, _ uint32) uint32 { return ^less32(&w.r[a.index], &w.r[b.index], flip) }, nil
		case "le", "ls":
			return func(w *warp, _ uint32) uint32 { return ^less32(&w.r[b.index], &w.r[a.index], flip) }, nil
		case "eq":
			return func(w *warp, _ uint32) uint32 { return equal32(&w.r[a.index], &w.r[b.index]) }, nil
		case "ne":
			return func(w *warp, _ uint32) uint32 { return ^equal32(&w.r[a.index], &w.r[b.index]) }, nil
		}
	}
	if how, ok := floatMasks[name]; ok && t == tF32 && !c.has("ftz") {
		return func(w *warp, _ uint32) uint32 { return how(compare32(&w.r[a.index], &w.r[b.index])) }, nil
	}
	return func(w *warp, m uint32) uint32 {
		r := uint32(0)
		for ; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			if f(w.get(a, l), w.get(b, l)) {
				r |= 1 << l
			}
		}
		return r
	}, nil
}

// floatMasks compute the lanes for which a comparison is true from those where a is less, equal or greater;
// in the other lanes an operand is NaN.
var floatMasks = map[string]func(lt, eq, gt uint32) uint32{
	"eq": func(_, eq, _ uint32) uint32 { return eq }, "neu": func(_, eq, _ uint32) uint32 { return ^eq },
	"ne": func(lt, _, gt uint32) uint32 { return lt | gt }, "equ": func(lt, _, gt uint32) uint32 { return ^(lt | gt) },
	"lt": func(lt, _, _ uint32) uint32 { return lt }, "geu": func(lt, _, _ uint32) uint32 { return ^lt },
	"le": func(lt, eq, _ uint32) uint32 { return lt | eq }, "gtu": func(lt, eq, _ uint32) uint32 { return ^(lt | eq) },
	"gt": func(_, _, gt uint32) uint32 { return gt }, "leu": func(_, _, gt uint32) uint32 { return ^gt },
	"ge": func(_, eq, gt uint32) uint32 { return gt | eq }, "ltu": func(_, eq, gt uint32) uint32 { return ^(gt | eq) },
	"num": func(lt, eq, gt uint32) uint32 { return lt | eq | gt }, "nan": func(lt, eq, gt uint32) uint32 { return ^(lt | eq | gt) },
}

func compare32(a, b *lanes32) (lt, eq, gt uint32) {
	for i := range a {
		x, y := f32(a[i]), f32(b[i])
		bit := uint32(1) << i
		switch {
		case x < y:
			lt |= bit
		case x == y:
			eq |= bit
		case x > y:
			gt |= bit
		}
	}
	return lt, eq, gt
}

// set is setp with a result in a register: all ones, or 1.0.
func (c *compiler) set() error {
	ts, err := c.typ(0)
	if err != nil {
		return err
	}
	td, err := c.typ(1)
	if err != nil {
		return err
	}
	name := c.parts[1]
	join := c.combine()
	if err := c.allow(name, "and", "or", "xor", "ftz"); err != nil {
		return err
	}
	third, invert, err := c.third(join != nil)
	if err != nil {
		return err
	}
	if td == tF16x2 || ts == tF16x2 || td == tBF16x2 || ts == tBF16x2 {
		return c.errorf("packed forms of set are not modeled")
	}
	a, err := c.src(1, ts)
	if err != nil {
		return err
	}
	b, err := c.src(2, ts)
	if err != nil {
		return err
	}
	d, err := c.dst(td)
	if err != nil {
		return err
	}
	compare, err := c.comparer(ts, name, a, b)
	if err != nil {
		return err
	}
	yes := truncate(math.MaxUint64, td.size())
	if td.float() {
		yes = formatOf(td).round(1, toNearest)
		if td == tF64 {
			yes = math.Float64bits(1)
		}
	}
	c.in.run = func(w *warp, m uint32) {
		r := compare(w, m)
		if join != nil {
			r = join(r, w.p[third.index]^invert)
		}
		lanesOf(m, func(l int) {
			v := uint64(0)
			if r>>l&1 == 1 {
				v = yes
			}
			w.set(d, l, v)
		})
	}
	return nil
}

func (c *compiler) selp() error {
	t, err := c.typed(4)
	if err != nil {
		return err
	}
	if t.size() < 2 {
		return c.errorf("type .%s is not possible here", t)
	}
	d, s, err := c.operands(t, t, t, tPred)
	if err != nil {
		return err
	}
	if d.class == classR {
		c.in.run = func(w *warp, m uint32) {
			p := w.p[s[2].index]
			a, b, o := &w.r[s[0].index], &w.r[s[1].index], &w.t
			for i := range o {
				keep := -(p >> i & 1)
				o[i] = a[i]&keep | b[i]&^keep
			}
			if m == full {
				w.r[d.index] = *o
				return
			}
			merge32(&w.r[d.index], o, m)
		}
		return nil
	}
	c.lanewise(d, s, 3, func(a, b, p uint64) uint64 {
		if p == 1 {
			return a
		}
		return b
	})
	return nil
}

// slct compiles slct, which chooses a if the third operand is at least zero, and b otherwise.
func (c *compiler) slct() error {
	t, err := c.typ(1)
	if err != nil {
		return err
	}
	ts, err := c.typ(0)
	if err != nil {
		return err
	}
	if err := c.allow("ftz"); err != nil {
		return err
	}
	if ts != tS32 && ts != tF32 {
		return c.errorf("type .%s is not possible here", ts)
	}
	return c.lane(t, []typ{t, t, ts}, func(a, b, x uint64) uint64 {
		if ts == tS32 && extend(x, 4) >= 0 || ts == tF32 && f32(uint32(x)) >= 0 {
			return a
		}
		return b
	})
}
