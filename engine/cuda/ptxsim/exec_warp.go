package ptxsim

import (
	"math/bits"
	"strings"
)

var warpOps = map[string]func(c *compiler) error{
	"shfl": (*compiler).shfl, "vote": (*compiler).vote, "match": (*compiler).match, "redux": (*compiler).redux,
	"activemask": (*compiler).activemask, "elect": (*compiler).elect,
}

// shfl compiles all four modes of shfl.sync: d[|p], a, b, c, members.
func (c *compiler) shfl() error {
	if err := c.allow("sync", "up", "down", "bfly", "idx"); err != nil {
		return err
	}
	if len(c.args) != 5 || len(c.parts) != 4 || c.parts[1] != "sync" {
		return c.errorf("only shfl.sync with five operands is modeled")
	}
	mode := c.parts[2]
	name, pname, both := strings.Cut(c.args[0], "|")
	a, err := c.src(1, tB32)
	if err != nil {
		return err
	}
	b, err := c.src(2, tU32)
	if err != nil {
		return err
	}
	clamp, err := c.src(3, tU32)
	if err != nil {
		return err
	}
	if c.in.members, err = c.src(4, tB32); err != nil {
		return err
	}
	d, err := c.write(strings.TrimSpace(name), tB32)
	if err != nil {
		return err
	}
	var p ref
	if both {
		if p, err = c.write(strings.TrimSpace(pname), tPred); err != nil {
			return err
		}
	}
	c.in.control = agreed
	c.in.run = func(w *warp, m uint32) {
		ra, rb, rc := w.r[a.index], &w.r[b.index], &w.r[clamp.index]
		valid := uint32(0)
		var out lanes32
		for k := m; k != 0; k &= k - 1 {
			l := bits.TrailingZeros32(k)
			n, ctl := int(rb[l]&31), rc[l]
			seg := int(ctl >> 8 & 31)
			top := l&seg | int(ctl&31)&^seg
			low := l & seg
			from, ok := 0, false
			switch mode {
			case "up":
				from = l - n
				ok = from >= top
			case "down":
				from = l + n
				ok = from <= top
			case "bfly":
				from = l ^ n
				ok = from <= top
			case "idx":
				from = low | n&^seg
				ok = from <= top
			}
			if !ok {
				from = l
			} else {
				valid |= 1 << l
			}
			if m>>from&1 == 0 {
				w.fail(l, "shfl reads lane %d, which does not take part (%#08x do)", from, m)
			}
			out[l] = ra[from]
		}
		merge32(&w.r[d.index], &out, m)
		if both {
			w.p[p.index] = w.p[p.index]&^m | valid&m
		}
	}
	return nil
}

func (c *compiler) vote() error {
	if err := c.allow("sync", "all", "any", "uni", "ballot"); err != nil {
		return err
	}
	if len(c.args) != 3 || len(c.parts) != 4 || c.parts[1] != "sync" {
		return c.errorf("only vote.sync with three operands is modeled")
	}
	ballot := c.has("ballot")
	t := tPred
	if ballot {
		t = tB32
	}
	s, invert := c.args[1], uint32(0)
	if strings.HasPrefix(s, "!") {
		s, invert = s[1:], full
	}
	p, err := c.readPredicate(s)
	if err != nil {
		return err
	}
	if c.in.members, err = c.src(2, tB32); err != nil {
		return err
	}
	d, err := c.dst(t)
	if err != nil {
		return err
	}
	mode := c.parts[2]
	c.in.control = agreed
	c.in.run = func(w *warp, m uint32) {
		v := (w.p[p.index] ^ invert) & m
		if ballot {
			lanesOf(m, func(l int) { w.r[d.index][l] = v })
			return
		}
		ok := v == m && mode == "all" || v != 0 && mode == "any" || (v == 0 || v == m) && mode == "uni"
		w.p[d.index] &^= m
		if ok {
			w.p[d.index] |= m
		}
	}
	return nil
}

func (c *compiler) match() error {
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	if err := c.allow("sync", "any", "all"); err != nil {
		return err
	}
	if len(c.args) != 3 || t != tB32 && t != tB64 {
		return c.errorf("three operands of type .b32 or .b64 are needed")
	}
	all := c.has("all")
	name, pname, both := strings.Cut(c.args[0], "|")
	a, err := c.src(1, t)
	if err != nil {
		return err
	}
	if c.in.members, err = c.src(2, tB32); err != nil {
		return err
	}
	d, err := c.write(strings.TrimSpace(name), tB32)
	if err != nil {
		return err
	}
	var p ref
	if both {
		if p, err = c.write(strings.TrimSpace(pname), tPred); err != nil {
			return err
		}
	}
	c.in.control = agreed
	c.in.run = func(w *warp, m uint32) {
		var out lanes32
		agree := uint32(0)
		lanesOf(m, func(l int) {
			lanesOf(m, func(k int) {
				if w.get(a, k) == w.get(a, l) {
					out[l] |= 1 << k
				}
			})
			if out[l] == m {
				agree = m
			} else if all {
				out[l] = 0
			}
		})
		merge32(&w.r[d.index], &out, m)
		if both {
			w.p[p.index] = w.p[p.index]&^m | agree
		}
	}
	return nil
}

func (c *compiler) redux() error {
	t, err := c.typed(3, "sync", "add", "min", "max", "and", "or", "xor")
	if err != nil {
		return err
	}
	if t.size() != 4 || t.float() || len(c.parts) != 4 {
		return c.errorf("type .%s is not possible here", t)
	}
	f, err := c.atomicFunction(t, c.parts[2])
	if err != nil {
		return err
	}
	a, err := c.src(1, t)
	if err != nil {
		return err
	}
	if c.in.members, err = c.src(2, tB32); err != nil {
		return err
	}
	d, err := c.dst(t)
	if err != nil {
		return err
	}
	c.in.control = agreed
	c.in.run = func(w *warp, m uint32) {
		first := bits.TrailingZeros32(m)
		v := w.get(a, first)
		lanesOf(m&(m-1), func(l int) { v = f(v, w.get(a, l), 0) })
		lanesOf(m, func(l int) { w.set(d, l, v) })
	}
	return nil
}

func (c *compiler) activemask() error {
	if _, err := c.typed(1); err != nil {
		return err
	}
	d, err := c.dst(tB32)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) { lanesOf(m, func(l int) { w.r[d.index][l] = m }) }
	return nil
}

// elect compiles elect, which chooses the lowest lane of the mask.
func (c *compiler) elect() error {
	if err := c.allow("sync"); err != nil {
		return err
	}
	if len(c.args) != 2 {
		return c.errorf("%d operands, 2 are needed", len(c.args))
	}
	name, pname, both := strings.Cut(c.args[0], "|")
	if !both {
		return c.errorf("a predicate is missing")
	}
	var err error
	if c.in.members, err = c.src(1, tB32); err != nil {
		return err
	}
	d, err := c.write(strings.TrimSpace(name), tB32)
	if err != nil {
		return err
	}
	p, err := c.write(strings.TrimSpace(pname), tPred)
	if err != nil {
		return err
	}
	c.in.control = agreed
	c.in.run = func(w *warp, m uint32) {
		lead := bits.TrailingZeros32(m)
		lanesOf(m, func(l int) { w.r[d.index][l] = uint32(lead) })
		w.p[p.index] = w.p[p.index]&^m | 1<<lead
	}
	return nil
}
