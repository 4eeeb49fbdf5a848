package main

import (
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/snug-ml/snug/tools/asm/sets"
)

// simd emits code for one set of instructions.
type simd struct {
	*build.Context
	sets.Set
	lanes  int
	consts map[uint32]Op // of the function
	data   map[string]Mem
}

func newSimd(s sets.Set) *simd {
	return &simd{Context: build.NewContext(), Set: s, lanes: s.Lanes(), data: map[string]Mem{}}
}

func (v *simd) vec() reg.VecVirtual {
	return v.Vec(map[int]reg.Spec{16: reg.S128, 32: reg.S256, 64: reg.S512}[v.Bytes])
}

// words returns memory that holds the words, declared once.
func (v *simd) words(name string, words ...uint32) Mem {
	m, ok := v.data[name]
	if !ok {
		m = v.StaticGlobal(name)
		v.DataAttributes(attr.RODATA | attr.NOPTR)
		for i, w := range words {
			v.AddDatum(4*i, U32(w))
		}
		v.data[name] = m
	}
	return m
}

func (v *simd) zero(z reg.VecVirtual) {
	if v.Opmask {
		v.VPXORD(z, z, z)
	} else {
		v.VPXOR(z, z, z)
	}
}

// text starts a function; constants are loaded once in each.
func (v *simd) text(name, signature, doc string) {
	v.consts = map[uint32]Op{}
	v.Function(name + v.Level)
	v.Attributes(attr.NOSPLIT)
	v.SignatureExpr(signature)
	v.Pragma("noescape")
	v.Doc(name + v.Level + " " + doc)
}

func (v *simd) end() {
	v.VZEROUPPER()
	v.RET()
}

// bits returns a vector of one 32-bit constant: a register that holds it from
// the first use in a function on (so the first use must dominate the others),
// or memory.
func (v *simd) bits(x uint32) Op {
	if op, ok := v.consts[x]; ok {
		return op
	}
	if v.Broadcast {
		g, z := v.GP32(), v.vec()
		v.MOVL(U32(x), g)
		v.VPBROADCASTD(g, z)
		v.consts[x] = z
		return z
	}
	m := v.words(constName(x), slices.Repeat([]uint32{x}, 8)...)
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
	v.VMOVUPS(x, z)
	return z
}

// mask is the lanes below a count less than the number of lanes.
type mask struct {
	k reg.Register
	y reg.VecVirtual
}

func (v *simd) mask(n reg.GPVirtual) mask {
	if v.Opmask {
		bits := v.GP32()
		v.MOVL(I32(-1), bits)
		v.BZHIL(n.As32(), bits, bits)
		k := v.K()
		v.KMOVW(bits, k)
		return mask{k: k}
	}
	table, at, y := v.GP64(), v.GP64(), v.vec()
	v.LEAQ(v.prefixMask(), table)
	v.MOVQ(n, at)
	v.NEGQ(at)
	v.VMOVDQU(Mem{Base: table, Index: at, Scale: 4, Disp: 32}, y)
	return mask{y: y}
}

// prefixMask is 8 set words, then 8 clear ones.
func (v *simd) prefixMask() Mem {
	return v.words("prefix", append(slices.Repeat([]uint32{1<<32 - 1}, 8), make([]uint32, 8)...)...)
}

// load reads the masked lanes, 0 elsewhere, touching nothing beyond them.
func (v *simd) load(m Mem, k mask) reg.VecVirtual {
	z := v.vec()
	if v.Opmask {
		v.VMOVUPS_Z(m, k.k, z)
	} else {
		v.VMASKMOVPS(m, k.y, z)
	}
	return z
}

func (v *simd) store(z reg.VecVirtual, m Mem, k mask) {
	if v.Opmask {
		v.VMOVUPS(z, k.k, m)
	} else {
		v.VMASKMOVPS(z, k.y, m)
	}
}

// keep clears the lanes outside the mask.
func (v *simd) keep(z reg.VecVirtual, k mask) {
	if v.Opmask {
		v.VMOVAPS_Z(z, k.k, z)
	} else {
		v.VANDPS(k.y, z, z)
	}
}

// blend puts other in the lanes outside the mask.
func (v *simd) blend(z reg.VecVirtual, other reg.VecVirtual, k mask) {
	if v.Opmask {
		v.VBLENDMPS(z, other, k.k, z)
	} else {
		v.VBLENDVPS(k.y, z, other, z)
	}
}

// reduce combines the lanes of z in a fixed order; lane 0 has the result.
func (v *simd) reduce(z reg.VecVirtual, op func(ops ...Op)) {
	y := z.AsY()
	if v.Bytes >= 64 {
		t := v.YMM()
		v.VEXTRACTF64X4(Imm(1), z, t)
		op(t, y, y)
	}
	x, t := z.AsX(), v.XMM()
	if v.Bytes >= 32 {
		v.VEXTRACTF128(Imm(1), y, t)
		op(t, x, x)
	}
	v.VPERMILPS(Imm(0b01001110), x, t)
	op(t, x, x)
	v.VPERMILPS(Imm(0b10110001), x, t)
	op(t, x, x)
}

// larger sets top to the larger of it and x, atLeast x to what it is held above. NaN may
// stay in top, and stays in x.
func (v *simd) larger(x, top reg.VecVirtual) {
	if v.PassNaN {
		v.fmax(x, top, top)
	} else {
		v.VMAXPS(x, top, top)
	}
}

func (v *simd) atLeast(low, x reg.VecVirtual) {
	if v.PassNaN {
		v.fmax(low, x, x)
	} else {
		v.VMAXPS(x, low, x)
	}
}

// fmax emits an instruction of arm64 that AVX has no counterpart of.
func (v *simd) fmax(x, y, d reg.VecVirtual) {
	v.Instruction(&ir.Instruction{Opcode: "FMAXS", Operands: []Op{x, y, d}, Inputs: []Op{x, y}, Outputs: []Op{d}})
}

// mulAdd returns p*x + c, rounded once. It may change p.
func (v *simd) mulAdd(p, x reg.VecVirtual, c Op) reg.VecVirtual {
	if v.Addend {
		d := v.reg(c)
		v.VFMADD231PS(x, p, d)
		return d
	}
	v.VFMADD213PS(c, x, p)
	return p
}

// exp replaces x <= 0 by its exponential, within 1.5 units in the last place
// (tested); where there are no instructions for exponents, by 0 for x < -87.3, where results
// are denormal. -Inf gives 0 and NaN stays NaN.
//
// x = n*ln2 + r with |r| <= ln2/2, the two-step reduction of Cody and Waite;
// exp(r) = 1 + r + r^2*q(r), q the minimax polynomial of degree 4 for the
// relative error (2.7e-8).
func (v *simd) exp(x reg.VecVirtual) {
	n, q, sq := v.vec(), v.vec(), v.vec()
	var under mask
	if v.Exponents {
		v.VMAXPS(x, v.f(-104).(reg.VecVirtual), x) // NaN is kept: the last source wins
	} else {
		low := v.reg(v.f(-87.33654))
		under.y = v.vec()
		v.VCMPPS(Imm(0x15), low, x, under.y) // not less than, true for NaN
		v.atLeast(low, x)
	}
	v.VMULPS(v.f(math.Log2E), x, n)
	if v.Exponents {
		v.VRNDSCALEPS(Imm(0), n, n)
	} else {
		v.VROUNDPS(Imm(0), n, n)
	}
	v.VFNMADD231PS(v.f(0.693359375), n, x)
	v.VFNMADD231PS(v.f(-2.12194440e-4), n, x)
	v.VMOVUPS(v.bits(0x3abda79e), q)
	for _, c := range []uint32{0x3c090289, 0x3d2aa253, 0x3e2aaa80, 0x3f000003} {
		q = v.mulAdd(q, x, v.bits(c))
	}
	v.VMULPS(x, x, sq)
	q = v.mulAdd(q, sq, x)
	v.VADDPS(v.f(1), q, q)
	if v.Exponents {
		v.VSCALEFPS(n, q, x)
		return
	}
	v.VCVTPS2DQ(n, n)
	v.VPSLLD(Imm(23), n, n)
	v.VPADDD(n, q, x)
	v.VANDPS(under.y, x, x)
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

func (v *simd) gp(name string) reg.GPVirtual { return v.Load(v.Param(name), v.GP64()).(reg.GPVirtual) }

// broadcast fills a vector with the float32 at m.
func (v *simd) broadcast(m Mem) reg.VecVirtual {
	z := v.vec()
	v.VBROADCASTSS(m, z)
	return z
}

// param fills a vector with a float32 parameter.
func (v *simd) param(name string) reg.VecVirtual {
	p, err := v.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return v.broadcast(p.Addr)
}
