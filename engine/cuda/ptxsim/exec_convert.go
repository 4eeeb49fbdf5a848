package ptxsim

import "math"

// cvt compiles a conversion: d.type a.type are the last two parts of the opcode.
func (c *compiler) cvt() error {
	ts, err := c.typ(0)
	if err != nil {
		return err
	}
	td, err := c.typ(1)
	if err != nil {
		return err
	}
	if err := c.allow("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "relu"); err != nil {
		return err
	}
	if td == tF16x2 || td == tBF16x2 {
		return c.cvtPacked(td, ts)
	}
	if len(c.args) != 2 {
		return c.errorf("%d operands, 2 are needed", len(c.args))
	}
	s, sw, err := c.wide(c.args[1], ts, false)
	if err != nil {
		return err
	}
	if td == tTF32 {
		return c.cvtTF32(ts, s)
	}
	d, dw, err := c.wide(c.args[0], td, true)
	if err != nil {
		return err
	}
	if sw != ts && ts.float() || dw != td && td.float() {
		return c.errorf("a floating-point type in a register of another width")
	}
	f, err := c.conversion(td, ts)
	if err != nil {
		return err
	}
	n, wide := ts.size(), dw.size()
	switch {
	case ts == tF16 && td == tF32 && c.manner().plain():
		c.loop32(d, func(w *warp, o *lanes32) { fromHalf32(o, &w.r[s.index]) })
	case ts == tF32 && td == tF16 && c.manner().plain():
		c.loop32(d, func(w *warp, o *lanes32) { toHalf32(o, &w.r[s.index]) })
	case ts.integer() && td.integer() && !c.has("sat") && wide == td.size() && s.class == classR && d.class == classD && n == 4:
		c.loop64(d, func(w *warp, o *lanes64) { widen(o, &w.r[s.index], ts.signed()) })
	case ts.integer() && td.integer() && !c.has("sat") && wide == 4 && td.size() == 4 && s.class == classD:
		c.loop32(d, func(w *warp, o *lanes32) {
			for i, v := range &w.d[s.index] {
				o[i] = uint32(v)
			}
		})
	case ts.integer() && td.integer() && !c.has("sat") && !ts.signed() && n >= 2 && n <= 4 && wide <= 4 && td.size() >= 2 && !td.signed():
		mask := uint32(truncate(math.MaxUint64, min(n, td.size())))
		c.loop32(d, func(w *warp, o *lanes32) {
			for i, v := range &w.r[s.index] {
				o[i] = v & mask
			}
		})
	case td.signed() && wide > td.size():
		k := td.size()
		c.lanewise(d, [4]ref{s}, 1, func(a, _, _ uint64) uint64 {
			return truncate(uint64(extend(f(truncate(a, n)), k)), wide)
		})
	default:
		c.lanewise(d, [4]ref{s}, 1, func(a, _, _ uint64) uint64 { return f(truncate(a, n)) })
	}
	return nil
}

func widen(o *lanes64, a *lanes32, signed bool) {
	if signed {
		for i, v := range a {
			o[i] = uint64(int64(int32(v)))
		}
		return
	}
	for i, v := range a {
		o[i] = uint64(v)
	}
}

// cvtPacked packs two numbers into a pair of halves, the first in the upper half.
func (c *compiler) cvtPacked(td, ts typ) error {
	if ts != tF32 || len(c.args) != 3 {
		return c.errorf("only pairs of .f32 are modeled")
	}
	x, f := c.manner(), formatOf(td)
	one := func(b uint64) uint64 { return x.finish(f, float64(f32(uint32(b)))) }
	switch {
	case x.plain() && td == tF16x2:
		one = func(b uint64) uint64 { return uint64(toHalf(uint32(b))) }
	case x.plain():
		one = func(b uint64) uint64 { return uint64(toBrain(uint32(b))) }
	}
	return c.lane(tB32, []typ{ts, ts}, func(hi, lo, _ uint64) uint64 { return one(hi)<<16 | one(lo) })
}

func (c *compiler) cvtTF32(ts typ, s ref) error {
	if ts != tF32 {
		return c.errorf(".tf32 is made of .f32 alone")
	}
	d, err := c.dst(tB32)
	if err != nil {
		return err
	}
	x := c.manner()
	c.lanewise(d, [4]ref{s}, 1, func(a, _, _ uint64) uint64 {
		return x.finish(tensor32, float64(f32(uint32(a)))) << 13
	})
	return nil
}

// conversion returns a function that converts the bits of a value.
func (c *compiler) conversion(td, ts typ) (func(a uint64) uint64, error) {
	x := c.manner()
	fd, fs := formatOf(td), formatOf(ts)
	nd := td.size()
	integral := c.has("rni") || c.has("rzi") || c.has("rmi") || c.has("rpi")
	switch {
	case !td.float() && !ts.float():
		return c.conversionInteger(td, ts, x.sat), nil
	case td.float() && ts.float():
		if td == tF64 && ts == tF64 && !integral {
			return func(a uint64) uint64 { return a }, nil
		}
		return func(a uint64) uint64 {
			v := x.operand(fs, a)
			if integral {
				v = roundIntegral(v, x.mode)
				if fd == double {
					return math.Float64bits(v)
				}
			}
			if td == ts && !integral && !x.sat && !x.ftz {
				return a
			}
			return x.finish(fd, v)
		}, nil
	case td.float():
		n, signed := ts.size(), ts.signed()
		return func(a uint64) uint64 {
			neg := signed && extend(a, n) < 0
			if neg {
				a = uint64(-extend(a, n))
			}
			return x.after(fd, fd.encode(neg, a, 0, false, x.mode))
		}, nil
	}
	if !integral {
		return nil, c.errorf("a rounding to an integer (.rni .rzi .rmi .rpi) is missing")
	}
	return func(a uint64) uint64 {
		v := x.operand(fs, a)
		if v != v { // as on cards: zero, and for 64 bits from .f32 and .f64 only the top bit
			if nd == 8 {
				return 1 << 63
			}
			return 0
		}
		return clampInteger(td, roundIntegral(v, x.mode))
	}, nil
}

func roundIntegral(v float64, mode rounding) float64 {
	switch mode {
	case toZero:
		return math.Trunc(v)
	case toMinus:
		return math.Floor(v)
	case toPlus:
		return math.Ceil(v)
	}
	return math.RoundToEven(v)
}

// clampInteger clamps an integral value to the range of a type: conversions from floating point saturate.
func clampInteger(t typ, v float64) uint64 {
	n := 8 * t.size()
	if t.signed() {
		switch limit := math.Ldexp(1, n-1); {
		case v >= limit:
			return 1<<(n-1) - 1
		case v <= -limit:
			return 1 << (n - 1)
		}
		return truncate(uint64(int64(v)), n/8)
	}
	switch {
	case v <= 0:
		return 0
	case v >= math.Ldexp(1, n):
		return truncate(math.MaxUint64, n/8)
	}
	return uint64(v)
}

func (c *compiler) conversionInteger(td, ts typ, sat bool) func(a uint64) uint64 {
	ns, nd := ts.size(), td.size()
	if !sat {
		if ts.signed() {
			return func(a uint64) uint64 { return truncate(uint64(extend(a, ns)), nd) }
		}
		return func(a uint64) uint64 { return truncate(a, nd) }
	}
	top := truncate(math.MaxUint64, nd)
	if td.signed() {
		top >>= 1
	}
	return func(a uint64) uint64 {
		if ts.signed() && extend(a, ns) < 0 {
			if !td.signed() {
				return 0
			}
			return truncate(uint64(max(extend(a, ns), -int64(top)-1)), nd)
		}
		return min(a, top)
	}
}
