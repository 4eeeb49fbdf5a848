package ptxsim

import "math/bits"

// The functions here compile instructions that treat every lane alike. What is asked for most has loops over whole
// registers; the rest is a function of one lane's values.

// operands reads the destination and the sources of an instruction with all operands of one type.
func (c *compiler) operands(td typ, ts ...typ) (d ref, s [4]ref, err error) {
	if len(c.args) != len(ts)+1 {
		return d, s, c.errorf("%d operands, %d are needed", len(c.args), len(ts)+1)
	}
	for i, t := range ts {
		if s[i], err = c.src(i+1, t); err != nil {
			return d, s, err
		}
	}
	d, err = c.dst(0, td)
	return d, s, err
}

// unary32 is an operation on registers of up to 32 bits.
func (c *compiler) unary32(t typ, f func(d, a *lanes32)) error {
	d, s, err := c.operands(t, t)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) {
		if m == full {
			f(&w.r[d.index], &w.r[s[0].index])
			return
		}
		f(&w.t, &w.r[s[0].index])
		merge32(&w.r[d.index], &w.t, m)
	}
	return nil
}

func (c *compiler) binary32(t typ, f func(d, a, b *lanes32)) error {
	d, s, err := c.operands(t, t, t)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) {
		if m == full {
			f(&w.r[d.index], &w.r[s[0].index], &w.r[s[1].index])
			return
		}
		f(&w.t, &w.r[s[0].index], &w.r[s[1].index])
		merge32(&w.r[d.index], &w.t, m)
	}
	return nil
}

func (c *compiler) ternary32(t typ, f func(d, a, b, x *lanes32)) error {
	d, s, err := c.operands(t, t, t, t)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) {
		if m == full {
			f(&w.r[d.index], &w.r[s[0].index], &w.r[s[1].index], &w.r[s[2].index])
			return
		}
		f(&w.t, &w.r[s[0].index], &w.r[s[1].index], &w.r[s[2].index])
		merge32(&w.r[d.index], &w.t, m)
	}
	return nil
}

func (c *compiler) binary64(t typ, f func(d, a, b *lanes64)) error {
	d, s, err := c.operands(t, t, t)
	if err != nil {
		return err
	}
	c.in.run = func(w *warp, m uint32) {
		if m == full {
			f(&w.d[d.index], &w.d[s[0].index], &w.d[s[1].index])
			return
		}
		f(&w.u, &w.d[s[0].index], &w.d[s[1].index])
		merge64(&w.d[d.index], &w.u, m)
	}
	return nil
}

// lane compiles a function of one lane's values; sources that are not there read as zero.
func (c *compiler) lane(td typ, ts []typ, f func(a, b, x uint64) uint64) error {
	d, s, err := c.operands(td, ts...)
	if err != nil {
		return err
	}
	c.lanewise(d, s, len(ts), f)
	return nil
}

func (c *compiler) lanewise(d ref, s [4]ref, n int, f func(a, b, x uint64) uint64) {
	switch n {
	case 0:
		c.in.run = func(w *warp, m uint32) {
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				w.set(d, l, f(0, 0, 0))
			}
		}
	case 1:
		c.in.run = func(w *warp, m uint32) {
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				w.set(d, l, f(w.get(s[0], l), 0, 0))
			}
		}
	case 2:
		c.in.run = func(w *warp, m uint32) {
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				w.set(d, l, f(w.get(s[0], l), w.get(s[1], l), 0))
			}
		}
	default:
		c.in.run = func(w *warp, m uint32) {
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				w.set(d, l, f(w.get(s[0], l), w.get(s[1], l), w.get(s[2], l)))
			}
		}
	}
}

// extend is the low bits of v, n bytes of them, as a signed number.
func extend(v uint64, n int) int64 {
	s := 64 - 8*n
	return int64(v<<s) >> s
}

// truncate is the low n bytes of v.
func truncate(v uint64, n int) uint64 {
	s := 64 - 8*n
	return v << s >> s
}
