package ptxsim

import (
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// pair runs an instruction on many pairs of values, one pair per thread, and compares the results with want.
// In the text %rd3 and %rd4, or %r3 and %r4, or %h3 and %h4, hold the operands and %rd5, %r5 or %h5 the
// result, by the size in bytes.
func pair(t *testing.T, text string, size int, values []uint64, want func(a, b uint64) uint64) {
	t.Helper()
	triple(t, text, size, size, values, func(a, b, _ uint64) uint64 { return want(a, b) })
}

// triple is pair with a third operand, in %rd6 and the like, and a separate size for the result.
func triple(t *testing.T, text string, size, result int, values []uint64, want func(a, b, x uint64) uint64) {
	t.Helper()
	reg := map[int]string{2: "h", 4: "r", 8: "rd"}
	m := mustParse(t, header+fmt.Sprintf(`.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b16 %%h<9>; .reg .b32 %%r<9>; .reg .b64 %%rd<9>; .reg .pred %%p<9>;
	mov.u32 %%r0, %%tid.x;
	ld.param.u64 %%rd0, [in];
	ld.param.u64 %%rd1, [out];
	mad.wide.u32 %%rd0, %%r0, 24, %%rd0;
	mad.wide.u32 %%rd1, %%r0, 8, %%rd1;
	ld.global.b%[1]d %%%[2]s3, [%%rd0];
	ld.global.b%[1]d %%%[2]s4, [%%rd0+8];
	ld.global.b%[1]d %%%[2]s6, [%%rd0+16];
	%[3]s
	st.global.b%[4]d [%%rd1], %%%[5]s5;
	ret;
}`, 8*size, reg[size], text, 8*result, reg[result]))
	mem := NewMemory(1 << 20)
	r := rand.New(rand.NewPCG(1, 2))
	var in []uint64
	for range 64 { // the values with each other
		for range 3 {
			in = append(in, truncate(values[r.IntN(len(values))], size))
		}
	}
	n := len(in) / 3
	a, out := alloc(t, mem, 8*len(in)), alloc(t, mem, 8*n)
	copy(bytesOf(t, mem, a, 8*len(in)), args(in))
	if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{uint32(n)}}, args(a, out), Options{Checks: CheckAll}); err != nil {
		t.Fatal(err)
	}
	res := bytesOf(t, mem, out, 8*n)
	for i := range n {
		x, y, z := in[3*i], in[3*i+1], in[3*i+2]
		if got, w := loadBytes(res[8*i:], 8), truncate(want(x, y, z), result); got != w {
			t.Fatalf("%s of %#x, %#x, %#x: %#x, want %#x", text, x, y, z, got, w)
		}
	}
}

// edges are values for which integer instructions easily go wrong.
var edges = []uint64{0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff, 0x10000,
	0x12345678, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0x100000000, 0x123456789abcdef0,
	0x7fffffffffffffff, 0x8000000000000000, 0xfffffffffffffffe, 0xffffffffffffffff}

func TestIntegerArithmetic(t *testing.T) {
	for size, bitsOf := range map[int]int{2: 16, 4: 32, 8: 64} {
		r := map[int]string{2: "h", 4: "r", 8: "rd"}[size]
		run := func(op string, want func(a, b uint64) uint64) {
			t.Helper()
			pair(t, fmt.Sprintf("%s%d %%%s5, %%%s3, %%%s4;", op, bitsOf, r, r, r), size, edges, want)
		}
		run("add.s", func(a, b uint64) uint64 { return a + b })
		run("sub.u", func(a, b uint64) uint64 { return a - b })
		run("mul.lo.s", func(a, b uint64) uint64 { return a * b })
		run("min.s", func(a, b uint64) uint64 { return uint64(min(extend(a, size), extend(b, size))) })
		run("max.s", func(a, b uint64) uint64 { return uint64(max(extend(a, size), extend(b, size))) })
		run("min.u", func(a, b uint64) uint64 { return min(a, b) })
		run("max.u", func(a, b uint64) uint64 { return max(a, b) })
		run("and.b", func(a, b uint64) uint64 { return a & b })
		run("or.b", func(a, b uint64) uint64 { return a | b })
		run("xor.b", func(a, b uint64) uint64 { return a ^ b })
		run("mul.hi.u", func(a, b uint64) uint64 { return bigHigh(size, false, a, b) })
		run("mul.hi.s", func(a, b uint64) uint64 { return bigHigh(size, true, a, b) })
		run("div.u", func(a, b uint64) uint64 {
			if b == 0 {
				return ^uint64(0)
			}
			return a / b
		})
		run("rem.u", func(a, b uint64) uint64 {
			if b == 0 {
				return a
			}
			return a % b
		})
		run("div.s", func(a, b uint64) uint64 {
			x, y := big.NewInt(extend(a, size)), big.NewInt(extend(b, size))
			if b == 0 {
				return ^uint64(0)
			}
			return lowBits(x.Quo(x, y))
		})
		one := func(op string, want func(a, _ uint64) uint64) {
			t.Helper()
			pair(t, fmt.Sprintf("%s%d %%%s5, %%%s3;", op, bitsOf, r, r), size, edges, want)
		}
		one("neg.s", func(a, _ uint64) uint64 { return -a })
		one("abs.s", func(a, _ uint64) uint64 { return uint64(max(extend(a, size), -extend(a, size))) })
		one("not.b", func(a, _ uint64) uint64 { return ^a })
	}
}

func bigHigh(size int, signed bool, a, b uint64) uint64 {
	x, y := new(big.Int).SetUint64(a), new(big.Int).SetUint64(b)
	if signed {
		x, y = big.NewInt(extend(a, size)), big.NewInt(extend(b, size))
	}
	p := x.Mul(x, y)
	return lowBits(p.Rsh(p, uint(8*size)))
}

// lowBits is the low 64 bits of a number in two's complement.
func lowBits(x *big.Int) uint64 {
	return new(big.Int).And(x, new(big.Int).SetUint64(^uint64(0))).Uint64()
}

func TestWideProducts(t *testing.T) {
	s4, u4 := func(a uint64) uint64 { return uint64(extend(a, 4)) }, func(a uint64) uint64 { return a }
	triple(t, "mul.wide.u32 %rd5, %r3, %r4;", 4, 8, edges, func(a, b, _ uint64) uint64 { return u4(a) * u4(b) })
	triple(t, "mul.wide.s32 %rd5, %r3, %r4;", 4, 8, edges, func(a, b, _ uint64) uint64 { return s4(a) * s4(b) })
	triple(t, "cvt.u64.u32 %rd2, %r6; mad.wide.s32 %rd5, %r3, %r4, %rd2;", 4, 8, edges, func(a, b, x uint64) uint64 { return s4(a)*s4(b) + x })
	triple(t, "mul.wide.u16 %r5, %h3, %h4;", 2, 4, edges, func(a, b, _ uint64) uint64 { return a * b })
	triple(t, "mul.wide.s16 %r5, %h3, %h4;", 2, 4, edges, func(a, b, _ uint64) uint64 { return uint64(extend(a, 2) * extend(b, 2)) })
	triple(t, "mad.lo.s32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, b, x uint64) uint64 { return a*b + x })
	triple(t, "mad.hi.u32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, b, x uint64) uint64 { return a*b>>32 + x })
	triple(t, "mad.lo.u64 %rd5, %rd3, %rd4, %rd6;", 8, 8, edges, func(a, b, x uint64) uint64 { return a*b + x })
	triple(t, "mad.hi.s64 %rd5, %rd3, %rd4, %rd6;", 8, 8, edges, func(a, b, x uint64) uint64 { return bigHigh(8, true, a, b) + x })
	triple(t, "mul24.lo.u32 %r5, %r3, %r4;", 4, 4, edges, func(a, b, _ uint64) uint64 { return a & 0xffffff * (b & 0xffffff) })
	triple(t, "sad.u32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, b, x uint64) uint64 { return x + max(a, b) - min(a, b) })
	triple(t, "add.sat.s32 %r5, %r3, %r4;", 4, 4, edges, func(a, b, _ uint64) uint64 {
		return uint64(min(max(extend(a, 4)+extend(b, 4), -1<<31), 1<<31-1))
	})
}

// TestCarry adds, subtracts and multiplies 128-bit numbers in parts.
func TestCarry(t *testing.T) {
	triple(t, "add.cc.u64 %rd2, %rd3, %rd4; addc.u64 %rd5, %rd6, 0;", 8, 8, edges, func(a, b, x uint64) uint64 {
		_, c := bits.Add64(a, b, 0)
		return x + c
	})
	triple(t, "sub.cc.u32 %r2, %r3, %r4; subc.u32 %r5, %r6, 0;", 4, 4, edges, func(a, b, x uint64) uint64 {
		if a < b {
			return x - 1
		}
		return x
	})
	triple(t, "mad.lo.cc.u32 %r2, %r3, %r4, %r6; madc.hi.u32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, b, x uint64) uint64 {
		return (a*b&0xffffffff+x)>>32 + a*b>>32 + x
	})
	triple(t, "add.cc.u32 %r2, %r3, %r4; addc.cc.u32 %r2, %r3, %r6; addc.u32 %r5, 0, 0;", 4, 4, edges, func(a, b, x uint64) uint64 {
		return (a + x + (a+b)>>32) >> 32
	})
}

func TestBits(t *testing.T) {
	triple(t, "shl.b32 %r5, %r3, %r4;", 4, 4, edges, func(a, b, _ uint64) uint64 { return a << b })
	triple(t, "shr.u32 %r5, %r3, %r4;", 4, 4, edges, func(a, b, _ uint64) uint64 { return a >> b })
	triple(t, "shr.s32 %r5, %r3, %r4;", 4, 4, edges, func(a, b, _ uint64) uint64 { return uint64(extend(a, 4) >> b) })
	triple(t, "cvt.u32.u64 %r2, %rd4; shl.b64 %rd5, %rd3, %r2;", 8, 8, edges, func(a, b, _ uint64) uint64 { return a << uint32(b) })
	triple(t, "cvt.u32.u64 %r2, %rd4; shr.s64 %rd5, %rd3, %r2;", 8, 8, edges, func(a, b, _ uint64) uint64 { return uint64(int64(a) >> uint32(b)) })
	triple(t, "cvt.u32.u16 %r2, %h4; shl.b16 %h5, %h3, %r2;", 2, 2, edges, func(a, b, _ uint64) uint64 { return a << b })
	triple(t, "cvt.u32.u16 %r2, %h4; shr.s16 %h5, %h3, %r2;", 2, 2, edges, func(a, b, _ uint64) uint64 { return uint64(extend(a, 2) >> b) })
	triple(t, "shf.l.wrap.b32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(lo, hi, n uint64) uint64 { return (hi<<32 | lo) << (n & 31) >> 32 })
	triple(t, "shf.r.wrap.b32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(lo, hi, n uint64) uint64 { return (hi<<32 | lo) >> (n & 31) })
	triple(t, "shf.r.clamp.b32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(lo, hi, n uint64) uint64 { return (hi<<32 | lo) >> min(n, 32) })
	triple(t, "popc.b32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) })
	triple(t, "popc.b64 %r5, %rd3;", 8, 4, edges, func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) })
	triple(t, "clz.b32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(a))) })
	triple(t, "clz.b64 %r5, %rd3;", 8, 4, edges, func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a)) })
	triple(t, "brev.b32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) })
	triple(t, "brev.b32 %r2, %r3; bfind.u32 %r2, %r2; sub.u32 %r5, 32, %r2;", 4, 4, edges, func(a, _, _ uint64) uint64 { // ffs
		if a == 0 {
			return 33
		}
		return uint64(bits.TrailingZeros64(a)) + 1
	})
	triple(t, "bfind.shiftamt.s32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 {
		if extend(a, 4) < 0 {
			a = ^a & 0xffffffff
		}
		if a == 0 {
			return 0xffffffff
		}
		return uint64(bits.LeadingZeros32(uint32(a)))
	})
	triple(t, "bfe.u32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, pos, n uint64) uint64 { return field(a, pos&255, n&255, 32, false) })
	triple(t, "bfe.s32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, pos, n uint64) uint64 { return field(a, pos&255, n&255, 32, true) })
	triple(t, "cvt.u32.u64 %r2, %rd4; cvt.u32.u64 %r1, %rd6; bfe.s64 %rd5, %rd3, %r2, %r1;", 8, 8, edges, func(a, pos, n uint64) uint64 { return field(a, pos&255, n&255, 64, true) })
	triple(t, "bfi.b32 %r5, %r3, %r4, 5, 9;", 4, 4, edges, func(a, b, _ uint64) uint64 { return b&^(511<<5) | a&511<<5 })
	triple(t, "bfi.b32 %r5, %r3, %r4, %r6, 40;", 4, 4, edges, func(a, b, x uint64) uint64 {
		if x &= 255; x > 31 {
			return b
		}
		return b&(1<<x-1) | a<<x
	})
	triple(t, "lop3.b32 %r5, %r3, %r4, %r6, 0x96;", 4, 4, edges, func(a, b, x uint64) uint64 { return a ^ b ^ x })
	triple(t, "lop3.b32 %r5, %r3, %r4, %r6, 0xE2;", 4, 4, edges, func(a, b, x uint64) uint64 { return a&b | x&^b })
	triple(t, "fns.b32 %r5, %r3, 0, 2;", 4, 4, edges, func(a, _, _ uint64) uint64 {
		if a &= a - 1; a == 0 {
			return 0xffffffff
		}
		return uint64(bits.TrailingZeros64(a))
	})
	triple(t, "bmsk.clamp.b32 %r5, 4, 3;", 4, 4, edges, func(_, _, _ uint64) uint64 { return 0x70 })
	triple(t, "dp4a.s32.u32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, b, x uint64) uint64 {
		for i := 0; i < 32; i += 8 {
			x += uint64(int64(int8(a>>i)) * int64(uint8(b>>i)))
		}
		return x
	})
}

// field is bfe by the manual's bit-by-bit definition.
func field(a, pos, n, width uint64, signed bool) uint64 {
	sign := uint64(0)
	if signed && n > 0 {
		sign = a >> min(pos+n-1, width-1) & 1
	}
	out := uint64(0)
	for i := range width {
		bit := sign
		if i < n && pos+i < width {
			bit = a >> (pos + i) & 1
		}
		out |= bit << i
	}
	return out
}

func TestPermute(t *testing.T) {
	bytesAt := func(a, b uint64, sel ...uint64) uint64 {
		v, out := b<<32|a, uint64(0)
		for i, s := range sel {
			out |= v >> (8 * (s & 7)) & 255 << (8 * i)
		}
		return out
	}
	triple(t, "prmt.b32 %r5, %r3, %r4, 0x7531;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 1, 3, 5, 7) })
	triple(t, "prmt.b32 %r5, %r3, %r4, 0x5410;", 4, 4, edges, func(a, b, _ uint64) uint64 { return b<<16 | a&0xffff })
	triple(t, "prmt.b32 %r5, %r3, 0, 0x8888;", 4, 4, edges, func(a, _, _ uint64) uint64 { return -(a >> 7 & 1) })
	triple(t, "prmt.b32.f4e %r5, %r3, %r4, 2;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 2, 3, 4, 5) })
	triple(t, "prmt.b32.b4e %r5, %r3, %r4, 1;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 1, 0, 7, 6) })
	triple(t, "prmt.b32.rc8 %r5, %r3, %r4, 3;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 3, 3, 3, 3) })
	triple(t, "prmt.b32.ecl %r5, %r3, %r4, 2;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 2, 2, 2, 3) })
	triple(t, "prmt.b32.ecr %r5, %r3, %r4, 2;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 0, 1, 2, 2) })
	triple(t, "prmt.b32.rc16 %r5, %r3, %r4, 1;", 4, 4, edges, func(a, b, _ uint64) uint64 { return bytesAt(a, b, 2, 3, 2, 3) })
}

func TestComparisons(t *testing.T) {
	for name, f := range map[string]func(c int) bool{
		"eq": func(c int) bool { return c == 0 }, "ne": func(c int) bool { return c != 0 },
		"lt": func(c int) bool { return c < 0 }, "le": func(c int) bool { return c <= 0 },
		"gt": func(c int) bool { return c > 0 }, "ge": func(c int) bool { return c >= 0 },
	} {
		for _, size := range []int{2, 4, 8} {
			r := map[int]string{2: "h", 4: "r", 8: "rd"}[size]
			for _, signed := range []bool{false, true} {
				ty := fmt.Sprintf("%s%d", map[bool]string{false: "u", true: "s"}[signed], 8*size)
				text := fmt.Sprintf("setp.%s.%s %%p1|%%p2, %%%s3, %%%s4; selp.b32 %%r1, 1, 0, %%p1; selp.b32 %%r2, 2, 0, %%p2; or.b32 %%r5, %%r1, %%r2;", name, ty, r, r)
				triple(t, text, size, 4, edges, func(a, b, _ uint64) uint64 {
					c := 0
					switch {
					case signed && extend(a, size) < extend(b, size) || !signed && a < b:
						c = -1
					case a != b:
						c = 1
					}
					if f(c) {
						return 1
					}
					return 2
				})
			}
		}
	}
	triple(t, "setp.lt.u32 %p1, %r3, %r4; setp.gt.and.u32 %p2|%p3, %r3, 5, !%p1; set.eq.u32.u32 %r1, %r3, %r4; selp.b32 %r2, 2, 0, %p2; selp.b32 %r5, 4, 0, %p3; or.b32 %r5, %r5, %r2; and.b32 %r1, %r1, 1; or.b32 %r5, %r5, %r1;",
		4, 4, edges, func(a, b, _ uint64) uint64 {
			v := uint64(0)
			if a == b {
				v = 1
			}
			if a > 5 && a >= b {
				v |= 2
			}
			if a <= 5 && a >= b {
				v |= 4
			}
			return v
		})
	triple(t, "slct.b32.s32 %r5, %r3, %r4, %r6;", 4, 4, edges, func(a, b, x uint64) uint64 {
		if extend(x, 4) >= 0 {
			return a
		}
		return b
	})
}
