package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// The constants of Philox4x32 (Salmon et al., 2011).
const (
	philoxM0 = 0xd2511f53
	philoxM1 = 0xcd9e8d57
	philoxW0 = 0x9e3779b9
	philoxW1 = 0xbb67ae85
)

// codePhilox makes one block a 64-bit lane: word j of every block is in the
// lower halves of x[j], the upper halves hold leftovers that nothing looks at.
func codePhilox(a *asm) {
	dst := a.streams("dst")[0]
	n := a.length("dst")
	i := a.GP64()
	a.XORQ(i, i)
	blocks := a.lanes / 2

	broadcast := func(name string) vec {
		addr, err := a.Param(name).Resolve()
		if err != nil {
			panic(err)
		}
		d := a.vec()
		a.VPBROADCASTQ(addr.Addr, d)
		return d
	}
	upper := func(x vec) vec {
		d := a.vec()
		a.VPSRLQ(operand.U8(32), x, d)
		return d
	}
	mulQ := func(x vec, y op) vec { d := a.vec(); a.VPMULUDQ(y, x, d); return d }
	counter := a.vec()
	a.VPADDQ(a.table("ramp", 0, 1, 2, 3, 4, 5, 6, 7), broadcast("block"), counter)
	stream, seed := broadcast("stream"), broadcast("seed")
	m0, m1 := a.kregbits(philoxM0), a.kregbits(philoxM1)
	step := a.vec()
	a.VPBROADCASTQ(a.table(fmt.Sprintf("blocks%d", blocks), uint64(blocks)), step)
	store := a.pairStore()

	a.whole(i, n, 4*blocks, func() {
		x := [4]vec{counter, upper(counter), stream, upper(stream)}
		k0, k1 := seed, upper(seed)
		for round := range 10 {
			if round > 0 {
				k0, k1 = a.addi(k0, a.kbits(philoxW0)), a.addi(k1, a.kbits(philoxW1))
			}
			p0, p1 := mulQ(x[0], m0), mulQ(x[2], m1)
			x = [4]vec{a.xor3(upper(p1), x[1], k0), p1, a.xor3(upper(p0), x[3], k1), p0}
		}
		// Words 0 and 1 of a block share a lane, as do 2 and 3; then the lanes of
		// a block are put next to each other.
		front, back := a.joinHalves(x[0], x[1]), a.joinHalves(x[2], x[3])
		store(front, back, func(vector int) operand.Mem { return dst.at(i, vector*a.lanes) })
		a.VPADDQ(step, counter, counter)
	})
	a.finish()
}

// uniform returns the upper 24 bits times 2^-24.
func (a *asm) uniform(x vec) vec {
	return a.mul(a.toFloat(a.shr(x, 8)), a.k(0x1p-24))
}

var (
	codeUniform = each(light, "dst", "dst", one(func(a *asm, in []vec) vec { return a.uniform(in[0]) }))
	codeDropout = each(2, "dst", "dst", one(func(a *asm, in []vec) vec {
		return a.keep(a.cmp(lt, a.uniform(in[0]), a.scalars["keep"]), a.scalars["scale"])
	}))
)

// codeBoxMuller takes pairs two vectors at a time, and has to compute what
// boxMullerPair does to the last bit: nothing is fused.
func codeBoxMuller(a *asm) {
	dst := a.streams("dst")[0]
	n := a.length("dst")
	i := a.GP64()
	a.XORQ(i, i)
	a.whole(i, n, 2*a.lanes, func() {
		v0, v1 := a.load(dst, dst.at(i, 0), nil), a.load(dst, dst.at(i, a.lanes), nil)
		w0, w1 := a.vec(), a.vec()
		a.VSHUFPS(operand.U8(0x88), v1, v0, w0) // the first of each pair, in 128-bit lanes
		a.VSHUFPS(operand.U8(0xdd), v1, v0, w1)

		u := a.mul(a.toFloat(a.addi(a.shr(w0, 8), a.kbits(1))), a.k(0x1p-24))
		radius := a.sqrt(a.mul(a.logExact(u), a.k(-2)))
		angle := a.shr(w1, 8)
		quarter := a.shr(a.addi(angle, a.kbits(1<<21)), 22)
		rest := a.toFloat(a.subi(angle, a.shl(quarter, 22)))
		r := a.mul(a.mul(rest, a.k(0x1p-22)), a.k(math.Pi/2))
		z := a.mul(r, r)
		s := a.add(r, a.mul(a.polyExact(sinPoly, z), a.mul(z, r)))
		c := a.add(a.sub(a.kreg(1), a.mul(z, a.k(0.5))), a.mul(a.polyExact(cosPoly, z), a.mul(z, z)))
		swap := a.negative(a.shl(quarter, 31))
		cosine, sine := a.blend(swap, s, c), a.blend(swap, c, s)
		cosine = a.xor(cosine, a.and(a.shl(a.addi(quarter, a.kbits(1)), 30), a.kbits(signBit)))
		sine = a.xor(sine, a.and(a.shl(quarter, 30), a.kbits(signBit)))
		z0, z1 := a.mul(radius, cosine), a.mul(radius, sine)

		a.VUNPCKLPS(z1, z0, v0)
		a.VUNPCKHPS(z1, z0, v1)
		a.store(dst, v0, dst.at(i, 0), nil)
		a.store(dst, v1, dst.at(i, a.lanes), nil)
	})
	a.finish()
}

// logExact is the logExact of package simd.
func (a *asm) logExact(u vec) vec {
	e := a.sar(a.subi(u, a.kbits(f32(0.75))), 23)
	f := a.sub(a.subi(u, a.shl(e, 23)), a.k(1))
	square := a.mul(f, f)
	y := a.sub(a.mul(a.mul(a.polyExact(logPoly, f), f), square), a.mul(square, a.k(0.5)))
	return a.add(a.add(f, y), a.mul(a.toFloat(e), a.k(math.Ln2)))
}
