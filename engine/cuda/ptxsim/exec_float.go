package ptxsim

import "math"

var floatOps = map[string]func(c *compiler) error{
	"fma": func(c *compiler) error {
		t, err := c.typ(0)
		if err != nil {
			return err
		}
		return fmaFloat(c, t)
	},
	"rcp": (*compiler).function1, "sqrt": (*compiler).function1, "rsqrt": (*compiler).function1,
	"sin": (*compiler).function1, "cos": (*compiler).function1, "lg2": (*compiler).function1, "ex2": (*compiler).function1,
	"tanh": (*compiler).function1, "copysign": (*compiler).copysign, "testp": (*compiler).testp,
}

// manner is how an instruction rounds, with its other modifiers.
type manner struct {
	mode           rounding
	ftz, sat, relu bool
}

func (c *compiler) manner() manner {
	x := manner{ftz: c.has("ftz"), sat: c.has("sat"), relu: c.has("relu")}
	for _, p := range c.parts[1:] {
		if m, ok := roundingNames[p]; ok {
			x.mode = m
		}
	}
	return x
}

// finish rounds a result to a format and applies the modifiers; v must be exact or rounded to odd.
func (x manner) finish(f format, v float64) uint64 {
	b := f.round(v, x.mode)
	return x.after(f, b)
}

// after applies .ftz, .sat and .relu to a rounded result.
func (x manner) after(f format, b uint64) uint64 {
	if x.ftz && b&f.infinity() == 0 {
		b &= f.sign()
	}
	if x.sat || x.relu {
		v := f.value(b)
		switch {
		case v != v && x.sat:
			return 0
		case v != v:
			return f.nan()
		case b&f.sign() != 0:
			return 0
		case x.sat && v > 1:
			return f.round(1, toNearest)
		}
	}
	return b
}

// operand is the value of an operand, with subnormals flushed if .ftz is given.
func (x manner) operand(f format, b uint64) float64 {
	if x.ftz && b&f.infinity() == 0 {
		b &= f.sign()
	}
	return f.value(b)
}

// sum is a+b rounded to odd. When rounding to minus, a zero sum is -0, except that of +0 and +0.
func (x manner) sum(a, b float64) float64 {
	s := sumOdd(a, b)
	if s == 0 && x.mode == toMinus && (a != 0 || math.Signbit(a) || math.Signbit(b)) {
		return math.Copysign(0, -1)
	}
	return s
}

func (x manner) plain() bool { return x == manner{} }

// packed applies a function of numbers to both halves of a packed type, or once for any other type.
func packed(t typ, f func(a, b, x uint64) uint64) func(a, b, x uint64) uint64 {
	if t != tF16x2 && t != tBF16x2 {
		return f
	}
	return func(a, b, x uint64) uint64 {
		return f(a&0xffff, b&0xffff, x&0xffff) | f(a>>16, b>>16, x>>16)<<16
	}
}

// arithmetic compiles a function of one to three numbers whose result is exact or rounded to odd. Nothing
// wider is available for doubles, so they have a separate function and can only round to nearest.
func (c *compiler) arithmetic(t typ, n int, f func(a, b, x float64) float64, f64 func(a, b, x float64) float64) error {
	if err := c.allow("rn", "rz", "rm", "rp", "ftz", "sat", "relu", "noftz"); err != nil {
		return err
	}
	x, fm := c.manner(), formatOf(t)
	if t == tF64 {
		if x != (manner{}) {
			return c.errorf(".f64 rounds to nearest even here")
		}
		f = f64
	}
	if t == tTF32 {
		return c.errorf("type .%s is not possible here", t)
	}
	ts := []typ{t, t, t}[:n]
	if t == tF32 && (x == manner{ftz: x.ftz}) {
		return c.nearest32(ts, x.ftz, f)
	}
	return c.lane(t, ts, packed(t, func(a, b, y uint64) uint64 {
		return x.finish(fm, f(x.operand(fm, a), x.operand(fm, b), x.operand(fm, y)))
	}))
}

// nearest32 is arithmetic for float32 in its most frequent form.
func (c *compiler) nearest32(ts []typ, ftz bool, f func(a, b, x float64) float64) error {
	d, s, err := c.operands(tF32, ts...)
	for i := len(ts); i < 3; i++ {
		s[i] = s[0]
	}
	c.loop32(d, func(w *warp, o *lanes32) {
		a, b, x := &w.r[s[0].index], &w.r[s[1].index], &w.r[s[2].index]
		if ftz {
			for i := range o {
				o[i] = flush(bits32(float32(f(float64(f32(flush(a[i]))), float64(f32(flush(b[i]))), float64(f32(flush(x[i])))))))
			}
			return
		}
		for i := range o {
			o[i] = bits32(float32(f(float64(f32(a[i])), float64(f32(b[i])), float64(f32(x[i])))))
		}
	})
	return err
}

func addFloat(c *compiler, t typ) error {
	if err := c.allow("rn", "rz", "rm", "rp", "ftz", "sat", "noftz"); err != nil {
		return err
	}
	x := c.manner()
	if t == tF32 && x.plain() {
		return c.binary32(t, add32)
	}
	return c.arithmetic(t, 2, func(a, b, _ float64) float64 { return x.sum(a, b) }, func(a, b, _ float64) float64 { return a + b })
}

func subFloat(c *compiler, t typ) error {
	if err := c.allow("rn", "rz", "rm", "rp", "ftz", "sat", "noftz"); err != nil {
		return err
	}
	x := c.manner()
	if t == tF32 && x.plain() {
		return c.binary32(t, sub32)
	}
	return c.arithmetic(t, 2, func(a, b, _ float64) float64 { return x.sum(a, -b) }, func(a, b, _ float64) float64 { return a - b })
}

func mulFloat(c *compiler, t typ) error {
	if err := c.allow("rn", "rz", "rm", "rp", "ftz", "sat", "noftz"); err != nil {
		return err
	}
	if x := c.manner(); t == tF32 && x.plain() {
		return c.binary32(t, mul32)
	}
	product := func(a, b, _ float64) float64 { return a * b }
	return c.arithmetic(t, 2, product, product)
}

func fmaFloat(c *compiler, t typ) error {
	x := c.manner()
	if t == tF32 && x.plain() && c.allow("rn") == nil {
		return c.ternary32(t, fused32)
	}
	return c.arithmetic(t, 3, func(a, b, y float64) float64 { return x.sum(a*b, y) }, math.FMA)
}

// quotientOdd is a/b rounded to odd.
func quotientOdd(a, b float64) float64 {
	q := a / b
	if q == 0 || q != q || math.IsInf(q, 0) {
		return q
	}
	rest := math.FMA(-q, b, a)
	if b < 0 {
		rest = -rest
	}
	return odd(q, rest)
}

// rootOdd is the square root rounded to odd.
func rootOdd(a float64) float64 {
	r := math.Sqrt(a)
	if r == 0 || r != r || math.IsInf(r, 0) {
		return r
	}
	return odd(r, math.FMA(-r, r, a))
}

func divFloat(c *compiler, t typ) error {
	if err := c.allow("rn", "rz", "rm", "rp", "ftz", "approx", "full"); err != nil {
		return err
	}
	if t != tF32 && t != tF64 {
		return c.errorf("type .%s is not possible here", t)
	}
	c.drop("approx", "full")
	return c.arithmetic(t, 2, func(a, b, _ float64) float64 { return quotientOdd(a, b) }, func(a, b, _ float64) float64 { return a / b })
}

// drop removes modifiers that have been handled.
func (c *compiler) drop(names ...string) {
	kept := c.parts[:1:1]
next:
	for _, p := range c.parts[1:] {
		for _, n := range names {
			if p == n {
				continue next
			}
		}
		kept = append(kept, p)
	}
	c.parts = kept
}

// functions1 are computed in float64 and rounded to the type: what a card approximates is more exact here.
var functions1 = map[string]func(a, _, _ float64) float64{
	"rcp":   func(a, _, _ float64) float64 { return quotientOdd(1, a) },
	"sqrt":  func(a, _, _ float64) float64 { return rootOdd(a) },
	"rsqrt": func(a, _, _ float64) float64 { return 1 / math.Sqrt(a) },
	"sin":   func(a, _, _ float64) float64 { return math.Sin(a) },
	"cos":   func(a, _, _ float64) float64 { return math.Cos(a) },
	"lg2":   func(a, _, _ float64) float64 { return math.Log2(a) },
	"ex2":   func(a, _, _ float64) float64 { return exp2(a) },
	"tanh":  func(a, _, _ float64) float64 { return math.Tanh(a) },
}

func (c *compiler) function1() error {
	t, err := c.typ(0)
	if err != nil {
		return err
	}
	name := c.parts[0]
	f := functions1[name]
	approx := c.has("approx")
	c.drop("approx")
	switch t {
	case tF32:
		if !approx && name != "rcp" && name != "sqrt" {
			return c.errorf(".approx is missing")
		}
	case tF64:
		if name != "rcp" && name != "sqrt" && name != "rsqrt" {
			return c.errorf("type .%s is not possible here", t)
		}
		f64 := map[string]func(a, b, x float64) float64{
			"rcp": func(a, _, _ float64) float64 { return 1 / a }, "sqrt": func(a, _, _ float64) float64 { return math.Sqrt(a) }, "rsqrt": f,
		}[name]
		if approx {
			c.drop("ftz")
		}
		return c.arithmetic(t, 1, f, f64)
	case tF16, tF16x2, tBF16, tBF16x2:
		if !approx || name != "ex2" && name != "tanh" {
			return c.errorf("type .%s is not possible here", t)
		}
	default:
		return c.errorf("type .%s is not possible here", t)
	}
	return c.arithmetic(t, 1, f, nil)
}

func minFloat(c *compiler, t typ) error { return c.extremeFloat(t, true) }

func maxFloat(c *compiler, t typ) error { return c.extremeFloat(t, false) }

// extremeFloat compiles min and max: a number wins over a NaN, except with .NaN; -0 is less than +0.
func (c *compiler) extremeFloat(t typ, least bool) error {
	if err := c.allow("ftz", "NaN", "xorsign", "abs"); err != nil {
		return err
	}
	if c.has("xorsign") || c.has("abs") {
		return c.errorf(".xorsign.abs is not modeled")
	}
	x, fm, strict := c.manner(), formatOf(t), c.has("NaN")
	if t == tF32 && x.plain() && !strict && len(c.args) == 3 {
		if least {
			return c.binary32(t, min32)
		}
		return c.binary32(t, max32)
	}
	one := packed(t, func(a, b, _ uint64) uint64 {
		p, q := x.operand(fm, a), x.operand(fm, b)
		switch {
		case p != p && (q != q || strict) || q != q && strict:
			return fm.nan()
		case p != p:
			return x.after(fm, b)
		case q != q:
			return x.after(fm, a)
		}
		if less := p < q || p == q && a&fm.sign() != 0; less == least {
			return x.after(fm, a)
		}
		return x.after(fm, b)
	})
	if len(c.args) == 4 && t == tF32 { // three operands
		return c.lane(t, []typ{t, t, t}, func(a, b, y uint64) uint64 { return one(one(a, b, 0), y, 0) })
	}
	return c.lane(t, []typ{t, t}, one)
}

func min32(d, a, b *lanes32) {
	for i := range d {
		x, y := f32(a[i]), f32(b[i])
		switch {
		case x < y || y != y:
			d[i] = bits32(x)
		case x == y:
			d[i] = a[i] | b[i] // the sign of zeros
		default:
			d[i] = bits32(y)
		}
	}
}

func max32(d, a, b *lanes32) {
	for i := range d {
		x, y := f32(a[i]), f32(b[i])
		switch {
		case x > y || y != y:
			d[i] = bits32(x)
		case x == y:
			d[i] = a[i] & b[i]
		default:
			d[i] = bits32(y)
		}
	}
}

func absFloat(c *compiler, t typ) error {
	if err := c.allow("ftz"); err != nil {
		return err
	}
	x, fm := c.manner(), formatOf(t)
	return c.lane(t, []typ{t}, packed(t, func(a, _, _ uint64) uint64 { return x.after(fm, a&^fm.sign()) }))
}

func negFloat(c *compiler, t typ) error {
	if err := c.allow("ftz"); err != nil {
		return err
	}
	x, fm := c.manner(), formatOf(t)
	return c.lane(t, []typ{t}, packed(t, func(a, _, _ uint64) uint64 { return x.after(fm, a^fm.sign()) }))
}

// copysign compiles copysign, which gives b the sign of a.
func (c *compiler) copysign() error {
	t, err := c.typed(3)
	if err != nil {
		return err
	}
	if t != tF32 && t != tF64 {
		return c.errorf("type .%s is not possible here", t)
	}
	s := formatOf(t).sign()
	return c.lane(t, []typ{t, t}, func(a, b, _ uint64) uint64 { return b&^s | a&s })
}

func (c *compiler) testp() error {
	t, err := c.typed(2, "finite", "infinite", "number", "notanumber", "normal", "subnormal")
	if err != nil {
		return err
	}
	if t != tF32 && t != tF64 {
		return c.errorf("type .%s is not possible here", t)
	}
	fm, what := formatOf(t), c.parts[1]
	if len(c.parts) != 3 {
		return c.errorf("a property is missing")
	}
	return c.lane(tPred, []typ{t}, func(a, _, _ uint64) uint64 {
		e, frac := a&fm.infinity(), a&(1<<fm.fraction-1)
		top := e == fm.infinity()
		ok := false
		switch what {
		case "finite":
			ok = !top
		case "infinite":
			ok = top && frac == 0
		case "number":
			ok = !top || frac == 0
		case "notanumber":
			ok = top && frac != 0
		case "normal":
			ok = !top && e != 0
		case "subnormal":
			ok = e == 0 && frac != 0
		}
		if ok {
			return 1
		}
		return 0
	})
}
