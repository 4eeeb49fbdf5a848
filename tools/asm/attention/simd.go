package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// simd emits code for one vector width: AVX-512 has 16 lanes, mask registers
// and registers for constants, AVX2 has 8 lanes and keeps both in memory.
type simd struct {
	suffix string
	lanes  int
	consts map[uint32]Op
}

func (v *simd) wide() bool { return v.lanes == 16 }
func (v *simd) bytes() int { return 4 * v.lanes }

func (v *simd) vec() reg.VecVirtual {
	if v.wide() {
		return ZMM()
	}
	return YMM()
}

func (v *simd) zero(z reg.VecVirtual) {
	if v.wide() {
		VPXORD(z, z, z)
	} else {
		VPXOR(z, z, z)
	}
}

// text starts a function; constants are loaded once in each.
func (v *simd) text(name, signature, doc string) {
	v.consts = map[uint32]Op{}
	TEXT(name+v.suffix, NOSPLIT, signature)
	Pragma("noescape")
	Doc(name + v.suffix + " " + doc)
}

func (v *simd) end() {
	VZEROUPPER()
	RET()
}

var tables = map[uint32]Mem{}

// bits returns a vector of one 32-bit constant: a register that holds it from
// the first use in a function on (so the first use must dominate the others),
// or memory.
func (v *simd) bits(x uint32) Op {
	if op, ok := v.consts[x]; ok {
		return op
	}
	if v.wide() {
		g, z := GP32(), ZMM()
		MOVL(U32(x), g)
		VPBROADCASTD(g, z)
		v.consts[x] = z
		return z
	}
	m, ok := tables[x]
	if !ok {
		m = GLOBL(constName(x), RODATA|NOPTR)
		for i := range 8 {
			DATA(4*i, U32(x))
		}
		tables[x] = m
	}
	v.consts[x] = m
	return m
}

func constName(x uint32) string {
	const digits = "0123456789abcdef"
	name := []byte("word")
	for s := 28; s >= 0; s -= 4 {
		name = append(name, digits[x>>s&15])
	}
	return string(name)
}

func (v *simd) f(x float64) Op { return v.bits(math.Float32bits(float32(x))) }

// reg returns a constant in a register of the caller's.
func (v *simd) reg(x Op) reg.VecVirtual {
	z := v.vec()
	VMOVUPS(x, z)
	return z
}

// mask is the lanes below a count less than the number of lanes.
type mask struct {
	k reg.Register
	y reg.VecVirtual
}

func (v *simd) mask(n reg.GPVirtual) mask {
	if v.wide() {
		bits := GP32()
		MOVL(I32(-1), bits)
		BZHIL(n.As32(), bits, bits)
		k := K()
		KMOVW(bits, k)
		return mask{k: k}
	}
	table, at, y := GP64(), GP64(), YMM()
	LEAQ(prefixMask(), table)
	MOVQ(n, at)
	NEGQ(at)
	VMOVDQU(Mem{Base: table, Index: at, Scale: 4, Disp: 32}, y)
	return mask{y: y}
}

var prefixTable *Mem

// prefixMask is 8 set words, then 8 clear ones.
func prefixMask() Mem {
	if prefixTable == nil {
		m := GLOBL("prefix", RODATA|NOPTR)
		for i := range 16 {
			word := uint32(0)
			if i < 8 {
				word = 1<<32 - 1
			}
			DATA(4*i, U32(word))
		}
		prefixTable = &m
	}
	return *prefixTable
}

// load reads the masked lanes, 0 elsewhere, touching nothing beyond them.
func (v *simd) load(m Mem, k mask) reg.VecVirtual {
	z := v.vec()
	if v.wide() {
		VMOVUPS_Z(m, k.k, z)
	} else {
		VMASKMOVPS(m, k.y, z)
	}
	return z
}

func (v *simd) store(z reg.VecVirtual, m Mem, k mask) {
	if v.wide() {
		VMOVUPS(z, k.k, m)
	} else {
		VMASKMOVPS(z, k.y, m)
	}
}

// keep clears the lanes outside the mask.
func (v *simd) keep(z reg.VecVirtual, k mask) {
	if v.wide() {
		VMOVAPS_Z(z, k.k, z)
	} else {
		VANDPS(k.y, z, z)
	}
}

// blend puts other in the lanes outside the mask.
func (v *simd) blend(z reg.VecVirtual, other reg.VecVirtual, k mask) {
	if v.wide() {
		VBLENDMPS(z, other, k.k, z)
	} else {
		VBLENDVPS(k.y, z, other, z)
	}
}

// reduce combines the lanes of z in a fixed order; lane 0 has the result.
func (v *simd) reduce(z reg.VecVirtual, op func(ops ...Op)) {
	y := z.AsY()
	if v.wide() {
		t := YMM()
		VEXTRACTF64X4(Imm(1), z, t)
		op(t, y, y)
	}
	x, t := z.AsX(), XMM()
	VEXTRACTF128(Imm(1), y, t)
	op(t, x, x)
	VPERMILPS(Imm(0b01001110), x, t)
	op(t, x, x)
	VPERMILPS(Imm(0b10110001), x, t)
	op(t, x, x)
}

// exp replaces x <= 0 by its exponential, within 1.5 units in the last place
// (tested); AVX2 gives 0 for x < -87.3, where results are denormal. -Inf gives
// 0 and NaN stays NaN.
//
// x = n*ln2 + r with |r| <= ln2/2, the two-step reduction of Cody and Waite;
// exp(r) = 1 + r + r^2*q(r), q the minimax polynomial of degree 4 for the
// relative error (2.7e-8).
func (v *simd) exp(x reg.VecVirtual) {
	n, q, sq := v.vec(), v.vec(), v.vec()
	var under mask
	if v.wide() {
		VMAXPS(x, v.f(-104).(reg.VecVirtual), x) // NaN is kept: the last source wins
	} else {
		low := v.reg(v.f(-87.33654))
		under.y = YMM()
		VCMPPS(Imm(0x15), low, x, under.y) // not less than, true for NaN
		VMAXPS(x, low, x)
	}
	VMULPS(v.f(math.Log2E), x, n)
	if v.wide() {
		VRNDSCALEPS(Imm(0), n, n)
	} else {
		VROUNDPS(Imm(0), n, n)
	}
	VFNMADD231PS(v.f(0.693359375), n, x)
	VFNMADD231PS(v.f(-2.12194440e-4), n, x)
	VMOVUPS(v.bits(0x3abda79e), q)
	for _, c := range []uint32{0x3c090289, 0x3d2aa253, 0x3e2aaa80, 0x3f000003} {
		VFMADD213PS(v.bits(c), x, q)
	}
	VMULPS(x, x, sq)
	VFMADD213PS(x, sq, q)
	VADDPS(v.f(1), q, q)
	if v.wide() {
		VSCALEFPS(n, q, x)
		return
	}
	VCVTPS2DQ(n, n)
	VPSLLD(Imm(23), n, n)
	VPADDD(n, q, x)
	VANDPS(under.y, x, x)
}

// preload brings the constants of exp into registers before a loop.
func (v *simd) preload() {
	for _, x := range []float64{-104, math.Log2E, 0.693359375, -2.12194440e-4, 1} {
		v.f(x)
	}
	for _, c := range []uint32{0x3abda79e, 0x3c090289, 0x3d2aa253, 0x3e2aaa80, 0x3f000003} {
		v.bits(c)
	}
}

func gp(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// broadcast fills a vector with the float32 at m.
func (v *simd) broadcast(m Mem) reg.VecVirtual {
	z := v.vec()
	VBROADCASTSS(m, z)
	return z
}

// param fills a vector with a float32 parameter.
func (v *simd) param(name string) reg.VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return v.broadcast(p.Addr)
}
