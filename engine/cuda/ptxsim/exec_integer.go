package ptxsim

import "math/bits"

var integerOps = map[string]func(c *compiler) error{
	"add": byType(addFloat, addInteger), "sub": byType(subFloat, subInteger),
	"mul": byType(mulFloat, mulInteger), "mad": byType(fmaFloat, madInteger),
	"div": byType(divFloat, divInteger), "rem": (*compiler).remainder,
	"min": byType(minFloat, minInteger), "max": byType(maxFloat, maxInteger),
	"abs": byType(absFloat, absInteger), "neg": byType(negFloat, negInteger),
	"mul24": (*compiler).mul24, "mad24": (*compiler).mul24, "sad": (*compiler).sad,
	"addc": (*compiler).carry, "subc": (*compiler).carry, "madc": (*compiler).carry,
	"and": (*compiler).logic, "or": (*compiler).logic, "xor": (*compiler).logic, "not": (*compiler).logic, "cnot": (*compiler).cnot,
	"lop3": (*compiler).lop3, "shl": (*compiler).shift, "shr": (*compiler).shift, "shf": (*compiler).funnel,
	"popc": (*compiler).count, "clz": (*compiler).count, "brev": (*compiler).count, "bfind": (*compiler).bfind, "fns": (*compiler).fns,
	"bfe": (*compiler).bfe, "bfi": (*compiler).bfi, "prmt": (*compiler).prmt,
	"szext": (*compiler).szext, "bmsk": (*compiler).bmsk,
	"dp4a": (*compiler).dp4a, "dp2a": (*compiler).dp2a,
}

// byType chooses a compiler by whether the opcode's last type is a float.
func byType(float, integer func(c *compiler, t typ) error) func(c *compiler) error {
	return func(c *compiler) error {
		t, err := c.typ(0)
		if err != nil {
			return err
		}
		if t.float() {
			return float(c, t)
		}
		if !t.integer() || t.size() == 1 {
			return c.errorf("type .%s is not possible here", t)
		}
		return integer(c, t)
	}
}

func addInteger(c *compiler, t typ) error {
	if c.has("cc") {
		return c.carry()
	}
	if c.has("sat") {
		return c.saturated(t, func(a, b int64) int64 { return a + b })
	}
	if err := c.allow(); err != nil {
		return err
	}
	switch t.size() {
	case 8:
		return c.binary64(t, addWide)
	case 4:
		return c.binary32(t, addWords)
	}
	return c.binary32(t, func(d, a, b *lanes32) {
		for i := range d {
			d[i] = (a[i] + b[i]) & 0xffff
		}
	})
}

func subInteger(c *compiler, t typ) error {
	if c.has("cc") {
		return c.carry()
	}
	if c.has("sat") {
		return c.saturated(t, func(a, b int64) int64 { return a - b })
	}
	if err := c.allow(); err != nil {
		return err
	}
	switch t.size() {
	case 8:
		return c.binary64(t, func(d, a, b *lanes64) {
			for i := range d {
				d[i] = a[i] - b[i]
			}
		})
	case 4:
		return c.binary32(t, func(d, a, b *lanes32) {
			for i := range d {
				d[i] = a[i] - b[i]
			}
		})
	}
	return c.binary32(t, func(d, a, b *lanes32) {
		for i := range d {
			d[i] = (a[i] - b[i]) & 0xffff
		}
	})
}

// saturated clamps to the range of s32, the only type with .sat.
func (c *compiler) saturated(t typ, f func(a, b int64) int64) error {
	if err := c.allow("sat"); err != nil {
		return err
	}
	if t != tS32 {
		return c.errorf(".sat is for .s32 alone")
	}
	return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 {
		return uint64(uint32(min(max(f(extend(a, 4), extend(b, 4)), -1<<31), 1<<31-1)))
	})
}

// product is the wide product of two values of a type: its high and low 64 bits.
func product(t typ, a, b uint64) (hi, lo uint64) {
	n := t.size()
	if n < 8 {
		if t.signed() {
			p := extend(a, n) * extend(b, n)
			return uint64(p >> 63), uint64(p)
		}
		return 0, a * b
	}
	hi, lo = bits.Mul64(a, b)
	if t.signed() {
		hi -= b&uint64(int64(a)>>63) + a&uint64(int64(b)>>63)
	}
	return hi, lo
}

// widened is the type of twice the width.
func (c *compiler) widened(t typ) (typ, error) {
	switch t {
	case tU16:
		return tU32, nil
	case tS16:
		return tS32, nil
	case tU32:
		return tU64, nil
	case tS32:
		return tS64, nil
	}
	return 0, c.errorf(".wide is not for .%s", t)
}

func mulInteger(c *compiler, t typ) error {
	if err := c.allow("lo", "hi", "wide"); err != nil {
		return err
	}
	n := t.size()
	switch {
	case c.has("wide"):
		td, err := c.widened(t)
		if err != nil {
			return err
		}
		if t == tU32 || t == tS32 {
			return c.mulWide(td, t)
		}
		return c.lane(td, []typ{t, t}, func(a, b, _ uint64) uint64 {
			_, lo := product(t, a, b)
			return truncate(lo, 2*n)
		})
	case c.has("hi"):
		return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 { return high(t, a, b) })
	case !c.has("lo"):
		return c.errorf(".lo, .hi or .wide is missing")
	case n == 4:
		return c.binary32(t, func(d, a, b *lanes32) {
			for i := range d {
				d[i] = a[i] * b[i]
			}
		})
	case n == 8:
		return c.binary64(t, func(d, a, b *lanes64) {
			for i := range d {
				d[i] = a[i] * b[i]
			}
		})
	}
	return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 { return truncate(a*b, n) })
}

func (c *compiler) mulWide(td, t typ) error {
	d, s, err := c.operands(td, t, t)
	if err != nil {
		return err
	}
	signed := t.signed()
	c.loop64(d, func(w *warp, o *lanes64) {
		a, b := &w.r[s[0].index], &w.r[s[1].index]
		if signed {
			for i := range o {
				o[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
			}
			return
		}
		for i := range o {
			o[i] = uint64(a[i]) * uint64(b[i])
		}
	})
	return nil
}

// madWide is mulWide plus a third operand.
func (c *compiler) madWide(td, t typ) error {
	d, s, err := c.operands(td, t, t, td)
	if err != nil {
		return err
	}
	signed := t.signed()
	c.loop64(d, func(w *warp, o *lanes64) {
		a, b, x := &w.r[s[0].index], &w.r[s[1].index], &w.d[s[2].index]
		if signed {
			for i := range o {
				o[i] = uint64(int64(int32(a[i]))*int64(int32(b[i]))) + x[i]
			}
			return
		}
		for i := range o {
			o[i] = uint64(a[i])*uint64(b[i]) + x[i]
		}
	})
	return nil
}

// high is the upper half of a product.
func high(t typ, a, b uint64) uint64 {
	hi, lo := product(t, a, b)
	if n := t.size(); n < 8 {
		return truncate(lo>>(8*n), n)
	}
	return hi
}

func madInteger(c *compiler, t typ) error {
	if c.has("cc") {
		return c.carry()
	}
	n := t.size()
	if c.has("sat") {
		if err := c.allow("hi", "sat"); err != nil || t != tS32 || !c.has("hi") {
			return c.errorf(".sat is for mad.hi.sat.s32 alone")
		}
		return c.lane(t, []typ{t, t, t}, func(a, b, x uint64) uint64 {
			return uint64(uint32(min(max(extend(high(t, a, b), 4)+extend(x, 4), -1<<31), 1<<31-1)))
		})
	}
	if err := c.allow("lo", "hi", "wide"); err != nil {
		return err
	}
	switch {
	case c.has("wide"):
		td, err := c.widened(t)
		if err != nil {
			return err
		}
		if t == tU32 || t == tS32 {
			return c.madWide(td, t)
		}
		return c.lane(td, []typ{t, t, td}, func(a, b, x uint64) uint64 {
			_, lo := product(t, a, b)
			return truncate(lo+x, 2*n)
		})
	case c.has("hi"):
		return c.lane(t, []typ{t, t, t}, func(a, b, x uint64) uint64 { return truncate(high(t, a, b)+x, n) })
	case !c.has("lo"):
		return c.errorf(".lo, .hi or .wide is missing")
	case n == 4:
		return c.ternary32(t, func(d, a, b, x *lanes32) {
			for i := range d {
				d[i] = a[i]*b[i] + x[i]
			}
		})
	}
	return c.lane(t, []typ{t, t, t}, func(a, b, x uint64) uint64 { return truncate(a*b+x, n) })
}

func divInteger(c *compiler, t typ) error {
	if err := c.allow(); err != nil {
		return err
	}
	n := t.size()
	return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 {
		switch {
		case b == 0:
			return truncate(^uint64(0), n) // as the cards' routines give; the manual does not define it
		case t.signed():
			x, y := extend(a, n), extend(b, n)
			if y == -1 {
				return truncate(uint64(-x), n)
			}
			return truncate(uint64(x/y), n)
		}
		return a / b
	})
}

func (c *compiler) remainder() error {
	t, err := c.typed(3)
	if err != nil {
		return err
	}
	if !t.integer() {
		return c.errorf("type .%s is not possible here", t)
	}
	n := t.size()
	return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 {
		switch {
		case b == 0:
			return a
		case t.signed():
			x, y := extend(a, n), extend(b, n)
			if y == -1 {
				return 0
			}
			return truncate(uint64(x%y), n)
		}
		return a % b
	})
}

func minInteger(c *compiler, t typ) error { return c.extreme(t, true) }

func maxInteger(c *compiler, t typ) error { return c.extreme(t, false) }

func (c *compiler) extreme(t typ, least bool) error {
	if err := c.allow(); err != nil {
		return err
	}
	n := t.size()
	if t.signed() {
		return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 {
			if (extend(a, n) < extend(b, n)) == least {
				return a
			}
			return b
		})
	}
	return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 {
		if (a < b) == least {
			return a
		}
		return b
	})
}

func absInteger(c *compiler, t typ) error {
	if err := c.allow(); err != nil {
		return err
	}
	n := t.size()
	return c.lane(t, []typ{t}, func(a, _, _ uint64) uint64 {
		if extend(a, n) < 0 {
			return truncate(-a, n)
		}
		return a
	})
}

func negInteger(c *compiler, t typ) error {
	if err := c.allow(); err != nil {
		return err
	}
	n := t.size()
	return c.lane(t, []typ{t}, func(a, _, _ uint64) uint64 { return truncate(-a, n) })
}

func (c *compiler) mul24() error {
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	if err := c.allow("lo", "hi"); err != nil {
		return err
	}
	if t != tS32 && t != tU32 {
		return c.errorf("type .%s is not possible here", t)
	}
	s := uint(0)
	if c.has("hi") {
		s = 16
	}
	f := func(a, b, x uint64) uint64 {
		if t == tS32 {
			return uint64(uint32((int64(a<<40)>>40*(int64(b<<40)>>40))>>s + int64(x)))
		}
		return uint64(uint32((a&0xffffff*(b&0xffffff))>>s + x))
	}
	if c.parts[0] == "mad24" {
		return c.lane(t, []typ{t, t, t}, f)
	}
	return c.lane(t, []typ{t, t}, f)
}

func (c *compiler) sad() error {
	t, err := c.typed(4)
	if err != nil {
		return err
	}
	n := t.size()
	return c.lane(t, []typ{t, t, t}, func(a, b, x uint64) uint64 {
		less := a < b
		if t.signed() {
			less = extend(a, n) < extend(b, n)
		}
		if less {
			a, b = b, a
		}
		return truncate(x+a-b, n)
	})
}

// carry compiles instructions that read or write the carry flag: add.cc, addc, sub.cc, subc, mad.lo.cc,
// madc.hi and so on. The flag is a predicate of the thread, stored for each kernel under a name that no text
// can have.
func (c *compiler) carry() error {
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	if err := c.allow("cc", "lo", "hi"); err != nil {
		return err
	}
	n := t.size()
	if n < 4 || !t.integer() {
		return c.errorf("type .%s is not possible here", t)
	}
	flag, ok := c.k.specials[carryFlag]
	if !ok {
		flag = c.newRegister(classP)
		c.k.specials[carryFlag] = flag
	}
	name := c.parts[0]
	reads, writes := name[len(name)-1] == 'c', c.has("cc")
	kind := name[:3]
	var d ref
	var s [4]ref
	if kind == "mad" {
		d, s, err = c.operands(t, t, t, t)
	} else {
		d, s, err = c.operands(t, t, t)
	}
	if err != nil {
		return err
	}
	upper := c.has("hi")
	c.in.run = func(w *warp, m uint32) {
		lanesOf(m, func(l int) {
			a, b := w.get(s[0], l), w.get(s[1], l)
			in := uint64(0)
			if reads {
				in = w.get(flag, l)
			}
			if kind == "mad" {
				if upper {
					a = high(t, a, b)
				} else {
					a = truncate(a*b, n)
				}
				b = w.get(s[2], l)
			}
			var v, out uint64
			if kind == "sub" { // the flag is a borrow
				v, out = bits.Sub64(a, b, in)
			} else {
				v, out = bits.Add64(a, b, in)
			}
			if n == 4 {
				out = v >> 32 & 1
				v = uint64(uint32(v))
			}
			w.set(d, l, v)
			if writes {
				w.set(flag, l, out)
			}
		})
	}
	return nil
}

func (c *compiler) logic() error {
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	if err := c.allow(); err != nil {
		return err
	}
	if t == tPred {
		return c.logicPredicate()
	}
	if t.float() || t.size() == 1 {
		return c.errorf("type .%s is not possible here", t)
	}
	wide := t.size() == 8
	switch c.parts[0] {
	case "and":
		if wide {
			return c.binary64(t, func(d, a, b *lanes64) {
				for i := range d {
					d[i] = a[i] & b[i]
				}
			})
		}
		return c.binary32(t, func(d, a, b *lanes32) {
			for i := range d {
				d[i] = a[i] & b[i]
			}
		})
	case "or":
		if wide {
			return c.binary64(t, func(d, a, b *lanes64) {
				for i := range d {
					d[i] = a[i] | b[i]
				}
			})
		}
		return c.binary32(t, func(d, a, b *lanes32) {
			for i := range d {
				d[i] = a[i] | b[i]
			}
		})
	case "xor":
		if wide {
			return c.binary64(t, func(d, a, b *lanes64) {
				for i := range d {
					d[i] = a[i] ^ b[i]
				}
			})
		}
		return c.binary32(t, func(d, a, b *lanes32) {
			for i := range d {
				d[i] = a[i] ^ b[i]
			}
		})
	}
	n := t.size()
	return c.lane(t, []typ{t}, func(a, _, _ uint64) uint64 { return truncate(^a, n) })
}

func (c *compiler) logicPredicate() error {
	var f func(a, b uint32) uint32
	var d ref
	var s [4]ref
	var err error
	switch c.parts[0] {
	case "and":
		f = func(a, b uint32) uint32 { return a & b }
	case "or":
		f = func(a, b uint32) uint32 { return a | b }
	case "xor":
		f = func(a, b uint32) uint32 { return a ^ b }
	default:
		f = func(a, _ uint32) uint32 { return ^a }
		if d, s, err = c.operands(tPred, tPred); err != nil {
			return err
		}
		s[1] = s[0]
	}
	if c.parts[0] != "not" {
		if d, s, err = c.operands(tPred, tPred, tPred); err != nil {
			return err
		}
	}
	c.in.run = func(w *warp, m uint32) {
		p := &w.p[d.index]
		*p = *p&^m | f(w.p[s[0].index], w.p[s[1].index])&m
	}
	return nil
}

func (c *compiler) cnot() error {
	t, err := c.typed(2)
	if err != nil {
		return err
	}
	return c.lane(t, []typ{t}, func(a, _, _ uint64) uint64 {
		if a == 0 {
			return 1
		}
		return 0
	})
}

func (c *compiler) lop3() error {
	if err := c.allow(); err != nil {
		return err
	}
	if len(c.args) != 5 {
		return c.errorf("%d operands, 5 are needed; predicates of lop3 are not modeled", len(c.args))
	}
	v, err := literal(c.args[4], tB32)
	if err != nil || v > 255 {
		return c.errorf("%q is not a truth table", c.args[4])
	}
	c.args = c.args[:4]
	var on [8]uint32 // all ones where the table has a one
	for i := range on {
		on[i] = -uint32(v >> i & 1)
	}
	return c.ternary32(tB32, func(d, a, b, x *lanes32) {
		for i := range d {
			p, q, r := a[i], b[i], x[i]
			d[i] = ^p&(^q&(^r&on[0]|r&on[1])|q&(^r&on[2]|r&on[3])) | p&(^q&(^r&on[4]|r&on[5])|q&(^r&on[6]|r&on[7]))
		}
	})
}

func (c *compiler) shift() error {
	t, err := c.typed(3)
	if err != nil {
		return err
	}
	n := t.size()
	if t.float() || n < 2 {
		return c.errorf("type .%s is not possible here", t)
	}
	d, s, err := c.operands(t, t, tU32)
	if err != nil {
		return err
	}
	left, signed := c.parts[0] == "shl", t.signed()
	// Beyond the width, Go's shifts give zeros, or the sign, just as PTX's do.
	switch {
	case n == 4 && left:
		c.loop32(d, func(w *warp, o *lanes32) {
			a, b := &w.r[s[0].index], &w.r[s[1].index]
			for i := range o {
				o[i] = a[i] << b[i]
			}
		})
	case n == 4 && !signed:
		c.loop32(d, func(w *warp, o *lanes32) {
			a, b := &w.r[s[0].index], &w.r[s[1].index]
			for i := range o {
				o[i] = a[i] >> b[i]
			}
		})
	case n == 8 && left:
		c.loop64(d, func(w *warp, o *lanes64) {
			a, b := &w.d[s[0].index], &w.r[s[1].index]
			for i := range o {
				o[i] = a[i] << b[i]
			}
		})
	case left:
		c.lanewise(d, s, 2, func(a, b, _ uint64) uint64 { return truncate(a<<b, n) })
	case signed:
		c.lanewise(d, s, 2, func(a, b, _ uint64) uint64 { return truncate(uint64(extend(a, n)>>b), n) })
	default:
		c.lanewise(d, s, 2, func(a, b, _ uint64) uint64 { return a >> b })
	}
	return nil
}

func (c *compiler) funnel() error {
	if err := c.allow("l", "r", "wrap", "clamp"); err != nil {
		return err
	}
	left, wrap := c.has("l"), c.has("wrap")
	if left == c.has("r") || wrap == c.has("clamp") {
		return c.errorf("one of .l and .r, and one of .wrap and .clamp")
	}
	return c.lane(tB32, []typ{tB32, tB32, tU32}, func(lo, hi, n uint64) uint64 {
		if wrap {
			n &= 31
		}
		n = min(n, 32)
		v := hi<<32 | lo
		if left {
			return v << n >> 32
		}
		return uint64(uint32(v >> n))
	})
}

func (c *compiler) count() error {
	t, err := c.typed(2)
	if err != nil {
		return err
	}
	n := t.size()
	switch {
	case t != tB32 && t != tB64:
		return c.errorf("type .%s is not possible here", t)
	case c.parts[0] == "brev":
		return c.lane(t, []typ{t}, func(a, _, _ uint64) uint64 { return bits.Reverse64(a) >> (64 - 8*n) })
	case c.parts[0] == "clz":
		return c.lane(tU32, []typ{t}, func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a) - (64 - 8*n)) })
	}
	return c.lane(tU32, []typ{t}, func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) })
}

func (c *compiler) bfind() error {
	t, err := c.typed(2, "shiftamt")
	if err != nil {
		return err
	}
	n := t.size()
	amount := c.has("shiftamt")
	return c.lane(tU32, []typ{t}, func(a, _, _ uint64) uint64 {
		if t.signed() && extend(a, n) < 0 {
			a = truncate(^a, n)
		}
		if a == 0 {
			return 0xffffffff
		}
		at := bits.Len64(a) - 1
		if amount {
			at = 8*n - 1 - at
		}
		return uint64(at)
	})
}

// fns compiles fns, which finds the n-th set bit from a base upwards, or downwards if n is negative.
func (c *compiler) fns() error {
	if _, err := c.typed(4); err != nil {
		return err
	}
	return c.lane(tB32, []typ{tB32, tB32, tS32}, func(mask, base, offset uint64) uint64 {
		n, at, step := int32(offset), int(base), 1
		if n < 0 {
			n, step = -n, -1
		}
		if n == 0 {
			if mask>>base&1 == 1 {
				return base
			}
			return 0xffffffff
		}
		for ; at >= 0 && at < 32; at += step {
			if mask>>at&1 == 1 {
				if n--; n == 0 {
					return uint64(at)
				}
			}
		}
		return 0xffffffff
	})
}

func (c *compiler) bfe() error {
	t, err := c.typed(4)
	if err != nil {
		return err
	}
	n := 8 * t.size()
	if n < 32 || !t.integer() {
		return c.errorf("type .%s is not possible here", t)
	}
	return c.lane(t, []typ{t, tU32, tU32}, func(a, pos, length uint64) uint64 {
		pos, length = pos&255, length&255
		if length == 0 {
			return 0
		}
		v := a >> pos
		if t.signed() {
			v = uint64(extend(a, n/8) >> pos)
		}
		if length >= uint64(n) {
			return truncate(v, n/8)
		}
		v &= 1<<length - 1
		top := min(pos+length-1, uint64(n-1))
		if t.signed() && a>>top&1 == 1 {
			v |= ^uint64(0) << length
		}
		return truncate(v, n/8)
	})
}

func (c *compiler) bfi() error {
	t, err := c.typed(5)
	if err != nil {
		return err
	}
	if t != tB32 && t != tB64 {
		return c.errorf("type .%s is not possible here", t)
	}
	d, s, err := c.operands(t, t, t, tU32, tU32)
	if err != nil {
		return err
	}
	n := t.size()
	c.in.run = func(w *warp, m uint32) {
		lanesOf(m, func(l int) {
			a, b, pos, length := w.get(s[0], l), w.get(s[1], l), w.get(s[2], l)&255, w.get(s[3], l)&255
			mask := truncate((1<<length-1)<<pos, n)
			w.set(d, l, b&^mask|a<<pos&mask)
		})
	}
	return nil
}

func (c *compiler) prmt() error {
	if err := c.allow("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"); err != nil {
		return err
	}
	mode := c.parts[len(c.parts)-1]
	return c.lane(tB32, []typ{tB32, tB32, tB32}, func(a, b, sel uint64) uint64 {
		v := b<<32 | a
		var out uint64
		for i := range uint64(4) {
			var from uint64
			k := sel & 3
			switch mode {
			case "f4e":
				from = k + i
			case "b4e":
				from = (k - i) & 7
			case "rc8":
				from = k
			case "ecl":
				from = max(i, k)
			case "ecr":
				from = min(i, k)
			case "rc16":
				from = k&1*2 + i&1
			default:
				from = sel >> (4 * i) & 15
			}
			x := v >> (8 * (from & 7)) & 255
			if from&8 != 0 { // the sign, in all bits
				x = x >> 7 * 255
			}
			out |= x << (8 * i)
		}
		return out
	})
}

func (c *compiler) szext() error {
	t, err := c.typed(3, "wrap", "clamp")
	if err != nil {
		return err
	}
	wrap := c.has("wrap")
	return c.lane(t, []typ{t, tU32}, func(a, n, _ uint64) uint64 {
		if wrap {
			n &= 31
		}
		switch {
		case n >= 32:
			return a
		case n == 0:
			return 0
		case t.signed():
			return uint64(uint32(int32(uint32(a)<<(32-n)) >> (32 - n)))
		}
		return a & (1<<n - 1)
	})
}

func (c *compiler) bmsk() error {
	if _, err := c.typed(3, "wrap", "clamp"); err != nil {
		return err
	}
	wrap := c.has("wrap")
	return c.lane(tB32, []typ{tB32, tB32}, func(a, n, _ uint64) uint64 {
		if wrap {
			a, n = a&31, n&31
		}
		return uint64(uint32((1<<min(n, 32) - 1) << min(a, 63)))
	})
}

func (c *compiler) dp4a() error { return c.dot(8, 4) }

func (c *compiler) dp2a() error { return c.dot(16, 2) }

// dot compiles a sum of products of n parts of a, each of the given width, with bytes of b.
func (c *compiler) dot(width, n int) error {
	ta, err := c.typ(1)
	if err != nil {
		return err
	}
	tb, err := c.typ(0)
	if err != nil {
		return err
	}
	if err := c.allow("lo", "hi"); err != nil {
		return err
	}
	if ta.size() != 4 || tb.size() != 4 || !ta.integer() || !tb.integer() {
		return c.errorf("types .%s and .%s are not possible here", ta, tb)
	}
	first := 0
	if c.has("hi") {
		first = 2
	}
	part := func(v uint64, t typ, width, i int) int64 {
		return extendBits(v>>(width*i), width, t.signed())
	}
	return c.lane(tS32, []typ{tB32, tB32, tB32}, func(a, b, x uint64) uint64 {
		sum := int64(x)
		for i := range n {
			sum += part(a, ta, width, i) * part(b, tb, 8, first+i)
		}
		return uint64(uint32(sum))
	})
}

func extendBits(v uint64, width int, signed bool) int64 {
	s := 64 - width
	if signed {
		return int64(v<<s) >> s
	}
	return int64(v << s >> s)
}
