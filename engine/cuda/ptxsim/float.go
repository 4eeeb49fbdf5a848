package ptxsim

import (
	"math"
	"math/bits"
)

// rounding is one of PTX's rounding modes.
type rounding uint8

const (
	toNearest rounding = iota // ties to even: .rn, .rni
	toZero                    // .rz, .rzi
	toMinus                   // .rm, .rmi
	toPlus                    // .rp, .rpi
	tiesAway                  // .rna
)

var roundingNames = map[string]rounding{
	"rn": toNearest, "rz": toZero, "rm": toMinus, "rp": toPlus, "rna": tiesAway,
	"rni": toNearest, "rzi": toZero, "rmi": toMinus, "rpi": toPlus,
}

// format is a binary floating-point format. For tf32 the 13 low bits of the 32 are left out.
type format struct{ exponent, fraction int }

var (
	half     = format{5, 10}
	brain    = format{8, 7}
	single   = format{8, 23}
	double   = format{11, 52}
	tensor32 = format{8, 10}
)

func formatOf(t typ) format {
	switch t {
	case tF16, tF16x2:
		return half
	case tBF16, tBF16x2:
		return brain
	case tTF32:
		return tensor32
	case tF64:
		return double
	}
	return single
}

func (f format) bias() int        { return 1<<(f.exponent-1) - 1 }
func (f format) infinity() uint64 { return (1<<f.exponent - 1) << f.fraction }
func (f format) sign() uint64     { return 1 << (f.exponent + f.fraction) }

// nan is the NaN that arithmetic returns: all bits of the fraction are set, except for double.
func (f format) nan() uint64 {
	if f == double {
		return 0x7ff8_0000_0000_0000
	}
	return f.sign() - 1
}

// largest is the greatest finite value.
func (f format) largest() uint64 { return f.infinity() - 1 }

// encode rounds (-1)^neg * mant * 2^exp to the format; sticky says that the exact magnitude is a little
// larger.
func (f format) encode(neg bool, mant uint64, exp int, sticky bool, mode rounding) uint64 {
	sign := uint64(0)
	if neg {
		sign = f.sign()
	}
	if mant == 0 && !sticky {
		return sign
	}
	lead := bits.LeadingZeros64(mant)
	if mant == 0 {
		lead = 63
	}
	mant <<= lead
	exp += 63 - lead // mant is 1.xxx times 2^exp, its point after the top bit
	drop := 63 - f.fraction
	biased := exp + f.bias()
	if biased < 1 {
		drop += 1 - biased
		biased = 0
	}
	var kept, rest uint64
	switch {
	case drop > 64:
		rest, sticky = 0, true
	case drop == 64:
		rest = mant
	default:
		kept, rest = mant>>drop, mant<<(64-drop)
	}
	if drop == 0 {
		rest = 0
	}
	up := false
	switch mode {
	case toNearest:
		up = rest > 1<<63 || rest == 1<<63 && (sticky || kept&1 == 1)
	case tiesAway:
		up = rest >= 1<<63
	case toMinus:
		up = neg && (rest != 0 || sticky)
	case toPlus:
		up = !neg && (rest != 0 || sticky)
	}
	if up {
		kept++
	}
	out := kept
	if biased > 0 {
		out += uint64(biased-1) << f.fraction // kept carries the leading one
	}
	if biased >= 1<<f.exponent-1 || out >= f.infinity() {
		if mode == toZero || mode == toMinus && !neg || mode == toPlus && neg {
			return sign | f.largest()
		}
		return sign | f.infinity()
	}
	return sign | out
}

// value is the exact number that bits represent.
func (f format) value(b uint64) float64 {
	if f == double {
		return math.Float64frombits(b)
	}
	if f == half {
		return float64(halfTable[uint16(b)])
	}
	return float64(math.Float32frombits(uint32(b << (23 - f.fraction))))
}

// round rounds a value to the format.
func (f format) round(x float64, mode rounding) uint64 {
	switch {
	case x != x:
		return f.nan()
	case math.IsInf(x, 0):
		if x < 0 {
			return f.sign() | f.infinity()
		}
		return f.infinity()
	case f == single && mode == toNearest:
		return uint64(math.Float32bits(float32(x)))
	case f == double:
		return math.Float64bits(x)
	}
	b := math.Float64bits(x)
	mant, exp := b&(1<<52-1), int(b>>52&0x7ff)
	if exp == 0 {
		exp = 1
	} else {
		mant |= 1 << 52
	}
	return f.encode(b>>63 == 1, mant, exp-1075, false, mode)
}

var halfTable [1 << 16]float32

func init() {
	for i := range halfTable {
		e, m := i>>10&31, float64(i&1023)
		v := (1 + m/1024) * math.Exp2(float64(e-15))
		switch {
		case e == 31 && m == 0:
			v = math.Inf(1)
		case e == 31:
			v = math.NaN()
		case e == 0:
			v = m * 0x1p-24
		}
		if i>>15 == 1 {
			v = math.Copysign(v, -1)
		}
		halfTable[i] = float32(v)
	}
}

func f32(x uint32) float32 { return math.Float32frombits(x) }

const nan32 = 0x7fffffff

// bits32 is the bits of a result, with one NaN for all.
func bits32(x float32) uint32 {
	if x != x {
		return nan32
	}
	return math.Float32bits(x)
}

// toHalf rounds a float32 to a half, to nearest even.
func toHalf(b uint32) uint32 {
	s, a := b>>16&0x8000, b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return 0x7fff
	case a >= 0x477ff000: // rounds to 65536 and beyond
		return s | 0x7c00
	case a >= 0x38800000:
		return s | (a-0x38000000+0xfff+a>>13&1)>>13
	}
	// Below the smallest normal number, 2^-14, the steps are 2^-24, to which the sum with 0.5 rounds.
	return s | (math.Float32bits(f32(a)+0.5) - 0x3f000000)
}

// toBrain rounds a float32 to a bfloat16, to nearest even.
func toBrain(b uint32) uint32 {
	if b&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

// flush replaces a subnormal number by a zero of the same sign.
func flush(b uint32) uint32 {
	if b&0x7f800000 == 0 {
		return b & 0x80000000
	}
	return b
}

// sumOdd is a+b rounded to odd, so that rounding it again to half the precision or less gives the same as
// rounding the exact sum.
func sumOdd(a, b float64) float64 {
	s := a + b
	v := s - a
	return odd(s, (a-(s-v))+(b-v))
}

// odd turns s, which was rounded to nearest leaving rest, into the result rounded to odd.
func odd(s, rest float64) float64 {
	if rest == 0 || rest != rest || math.Float64bits(s)&1 == 1 || math.IsInf(s, 0) {
		return s
	}
	if rest > 0 {
		return math.Nextafter(s, math.Inf(1))
	}
	return math.Nextafter(s, math.Inf(-1))
}

// fma32 is x*y+z rounded once to nearest.
func fma32(x, y, z uint32) uint32 {
	p := float64(f32(x)) * float64(f32(y)) // exact
	s := p + float64(f32(z))
	b := math.Float64bits(s)
	if b&0x1fffffff != 0x10000000 && b>>52&0x7ff > 1023-126 {
		return bits32(float32(s))
	}
	return bits32(float32(sumOdd(p, float64(f32(z)))))
}

// exp2Table holds 2^(i/32) for i from 0 to 31.
var exp2Table [32]float64

// exp2Series are the coefficients of 2^x = e^(x ln 2) from x^1 on.
var exp2Series [6]float64

func init() {
	for i := range exp2Table {
		exp2Table[i] = math.Exp2(float64(i) / 32)
	}
	c := 1.0
	for i := range exp2Series {
		c *= math.Ln2 / float64(i+1)
		exp2Series[i] = c
	}
}

// exp2 is 2^x to within a few units in float64's last place, faster than math.Exp2, if float32 does not
// overflow.
func exp2(x float64) float64 {
	if !(x > -1000 && x < 1000) {
		return math.Exp2(x)
	}
	n := math.Floor(x * 32)
	r := x - n/32
	// The conversions keep the compiler from fusing products and sums on processors that could.
	s := exp2Series[5]
	for i := 4; i >= 0; i-- {
		s = float64(s*r) + exp2Series[i]
	}
	k := int(n)
	t := exp2Table[k&31]
	return (t + float64(t*float64(s*r))) * math.Float64frombits(uint64(k>>5+1023)<<52)
}
