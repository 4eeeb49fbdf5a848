package ptxsim

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

var bigModes = map[rounding]big.RoundingMode{
	toNearest: big.ToNearestEven, toZero: big.ToZero, toMinus: big.ToNegativeInf, toPlus: big.ToPositiveInf, tiesAway: big.ToNearestAway,
}

// rounded is x rounded to the format by math/big, to check format.encode.
func rounded(f format, x *big.Float, mode rounding) uint64 {
	sign := uint64(0)
	if x.Signbit() {
		sign = f.sign()
	}
	if x.Sign() == 0 {
		return sign
	}
	least := 1 - f.bias() - f.fraction // exponent of the smallest subnormal number
	e := x.MantExp(nil) - 1            // x is 1.xxx times 2^e
	prec := f.fraction + 1
	if e-f.fraction < least {
		prec = e - least + 1
	}
	if prec < 1 { // less than the smallest subnormal number: compare with half of it
		small := new(big.Float).SetMantExp(big.NewFloat(1), least)
		half := new(big.Float).SetMantExp(big.NewFloat(1), least-1)
		c := new(big.Float).Abs(x).Cmp(half)
		up := c > 0 && (mode == toNearest || mode == tiesAway) || c == 0 && mode == tiesAway || mode == toPlus && sign == 0 || mode == toMinus && sign != 0
		if !up {
			return sign
		}
		x = small
		prec = 1
	}
	y := new(big.Float).SetPrec(uint(prec)).SetMode(bigModes[mode]).Set(x)
	y.Abs(y)
	most := f.bias()
	if e := y.MantExp(nil) - 1; e > most {
		if mode == toZero || mode == toPlus && sign != 0 || mode == toMinus && sign == 0 {
			return sign | f.largest()
		}
		return sign | f.infinity()
	}
	if e := y.MantExp(nil) - 1; e >= 1-f.bias() {
		m := new(big.Float).SetMantExp(y, f.fraction-e)
		n, _ := m.Uint64()
		return sign | uint64(e+f.bias())<<f.fraction | n&(1<<f.fraction-1)
	}
	n, _ := new(big.Float).SetMantExp(y, -least).Uint64()
	return sign | n
}

// specimens are bit patterns of a format: zeros, subnormal and normal numbers, the largest number,
// infinities, NaN, and random ones.
func specimens(f format) []uint64 {
	s := []uint64{0, 1, 2, 3, 1<<f.fraction - 1, 1 << f.fraction, 1<<f.fraction + 1, uint64(f.bias()) << f.fraction, uint64(f.bias())<<f.fraction + 1,
		f.largest(), f.largest() - 1, f.infinity(), f.nan(), f.infinity() + 1, uint64(f.bias()+f.fraction) << f.fraction, uint64(f.bias()-1) << f.fraction}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		s = append(s, r.Uint64()&(f.sign()-1))
	}
	for range 20 { // numbers near one, whose sums cancel
		s = append(s, uint64(f.bias())<<f.fraction+uint64(r.IntN(4))<<f.fraction|r.Uint64()&(1<<f.fraction-1))
	}
	for _, x := range s {
		s = append(s, x|f.sign())
	}
	return s
}

func finite(f format, list ...uint64) bool {
	for _, x := range list {
		if x&f.infinity() == f.infinity() {
			return false
		}
	}
	return true
}

func number(f format, b uint64) *big.Float {
	return new(big.Float).SetPrec(2000).SetFloat64(f.value(b))
}

// TestFloatArithmetic checks add, sub, mul and fma for every format and rounding mode against math/big.
func TestFloatArithmetic(t *testing.T) {
	for _, x := range []struct {
		name string
		f    format
		size int
		reg  string
		mods []string
	}{
		{"f16", half, 2, "h", []string{""}},
		{"bf16", brain, 2, "h", []string{""}},
		{"f32", single, 4, "r", []string{"", ".rz", ".rm", ".rp"}},
		{"f64", double, 8, "rd", []string{""}},
	} {
		for _, mod := range x.mods {
			mode := roundingNames["rn"]
			if mod != "" {
				mode = roundingNames[mod[1:]]
			}
			sum := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(4000).Add(a, b) }
			product := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(4000).Mul(a, b) }
			check := func(op string, n int, f func(a, b, c *big.Float) *big.Float) {
				t.Helper()
				if x.name == "bf16" && op != "fma" {
					return // sm_90
				}
				r := mod
				if op == "fma" && r == "" {
					r = ".rn"
				}
				text := fmt.Sprintf("%s%s.%s %%%[4]s5, %%%[4]s3, %%%[4]s4", op, r, x.name, x.reg)
				if n == 3 {
					text += fmt.Sprintf(", %%%s6", x.reg)
				}
				triple(t, text+";", x.size, x.size, specimens(x.f), func(a, b, c uint64) uint64 {
					if n == 2 {
						c = 0
					}
					if !finite(x.f, a, b, c) {
						return floatLike(x.f, op, a, b, c)
					}
					v := f(number(x.f, a), number(x.f, b), number(x.f, c))
					if v.Sign() == 0 {
						return zeroLike(x.f, op, a, b, c, mode)
					}
					return rounded(x.f, v, mode)
				})
			}
			check("add", 2, func(a, b, _ *big.Float) *big.Float { return sum(a, b) })
			check("sub", 2, func(a, b, _ *big.Float) *big.Float { return sum(a, new(big.Float).Neg(b)) })
			check("mul", 2, func(a, b, _ *big.Float) *big.Float { return product(a, b) })
			check("fma", 3, func(a, b, c *big.Float) *big.Float { return sum(product(a, b), c) })
		}
	}
}

// compute computes an operation in float64.
func compute(op string, a, b, c float64) float64 {
	switch op {
	case "add":
		return a + b
	case "sub":
		return a - b
	case "mul":
		return a * b
	}
	return a*b + c
}

// floatLike is a result when infinities or NaN are among the operands.
func floatLike(f format, op string, a, b, c uint64) uint64 {
	v := compute(op, f.value(a), f.value(b), f.value(c))
	if v != v {
		return f.nan()
	}
	return f.round(v, toNearest)
}

// zeroLike is a result that is exactly zero: it has the sign of both terms or, if their signs differ, plus,
// except minus when rounding to minus.
func zeroLike(f format, op string, a, b, c uint64, mode rounding) uint64 {
	s := f.sign()
	switch op {
	case "mul":
		return (a ^ b) & s
	case "sub":
		b ^= s
	case "fma":
		a, b = (a^b)&s, c
		if math.Abs(f.value(c)) != 0 {
			a, b = 0, s
		}
	}
	switch {
	case a&s == b&s && f.value(b) == 0:
		return a & s
	case mode == toMinus:
		return s
	}
	return 0
}

func TestFlushAndSaturate(t *testing.T) {
	sub := uint32(0x00000123) // subnormal
	for _, x := range []struct {
		text    string
		a, b, c uint32
		want    uint32
	}{
		{"add.ftz.f32 %f5, %f3, %f4;", sub, 0, 0, 0},
		{"add.ftz.f32 %f5, %f3, %f4;", sub | 1<<31, 1 << 31, 0, 1 << 31},
		{"add.f32 %f5, %f3, %f4;", sub, 0, 0, sub},
		{"mul.ftz.f32 %f5, %f3, %f4;", 0x00800000, 0x3f000000, 0, 0}, // the product is subnormal
		{"mul.f32 %f5, %f3, %f4;", 0x00800000, 0x3f000000, 0, 0x00400000},
		{"fma.rn.ftz.f32 %f5, %f3, %f4, %f6;", 0x3f800000, 0x3f800000, sub, 0x3f800000},
		{"add.sat.f32 %f5, %f3, %f4;", 0x3f800000, 0x3f800000, 0, 0x3f800000},
		{"add.sat.f32 %f5, %f3, %f4;", 0xbf800000, 0, 0, 0},
		{"mul.sat.f32 %f5, %f3, %f4;", nan32, 0, 0, 0},
		{"neg.ftz.f32 %f5, %f3;", sub, 0, 0, 1 << 31},
		{"abs.f32 %f5, %f3;", 0xbf800000, 0, 0, 0x3f800000},
		{"min.f32 %f5, %f3, %f4;", nan32, 0x3f800000, 0, 0x3f800000},
		{"max.f32 %f5, %f3, %f4;", 0x3f800000, nan32, 0, 0x3f800000},
		{"max.f32 %f5, %f3, %f4;", 0x7fc12345, 0xffc12345, 0, nan32},
		{"min.NaN.f32 %f5, %f3, %f4;", nan32, 0x3f800000, 0, nan32},
		{"min.f32 %f5, %f3, %f4;", 0, 1 << 31, 0, 1 << 31},
		{"max.f32 %f5, %f3, %f4;", 1 << 31, 0, 0, 0},
		{"min.ftz.f32 %f5, %f3, %f4;", sub, 0x3f800000, 0, 0},
		{"copysign.f32 %f5, %f3, %f4;", 1 << 31, 0x3f800000, 0, 0xbf800000},
		{"div.rn.f32 %f5, %f3, %f4;", 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
		{"div.rz.f32 %f5, %f3, %f4;", 0x3f800000, 0x40400000, 0, 0x3eaaaaaa},
		{"div.full.f32 %f5, %f3, %f4;", 0x40c00000, 0x40400000, 0, 0x40000000},
		{"sqrt.rn.f32 %f5, %f3;", 0x40000000, 0, 0, 0x3fb504f3},
		{"sqrt.rp.f32 %f5, %f3;", 0x40000000, 0, 0, 0x3fb504f4},
		{"sqrt.rn.f32 %f5, %f3;", 0xbf800000, 0, 0, nan32},
		{"rcp.rn.f32 %f5, %f3;", 0x40400000, 0, 0, 0x3eaaaaab},
		{"rcp.approx.ftz.f32 %f5, %f3;", sub, 0, 0, 0x7f800000},
		{"rsqrt.approx.f32 %f5, %f3;", 0x40800000, 0, 0, 0x3f000000},
		{"ex2.approx.ftz.f32 %f5, %f3;", 0x40400000, 0, 0, 0x41000000},
		{"ex2.approx.f32 %f5, %f3;", 0xc3000000, 0, 0, 0x00200000}, // 2^-128
		{"ex2.approx.ftz.f32 %f5, %f3;", 0xc3000000, 0, 0, 0},
		{"lg2.approx.f32 %f5, %f3;", 0x41000000, 0, 0, 0x40400000},
		{"lg2.approx.f32 %f5, %f3;", 0, 0, 0, 0xff800000},
		{"sin.approx.f32 %f5, %f3;", 0, 0, 0, 0},
		{"cos.approx.f32 %f5, %f3;", 0, 0, 0, 0x3f800000},
		{"tanh.approx.f32 %f5, %f3;", 0x7f800000, 0, 0, 0x3f800000},
	} {
		text := "mov.b32 %f3, %r3; mov.b32 %f4, %r4; mov.b32 %f6, %r6; " + x.text + " mov.b32 %r5, %f5;"
		m := mustParse(t, header+".visible .entry k(.param .u64 out, .param .u32 a, .param .u32 b, .param .u32 c){ .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>;"+
			"ld.param.u64 %rd1, [out]; ld.param.u32 %r3, [a]; ld.param.u32 %r4, [b]; ld.param.u32 %r6, [c];"+text+"st.global.u32 [%rd1], %r5; }")
		mem := NewMemory(1 << 20)
		out := alloc(t, mem, 4)
		if err := Launch(mem, m.Kernel("k"), Grid{}, args(out, x.a, x.b, x.c), Options{}); err != nil {
			t.Fatal(err)
		}
		if got := uint32(loadBytes(bytesOf(t, mem, out, 4), 4)); got != x.want {
			t.Errorf("%s of %#x, %#x, %#x: %#x, want %#x", x.text, x.a, x.b, x.c, got, x.want)
		}
	}
}

// TestUnordered checks all comparisons with and without NaN.
func TestUnordered(t *testing.T) {
	f := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	values := []uint64{f(0), 1 << 31, f(1), f(-1), 0x7f800000, 0xff800000, nan32, 0x00000001}
	for name, want := range map[string]func(a, b float32) bool{
		"eq": func(a, b float32) bool { return a == b }, "ne": func(a, b float32) bool { return a < b || a > b },
		"lt": func(a, b float32) bool { return a < b }, "le": func(a, b float32) bool { return a <= b },
		"gt": func(a, b float32) bool { return a > b }, "ge": func(a, b float32) bool { return a >= b },
		"equ": func(a, b float32) bool { return !(a < b || a > b) }, "neu": func(a, b float32) bool { return a != b },
		"ltu": func(a, b float32) bool { return !(a >= b) }, "leu": func(a, b float32) bool { return !(a > b) },
		"gtu": func(a, b float32) bool { return !(a <= b) }, "geu": func(a, b float32) bool { return !(a < b) },
		"num": func(a, b float32) bool { return a == a && b == b }, "nan": func(a, b float32) bool { return a != a || b != b },
	} {
		triple(t, fmt.Sprintf("setp.%s.f32 %%p1, %%r3, %%r4; selp.u32 %%r5, 1, 0, %%p1;", name), 4, 4, values, func(a, b, _ uint64) uint64 {
			if want(f32(uint32(a)), f32(uint32(b))) {
				return 1
			}
			return 0
		})
	}
}

// TestPairs checks f16x2 against f16, half by half.
func TestPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var values []uint64
	s := specimens(half)
	for range 60 {
		values = append(values, s[r.IntN(len(s))]|s[r.IntN(len(s))]<<16)
	}
	for op, scalar := range map[string]func(a, b, c uint64) uint64{
		"add.f16x2": func(a, b, _ uint64) uint64 { return half.round(half.value(a)+half.value(b), toNearest) },
		"sub.f16x2": func(a, b, _ uint64) uint64 { return half.round(half.value(a)-half.value(b), toNearest) },
		"mul.f16x2": func(a, b, _ uint64) uint64 { return half.round(half.value(a)*half.value(b), toNearest) },
		"fma.rn.f16x2": func(a, b, c uint64) uint64 {
			return half.round(sumOdd(half.value(a)*half.value(b), half.value(c)), toNearest)
		},
	} {
		text := op + " %r5, %r3, %r4"
		if op[0] == 'f' {
			text += ", %r6"
		}
		triple(t, text+";", 4, 4, values, func(a, b, c uint64) uint64 {
			return scalar(a&0xffff, b&0xffff, c&0xffff) | scalar(a>>16, b>>16, c>>16)<<16
		})
	}
	triple(t, "max.bf16x2 %r5, %r3, %r4;", 4, 4, []uint64{0x3f803f80, 0x40003f00, 0xbf80c000}, func(a, b, _ uint64) uint64 {
		most := func(a, b uint64) uint64 {
			if brain.value(a) > brain.value(b) {
				return a
			}
			return b
		}
		return most(a&0xffff, b&0xffff) | most(a>>16, b>>16)<<16
	})
	triple(t, "ex2.approx.f16x2 %r5, %r3;", 4, 4, []uint64{0x3c004000, 0xbc00c000}, func(a, _, _ uint64) uint64 {
		e := func(a uint64) uint64 { return half.round(math.Exp2(half.value(a)), toNearest) }
		return e(a&0xffff) | e(a>>16)<<16
	})
}

func TestExp2(t *testing.T) {
	for x := -200.0; x < 200; x += 0.0137 {
		if got, want := exp2(x), math.Exp2(x); math.Abs(got-want) > 1e-15*want {
			t.Fatalf("2^%g: %g, want %g", x, got, want)
		}
	}
	for _, x := range []float64{0, 1, -1, 127, -149, math.Inf(1), math.Inf(-1), -2000} {
		if got, want := exp2(x), math.Exp2(x); got != want {
			t.Errorf("2^%g: %g, want %g", x, got, want)
		}
	}
	if exp2(math.NaN()) == exp2(math.NaN()) {
		t.Error("2^NaN is a number")
	}
}
