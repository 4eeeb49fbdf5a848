package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// What the code of operations is made of. How a set of instructions does it is decided
// here and where vectors meet memory (memory.go), by what the set has.

// dup copies a register.
func (a *asm) dup(x op) vec {
	d := a.vec()
	a.VMOVAPS(x, d)
	return d
}

func (a *asm) zero() vec {
	d := a.vec()
	a.VXORPS(d, d, d)
	return d
}

// native emits an instruction of arm64 that AVX has no counterpart of, which gives d from
// the operands and, with into, from d.
func (a *asm) native(name string, d vec, into bool, operands ...op) vec {
	i := &ir.Instruction{Opcode: name, Operands: append(operands, d), Inputs: operands, Outputs: []op{d}}
	if into {
		i.Inputs = i.Operands
	}
	a.Instruction(i)
	return d
}

// The last operand of these may be memory.

func (a *asm) add(x, y op) vec { d := a.vec(); a.VADDPS(y, x, d); return d }
func (a *asm) sub(x, y op) vec { d := a.vec(); a.VSUBPS(y, x, d); return d }
func (a *asm) mul(x, y op) vec { d := a.vec(); a.VMULPS(y, x, d); return d }
func (a *asm) div(x, y op) vec { d := a.vec(); a.VDIVPS(y, x, d); return d }

func (a *asm) and(x, y op) vec { d := a.vec(); a.VANDPS(y, x, d); return d }
func (a *asm) or(x, y op) vec  { d := a.vec(); a.VORPS(y, x, d); return d }
func (a *asm) xor(x, y op) vec { d := a.vec(); a.VXORPS(y, x, d); return d }

// andnot returns ^x & y.
func (a *asm) andnot(x, y op) vec { d := a.vec(); a.VANDNPS(y, x, d); return d }

// xor3 returns x ^ y ^ z; it may change x.
func (a *asm) xor3(x, y, z vec) vec {
	if a.Ternary {
		a.VPTERNLOGD(operand.U8(0x96), y, z, x)
		return x
	}
	return a.xor(a.xor(x, y), z)
}

func (a *asm) sqrt(x op) vec { d := a.vec(); a.VSQRTPS(x, d); return d }

func (a *asm) addi(x, y op) vec { d := a.vec(); a.VPADDD(y, x, d); return d }
func (a *asm) subi(x, y op) vec { d := a.vec(); a.VPSUBD(y, x, d); return d }
func (a *asm) maxi(x, y op) vec { d := a.vec(); a.VPMAXSD(y, x, d); return d }
func (a *asm) mini(x, y op) vec { d := a.vec(); a.VPMINSD(y, x, d); return d }

func (a *asm) shl(x op, n int) vec { d := a.vec(); a.VPSLLD(operand.U8(n), x, d); return d }
func (a *asm) shr(x op, n int) vec { d := a.vec(); a.VPSRLD(operand.U8(n), x, d); return d }
func (a *asm) sar(x op, n int) vec { d := a.vec(); a.VPSRAD(operand.U8(n), x, d); return d }

// toFloat converts signed integers.
func (a *asm) toFloat(x op) vec { d := a.vec(); a.VCVTDQ2PS(x, d); return d }

// mulAdd returns p*x + c, rounded once. It may change p.
func (a *asm) mulAdd(p vec, x, c op) vec {
	if a.Addend {
		d := a.own(c)
		a.mulAddInto(d, p, x)
		return d
	}
	a.VFMADD213PS(c, x, p)
	return p
}

// mulAddOwn is mulAdd for a c that may be changed as well.
func (a *asm) mulAddOwn(p, x, c vec) vec {
	if a.Addend {
		a.mulAddInto(c, p, x)
		return c
	}
	return a.mulAdd(p, x, c)
}

// mulAddInto changes acc to acc + x*y, rounded once.
func (a *asm) mulAddInto(acc vec, x, y op) { a.VFMADD231PS(y, x, acc) }

// mulSubInto changes acc to acc - x*y, rounded once.
func (a *asm) mulSubInto(acc vec, x, y op) { a.VFNMADD231PS(y, x, acc) }

// poly evaluates c[0] + c[1]x + ... by Horner's rule with fused operations.
func (a *asm) poly(c []float32, x vec) vec {
	p := a.fresh(float64(c[len(c)-1]))
	for i := len(c) - 2; i >= 0; i-- {
		p = a.mulAdd(p, x, a.k(float64(c[i])))
	}
	return p
}

// polyExact is poly with every operation rounded.
func (a *asm) polyExact(c []float32, x vec) vec {
	p := a.kreg(float64(c[len(c)-1]))
	for i := len(c) - 2; i >= 0; i-- {
		p = a.add(a.mul(p, x), a.k(float64(c[i])))
	}
	return p
}

// atMost and atLeast return x held to a bound that is a number other than 0; NaN where x is.
func (a *asm) atMost(bound vec, x op) vec {
	d := a.vec()
	if a.PassNaN {
		return a.native("FMINS", d, false, bound, x)
	}
	a.VMINPS(x, bound, d)
	return d
}

func (a *asm) atLeast(bound vec, x op) vec {
	d := a.vec()
	if a.PassNaN {
		return a.native("FMAXS", d, false, bound, x)
	}
	a.VMAXPS(x, bound, d)
	return d
}

// limit returns x held within [-bound, bound].
func (a *asm) limit(x vec, bound float64) vec {
	return a.atMost(a.kreg(bound), a.atLeast(a.kreg(-bound), x))
}

// positive returns x, or 0 where x < 0; NaN and -0 pass.
func (a *asm) positive(x vec) vec {
	if a.Zero {
		return a.andnot(a.cmpZero(lt, x), x)
	}
	zero, d := a.zero(), a.vec()
	a.VMAXPS(x, zero, d)
	return d
}

// nonPositive returns x, or 0 where x > 0, and within so too, held above least as well;
// NaN and -0 pass.
func (a *asm) nonPositive(x vec) vec {
	if a.Zero {
		return a.andnot(a.cmpZero(gt, x), x)
	}
	zero, d := a.zero(), a.vec()
	a.VMINPS(x, zero, d)
	return d
}

func (a *asm) within(least float64, x vec) vec {
	if a.Zero {
		return a.nonPositive(a.atLeast(a.kreg(least), x))
	}
	zero := a.zero()
	x = a.atLeast(a.kreg(least), x)
	d := a.vec()
	a.VMINPS(x, zero, d)
	return d
}

// larger and smaller return NaN if either is, and of two zeros y.
func (a *asm) larger(x, y op) vec {
	if a.PassNaN {
		return a.blend(a.cmp(ge, y, x), y, a.native("FMAXS", a.vec(), false, y, x))
	}
	isNaN, d := a.cmp(unord, x, x), a.vec()
	a.VMAXPS(y, x, d) // y where either is
	return a.blend(isNaN, x, d)
}

func (a *asm) smaller(x, y op) vec {
	if a.PassNaN {
		return a.blend(a.cmp(le, y, x), y, a.native("FMINS", a.vec(), false, y, x))
	}
	isNaN, d := a.cmp(unord, x, x), a.vec()
	a.VMINPS(y, x, d)
	return a.blend(isNaN, x, d)
}

// Comparison predicates of VCMPPS.
const (
	eq    = 0x00 // ordered, quiet
	lt    = 0x11 // less, false for NaN
	le    = 0x12
	unord = 0x03
	neq   = 0x04 // not equal, true for NaN
	gt    = 0x1e
	ge    = 0x1d
	nge   = 0x19 // not greater or equal, true for NaN
)

// cmp compares x with y.
func (a *asm) cmp(predicate uint8, x, y op) mask {
	if a.Opmask {
		d := a.K()
		a.VCMPPS(operand.U8(predicate), y, x, d)
		return d
	}
	d := a.vec()
	a.VCMPPS(operand.U8(predicate), y, x, d)
	return d
}

// cmpZero compares x with 0.
func (a *asm) cmpZero(predicate uint8, x op) mask {
	if !a.Zero {
		return a.cmp(predicate, x, a.zero())
	}
	name := map[uint8]string{eq: "FCMEQ0S", neq: "FCMEQ0S", lt: "FCMLT0S", le: "FCMLE0S", gt: "FCMGT0S", ge: "FCMGE0S", nge: "FCMGE0S"}[predicate]
	d := a.native(name, a.vec(), false, x)
	if predicate == neq || predicate == nge {
		return a.native("NOTB", a.vec(), false, d)
	}
	return d
}

// negative returns where the sign bit is set.
func (a *asm) negative(x vec) mask {
	switch {
	case a.Opmask:
		d := a.K()
		a.VPMOVD2M(x, d)
		return d
	case a.SignMask:
		return x
	case a.Zero:
		return a.native("CMLT0S", a.vec(), false, x)
	}
	return a.sar(x, 31)
}

// blend returns yes where m is set and no elsewhere; yes may be memory.
func (a *asm) blend(m mask, yes, no op) vec {
	d := a.vec()
	if a.Opmask {
		a.VBLENDMPS(yes, no, m, d)
	} else {
		a.VBLENDVPS(m, yes, no, d)
	}
	return d
}

// keep returns x where m, which must come from cmp, is set and 0 elsewhere.
func (a *asm) keep(m mask, x op) vec {
	d := a.vec()
	if a.Opmask {
		a.VMOVAPS_Z(x, m, d)
	} else {
		a.VANDPS(x, m, d)
	}
	return d
}

// drop returns 0 where m, which must come from cmp, is set and x elsewhere.
func (a *asm) drop(m mask, x op) vec {
	if a.Opmask {
		return a.blend(m, a.zero(), x)
	}
	return a.andnot(m, x)
}

// zeroMask returns an empty mask that orMask may change.
func (a *asm) zeroMask() mask {
	if a.Opmask {
		k := a.K()
		a.KXORW(k, k, k)
		return k
	}
	return a.zero()
}

// orMask adds m to acc.
func (a *asm) orMask(acc, m mask) {
	if a.Opmask {
		a.KORW(m, acc, acc)
	} else {
		a.VORPS(m, acc, acc)
	}
}

// jumpIfNone jumps to the label if no lane of m, which must come from cmp, is set.
func (a *asm) jumpIfNone(m mask, label string) {
	if a.Opmask {
		a.KORTESTW(m, m)
	} else {
		a.VTESTPS(m, m)
	}
	a.JZ(operand.LabelRef(label))
}

// laneBits returns m, which must come from cmp, as a bit a lane.
func (a *asm) laneBits(m mask) reg.GPVirtual {
	r := a.GP32()
	if a.Opmask {
		a.KMOVW(m, r)
	} else {
		a.VMOVMSKPS(m, r)
	}
	return r
}

// signBit and the rest of a float32, as masks.
const (
	signBit = 0x80000000
	absBits = 0x7fffffff
)

func (a *asm) abs(x vec) vec { return a.and(x, a.kbits(absBits)) }
func (a *asm) neg(x vec) vec { return a.xor(x, a.kbits(signBit)) }

// scale returns p * 2^n, given the sum t of n and roundMagic.
func (a *asm) scale(p, t, n vec) vec {
	if a.Exponents {
		d := a.vec()
		a.VSCALEFPS(n, p, d)
		return d
	}
	// 2^n in two factors, since n may be outside of [-126, 127]. The first
	// product is exact, so that the result is rounded once.
	whole := a.subi(t, a.kbits(f32(roundMagic)))
	first := a.sar(whole, 1)
	second := a.subi(whole, first)
	bias := a.kbits(127)
	return a.mul(a.mul(p, a.shl(a.addi(first, bias), 23)), a.shl(a.addi(second, bias), 23))
}

// split returns the m in [0.75, 1.5) and e of x = m * 2^e. logOf puts the logarithms of what
// has none in place of those of m and e: they are NaN and infinite by themselves, or not.
func (a *asm) split(x vec) (m, e vec, logOf func(y vec) vec) {
	if a.Exponents {
		const interval, nanIfNegative = 3, 2 << 2
		e, m = a.vec(), a.vec()
		a.VGETEXPPS(x, e)
		a.VGETMANTPS(operand.U8(interval|nanIfNegative), x, m)
		a.VADDPS(a.kreg(1), e, a.cmp(lt, m, a.kreg(1)), e) // m was halved
		return m, e, func(y vec) vec { return y }
	}
	// Subnormal numbers have no exponent of their own: scale them up first.
	small := a.cmp(lt, x, a.kreg(0x1p-126))
	scaled := a.blend(small, a.mul(x, a.k(0x1p23)), x)
	power := a.sar(a.subi(scaled, a.kbits(f32(0.75))), 23)
	m = a.subi(scaled, a.shl(power, 23))
	e = a.sub(a.toFloat(power), a.keep(small, a.k(23)))
	return m, e, func(y vec) vec {
		y = a.blend(a.cmp(eq, x, a.kreg(math.Inf(1))), x, y)
		y = a.blend(a.cmpZero(eq, x), a.k(math.Inf(-1)), y)
		return a.blend(a.cmpZero(nge, x), a.k(math.NaN()), y)
	}
}

// tables returns what pick takes for tables of float32 of at most Lookup elements: in
// registers where there are enough of them, else in memory.
func (a *asm) tables(name string, tables [][]float32) [][]op {
	var out [][]op
	for i, c := range tables {
		step := a.lanes
		if a.Bytewise {
			step = len(c)
		}
		var t []op
		for part := range len(c) / step {
			var words []uint32
			for _, v := range c[part*step : (part+1)*step] {
				words = append(words, math.Float32bits(v))
			}
			m := a.data(fmt.Sprintf("%s_%d_%d", name, i, part), words...)
			if a.Constants == 0 || a.Bytewise {
				t = append(t, m)
				continue
			}
			v := a.vec()
			a.VMOVUPS(m, v)
			t = append(t, v)
		}
		out = append(out, t)
	}
	return out
}

// picker returns what pick takes to pick the elements that the lowest bits of index say.
func (a *asm) picker(index vec) vec {
	if !a.Bytewise {
		return index
	}
	index = a.and(index, a.kbits(uint32(a.Lookup-1)))
	return a.native("MLAS", a.freshBits(0x03020100), true, index, a.kregbits(0x04040404)) // the bytes of the elements
}

// pick returns elements of a table.
func (a *asm) pick(table []op, picker vec) vec {
	if a.Bytewise {
		return a.native("TBL2", a.vec(), false, table[0], picker)
	}
	if len(table) == 2 {
		c := a.dup(picker)
		a.VPERMI2PS(table[1], table[0], c)
		return c
	}
	from := table[0]
	if a.LookupLoad {
		from = a.dup(from)
	}
	c := a.vec()
	a.VPERMPS(from, picker, c)
	return c
}

// upper returns the upper halves of lanes as store takes them for a stream of bf16: in the
// lower halves, or packed. After lower, the first part of it, lanes can still be masked.
func (a *asm) upper(x vec) vec { return a.pack(a.lower(x)) }

func (a *asm) lower(x vec) vec {
	if a.Halves {
		return x
	}
	return a.shr(x, 16)
}

func (a *asm) pack(x vec) vec {
	if a.Halves {
		return a.native("SHRN16", a.vec(), false, x)
	}
	return x
}

// toBF16 rounds to bfloat16, to nearest even, as store takes it.
func (a *asm) toBF16(x vec) vec {
	if a.BF16 {
		return a.native("BFCVTN", a.vec(), false, x)
	}
	if a.Halves {
		quiet, up := a.roundingBF16(x)
		return a.native("ADDHN", a.vec(), false, quiet, up)
	}
	return a.upper(a.roundBF16(x))
}

// roundBF16 is toBF16 in the upper half of each lane; the lower half is anything.
func (a *asm) roundBF16(x vec) vec {
	if a.BF16 {
		return a.native("SHLL16", a.vec(), false, a.toBF16(x))
	}
	if a.Halves {
		quiet, up := a.roundingBF16(x)
		return a.addi(quiet, up)
	}
	// Half of the last kept place is added, less one if that place is even already.
	const place, quiet = 1 << 16, 1 << 22
	nan := a.cmp(unord, x, x)
	if !a.Opmask {
		odd := a.and(a.shr(x, 16), a.kbits(1))
		return a.blend(nan, a.or(x, a.kbits(quiet)), a.addi(a.addi(odd, a.kbits(place/2-1)), x))
	}
	rounded, odd := a.addi(x, a.kbits(place/2-1)), a.K()
	a.VPTESTMD(a.kbits(place), x, odd)
	a.VPADDD(a.kbits(1), rounded, odd, rounded)
	a.VPORD(a.kbits(quiet), x, nan, rounded)
	return rounded
}

// roundingBF16 returns x, with the quiet bit where it is NaN, and what rounds it when the
// two are added as integers.
func (a *asm) roundingBF16(x vec) (quiet, up vec) {
	const place = 1 << 16
	up = a.native("USRA31", a.freshBits(place/2-1), true, a.shl(x, 15)) // one more if the last kept place is odd
	quiet = a.add(x, a.k(math.Copysign(0, -1)))
	return quiet, a.and(up, a.cmp(eq, x, x))
}

func (a *asm) roundF16(x vec) vec {
	half, d := a.vector(max(16, a.Bytes/2)), a.vec()
	a.VCVTPS2PH(nearestEven, x, half)
	a.VCVTPH2PS(half, d)
	return d
}

// fold combines the halves of v until 128 bits are left.
func (a *asm) fold(v vec, combine func(x, y, d op)) {
	if a.Bytes >= 64 {
		upper := a.YMM()
		a.VEXTRACTF64X4(operand.U8(1), v, upper)
		combine(upper, v.AsY(), v.AsY())
	}
	if a.Bytes >= 32 {
		upper := a.XMM()
		a.VEXTRACTF128(operand.U8(1), v.AsY(), upper)
		combine(upper, v.AsX(), v.AsX())
	}
}

// high64 combines the upper 64 bits of 128 with the lower.
func (a *asm) high64(v vec, combine func(x, y, d op)) {
	upper := a.XMM()
	a.VPERMILPD(operand.U8(1), v.AsX(), upper)
	combine(upper, v.AsX(), v.AsX())
}

// last32 combines lane 1 with lane 0.
func (a *asm) last32(v vec, combine func(x, y, d op)) {
	upper := a.XMM()
	a.VMOVSHDUP(v.AsX(), upper)
	combine(upper, v.AsX(), v.AsX())
}

// evenLanes and oddLanes return the even or odd ones of the 128-bit lanes of x, then those
// of y.
func (a *asm) evenLanes(x, y vec) vec { return a.lanesOf(0, x, y) }
func (a *asm) oddLanes(x, y vec) vec  { return a.lanesOf(1, x, y) }

func (a *asm) lanesOf(odd int, x, y vec) vec {
	bytes := int(x.Size())
	d := a.vector(bytes)
	switch {
	case bytes == 64:
		a.VSHUFF32X4(operand.U8([]int{0x88, 0xdd}[odd]), y, x, d)
	case a.Opmask:
		a.VSHUFI64X2(operand.U8(3*odd), y, x, d)
	default:
		a.VPERM2F128(operand.U8([]int{0x20, 0x31}[odd]), y, x, d)
	}
	return d
}

// joinHalves returns the lower halves of the 64-bit lanes of low, with those of high above
// them.
func (a *asm) joinHalves(low, high vec) vec {
	d := a.vec()
	a.VPSLLQ(operand.U8(32), high, d)
	if a.Opmask {
		cleared := a.vec()
		a.VPSLLQ(operand.U8(32), low, cleared)
		a.VPSRLQ(operand.U8(32), cleared, cleared)
		return a.or(cleared, d)
	}
	a.VPBLENDD(operand.U8(0xaa), d, low, d)
	return d
}

// pairStore prepares to store the 64-bit lanes of two vectors in pairs, the first of each
// and so on.
func (a *asm) pairStore() func(x, y vec, at func(vector int) operand.Mem) {
	if a.Bytes == 64 {
		order := [2]vec{}
		for j, t := range []operand.Mem{
			a.table("lowerBlocks", 0, 8, 1, 9, 2, 10, 3, 11),
			a.table("upperBlocks", 4, 12, 5, 13, 6, 14, 7, 15),
		} {
			order[j] = a.vec()
			a.VMOVDQU64(t, order[j])
		}
		return func(x, y vec, at func(int) operand.Mem) {
			for j := range order {
				index := a.dup(order[j])
				a.VPERMI2Q(y, x, index)
				a.VMOVDQU64(index, at(j))
			}
		}
	}
	return func(x, y vec, at func(int) operand.Mem) {
		even, odd, d := a.vec(), a.vec(), a.vec()
		a.VPUNPCKLQDQ(y, x, even)
		a.VPUNPCKHQDQ(y, x, odd)
		if a.Bytes == 16 {
			a.VMOVDQU(even, at(0))
			a.VMOVDQU(odd, at(1))
			return
		}
		for half, imm := range []uint8{0x20, 0x31} {
			a.VPERM2I128(operand.U8(imm), odd, even, d)
			a.VMOVDQU(d, at(half))
		}
	}
}
