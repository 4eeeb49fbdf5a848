package main

import (
	"fmt"
	"math"
)

// numbers8 are the numbers of 8-bit codes, as simd.numbers8 computes them.
type numbers8 struct {
	name     string
	decades  int
	zero     float64 // the entry of 0
	greatest float64 // that of 1
}

var (
	signed8   = numbers8{"signed8", 7, 0, 128}
	unsigned8 = numbers8{"unsigned8", 8, 1, 256}
)

// powers holds, for each decade, the power of ten that scales its numbers to 1 to 10, divided by
// unit. It is indexed by the lowest bits of the exponent of an entry.
func (a *asm) powers(n numbers8, unit float64) []op {
	t := make([]float32, min(a.Lookup, 16))
	for i := range t {
		if e := (i + 1) % 8; e < n.decades {
			t[i] = float32(math.Pow10(n.decades-e) / unit)
		} else {
			t[i] = 1
		}
	}
	return a.tables(fmt.Sprintf("%s_%g_of_%d", n.name, unit, len(t)), [][]float32{t})[0]
}

// number returns the numbers of entries; y is the entry plus one half.
func (a *asm) number(n numbers8, powers []op, y vec) vec {
	power := a.pick(powers, a.picker(a.shr(y, 23)))
	mantissa := a.or(a.and(y, a.kbits(1<<23-1)), a.kbits(f32(1)))
	v := a.div(a.sub(a.mul(mantissa, a.k(9)), a.k(8)), power)
	v = a.keep(a.cmp(gt, y, a.kreg(n.zero+1)), v)
	return a.blend(a.cmp(gt, y, a.kreg(n.greatest)), a.kreg(1), v)
}

// position returns where x lies among the entries, on a scale on which an entry lies at its
// index plus one half, and where its decade begins. The powers are divided by 9.
func (a *asm) position(n numbers8, powers []op, x vec) (y, begin vec) {
	log := a.add(a.mul(a.toFloat(x), a.kreg(math.Log10(2)*0x1p-23)), a.kreg(logShift8(n.decades)))
	decade := a.subi(a.add(log, a.kreg(roundMagic)), a.kregbits(f32(roundMagic)))
	decade = a.maxi(decade, a.zero())
	z := a.mul(x, a.pick(powers, a.picker(a.addi(decade, a.kregbits(7)))))
	more := a.cmp(gt, z, a.kreg(10.0/9))
	z = a.blend(more, a.mul(z, a.kreg(0.1)), z)
	decade = a.shl(a.next(more, decade), 23)
	return a.addi(a.add(z, a.kreg(8.0/9)), decade), a.addi(decade, a.kregbits(f32(1)))
}

// logShift8 turns the logarithm of a number, rounded to nearest, into its decade.
func logShift8(decades int) float64 { return -127*math.Log10(2) + float64(decades-1) + 0.5 - 0x1p-10 }

// next adds 1 to the integers x where m is set.
func (a *asm) next(m mask, x vec) vec { return a.blend(m, a.addi(x, a.kregbits(1)), x) }

var (
	codeDecodeSigned8 = withNumbers(signed8, 1, "dst", "codes:u8", func(a *asm, powers []op, in []vec) vec {
		entry := a.sub(a.toFloat(in[0]), a.kreg(127))
		y := a.add(a.abs(entry), a.kreg(0.5))
		v := a.xor(a.number(signed8, powers, y), a.and(entry, a.kbits(signBit)))
		return a.mul(v, a.scalars["scale"])
	})
	codeDecodeUnsigned8 = withNumbers(unsigned8, 1, "dst", "codes:u8", func(a *asm, powers []op, in []vec) vec {
		return a.mul(a.number(unsigned8, powers, a.add(a.toFloat(in[0]), a.kreg(1.5))), a.scalars["scale"])
	})
	codeEncodeSigned8 = withNumbers(signed8, 9, "codes:u8", "x", func(a *asm, powers []op, in []vec) vec {
		x := a.mul(in[0], a.scalars["inv"])
		y, begin := a.position(signed8, powers, a.abs(x))
		entry := a.subi(a.add(a.sub(y, a.kreg(0.5)), a.kreg(roundMagic)), a.kregbits(f32(roundMagic)))
		near := a.blend(a.cmp(gt, begin, a.kreg(1)), a.kreg(nearDecade8), a.kreg(nearZero8))
		entry = a.blend(a.cmp(lt, a.sub(y, begin), near), a.subi(entry, a.kregbits(1)), entry)
		entry = a.blend(a.cmp(gt, y, a.kreg(signed8.greatest-nearGreatest8)), a.kregbits(uint32(signed8.greatest)), a.maxi(entry, a.zero()))
		minus := a.sar(x, 31)
		code := a.addi(a.subi(a.xor(entry, minus), minus), a.kregbits(127))
		return a.maxi(code, a.zero())
	})
	// Random bits are read as bfloat16: they come in the high half.
	codeEncodeUnsigned8 = withNumbers(unsigned8, 9, "codes:u8", "x random:bf16", func(a *asm, powers []op, in []vec) vec {
		x := a.mul(in[0], a.scalars["inv"])
		y, begin := a.position(unsigned8, powers, x)
		sum := a.add(y, a.kreg(roundMagic-1))
		way := a.sub(a.sub(y, a.kreg(0.5)), a.sub(sum, a.kreg(roundMagic)))
		since := a.sub(y, begin)
		across := a.cmp(lt, a.atMost(since, a.sub(begin, since)), a.kreg(0.5))
		last := a.cmp(ge, y, a.kreg(unsigned8.greatest-0.5))
		bent := a.atLeast(way, a.sub(a.mul(way, a.kreg(5)), a.kreg(2)))
		way = a.blend(across, a.mul(bent, a.blend(last, a.kreg(2), a.kreg(1.0/3))), way)
		part := a.add(a.mul(a.toFloat(a.shr(in[1], 16)), a.kreg(0x1p-16)), a.kreg(0x1p-17))
		entry := a.next(a.cmp(ge, way, part), a.subi(sum, a.kregbits(f32(roundMagic))))
		code := a.mini(a.maxi(a.subi(entry, a.kregbits(1)), a.kregbits(1)), a.kregbits(255))
		return a.keep(a.cmpZero(gt, x), code)
	})
)

// The midpoint of two neighboring numbers lies halfway between their entries, with three
// exceptions: from one decade to the next and from 0 to the first number, where it lies this far
// after the beginning of the decade, and from the last number to 1, this far before 1.
const (
	nearDecade8   = 0.2
	nearZero8     = 1.75 / 9
	nearGreatest8 = 0.25
)

// codeIntegers8 gives signed bytes as numbers, times a scale and then times a unit.
var codeIntegers8 = each(2, "dst", "codes:u8", func(a *asm, in []vec) []vec {
	x := a.toFloat(a.sar(a.shl(in[0], 24), 24))
	return []vec{a.mul(a.mul(x, a.scalars["scale"]), a.scalars["unit"])}
})

// withNumbers emits the loop of a kernel whose body uses the powers of n.
func withNumbers(n numbers8, unit float64, out, in string, body func(a *asm, powers []op, in []vec) vec) func(*asm) {
	return func(a *asm) {
		powers := a.powers(n, unit)
		each(1, out, in, func(a *asm, regs []vec) []vec { return []vec{body(a, powers, regs)} })(a)
	}
}
