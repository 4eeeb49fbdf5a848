package ptxsim

import "math/bits"

// The functions here compile instructions that treat every lane alike. The most frequent ones have
// loops over whole registers; the rest is a function of one lane's values.

// operands reads the destination and the sources of an instruction, given their types.
func (c *compiler) operands(td typ, ts ...typ) (d ref, s [4]ref, err error) {
	if len(c.args) != len(ts)+1 {
		return d, s, c.errorf("%d operands, %d are needed", len(c.args), len(ts)+1)
	}
	for i, t := range ts {
		if s[i], err = c.src(i+1, t); err != nil {
			return d, s, err
		}
	}
	d, err = c.dst(td)
	return d, s, err
}

// binary32 compiles an operation on registers of up to 32 bits.
func (c *compiler) binary32(t typ, f func(d, a, b *lanes32)) error {
	d, s, err := c.operands(t, t, t)
	c.loop32(d, func(w *warp, o *lanes32) { f(o, &w.r[s[0].index], &w.r[s[1].index]) })
	return err
}

func (c *compiler) ternary32(t typ, f func(d, a, b, x *lanes32)) error {
	d, s, err := c.operands(t, t, t, t)
	c.loop32(d, func(w *warp, o *lanes32) { f(o, &w.r[s[0].index], &w.r[s[1].index], &w.r[s[2].index]) })
	return err
}

func (c *compiler) binary64(t typ, f func(d, a, b *lanes64)) error {
	d, s, err := c.operands(t, t, t)
	c.loop64(d, func(w *warp, o *lanes64) { f(o, &w.d[s[0].index], &w.d[s[1].index]) })
	return err
}

// lane compiles a function of one lane's values; missing sources read as zero.
func (c *compiler) lane(td typ, ts []typ, f func(a, b, x uint64) uint64) error {
	d, s, err := c.operands(td, ts...)
	c.lanewise(d, s, len(ts), f)
	return err
}

// lanewise compiles f for given registers. Cases left to the general loop are rare.
func (c *compiler) lanewise(d ref, s [4]ref, n int, f func(a, b, x uint64) uint64) {
	di, a, b := d.index, s[0].index, s[1].index
	narrow := d.class == classR
	wide := d.class == classD
	for i := range n {
		narrow = narrow && s[i].class == classR
		wide = wide && s[i].class == classD
	}
	switch {
	case n == 1 && narrow:
		c.in.run = func(w *warp, m uint32) {
			o, a := &w.r[di], &w.r[a]
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				o[l] = uint32(f(uint64(a[l]), 0, 0))
			}
		}
	case n == 2 && narrow:
		c.in.run = func(w *warp, m uint32) {
			o, a, b := &w.r[di], &w.r[a], &w.r[b]
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				o[l] = uint32(f(uint64(a[l]), uint64(b[l]), 0))
			}
		}
	case n == 3 && narrow:
		c.in.run = func(w *warp, m uint32) {
			o, a, b, x := &w.r[di], &w.r[a], &w.r[b], &w.r[s[2].index]
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				o[l] = uint32(f(uint64(a[l]), uint64(b[l]), uint64(x[l])))
			}
		}
	case n == 2 && wide:
		c.in.run = func(w *warp, m uint32) {
			o, a, b := &w.d[di], &w.d[a], &w.d[b]
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				o[l] = f(a[l], b[l], 0)
			}
		}
	default:
		c.in.run = func(w *warp, m uint32) {
			var v [3]uint64
			for ; m != 0; m &= m - 1 {
				l := bits.TrailingZeros32(m)
				for i := range n {
					v[i] = w.get(s[i], l)
				}
				w.set(d, l, f(v[0], v[1], v[2]))
			}
		}
	}
}

// loop32 compiles a loop over whole registers of up to 32 bits.
func (c *compiler) loop32(d ref, f func(w *warp, o *lanes32)) {
	c.in.run = func(w *warp, m uint32) {
		if m == full {
			f(w, &w.r[d.index])
			return
		}
		f(w, &w.t)
		merge32(&w.r[d.index], &w.t, m)
	}
}

// loop64 is loop32 for registers of 64 bits.
func (c *compiler) loop64(d ref, f func(w *warp, o *lanes64)) {
	c.in.run = func(w *warp, m uint32) {
		if m == full {
			f(w, &w.d[d.index])
			return
		}
		f(w, &w.u)
		merge64(&w.d[d.index], &w.u, m)
	}
}

// extend is the low n bytes of v as a signed number.
func extend(v uint64, n int) int64 {
	s := 64 - 8*n
	return int64(v<<s) >> s
}

// truncate is the low n bytes of v.
func truncate(v uint64, n int) uint64 {
	s := 64 - 8*n
	return v << s >> s
}
