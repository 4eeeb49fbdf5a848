package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	unordered = 3          // VCMPPS: either is NaN
	oneNaN    = 0x7fffffff // the NaN that arithmetic of a card yields
)

// canonical keeps the NaN that replaces every other one, in all lanes.
func canonical() reg.VecVirtual {
	nan := YMM()
	x := GP32()
	MOVL(U32(oneNaN), x)
	VMOVD(x, nan.AsX())
	VPBROADCASTD(nan.AsX(), nan)
	return nan
}

// replaceNaN puts the one NaN where y holds any.
func replaceNaN(y, nan, mask Op) {
	VCMPPS(U8(unordered), y, y, mask)
	VBLENDVPS(mask, nan, y, y)
}

func pointers(names ...string) []Mem {
	var out []Mem
	for _, n := range names {
		out = append(out, Mem{Base: Load(Param(n), GP64())})
	}
	return out
}

// lanes writes a function of two registers.
func lanes(name, what string, op func(...Op)) {
	TEXT(name, NOSPLIT, "func(d, a, b *[32]uint32)")
	Pragma("noescape")
	Doc(name + " " + what + ".")
	p := pointers("d", "a", "b")
	nan := canonical()
	for i := 0; i < 128; i += 32 {
		x, mask := YMM(), YMM()
		VMOVUPS(p[1].Offset(i), x)
		op(p[2].Offset(i), x, x)
		replaceNaN(x, nan, mask)
		VMOVUPS(x, p[0].Offset(i))
	}
	VZEROUPPER()
	RET()
}

func fused() {
	TEXT("fused32AVX2", NOSPLIT, "func(d, a, b, x *[32]uint32)")
	Pragma("noescape")
	Doc("fused32AVX2 is a*b+x, rounded once.")
	p := pointers("d", "a", "b", "x")
	nan := canonical()
	for i := 0; i < 128; i += 32 {
		a, x, mask := YMM(), YMM(), YMM()
		VMOVUPS(p[1].Offset(i), a)
		VMOVUPS(p[3].Offset(i), x)
		VFMADD231PS(p[2].Offset(i), a, x)
		replaceNaN(x, nan, mask)
		VMOVUPS(x, p[0].Offset(i))
	}
	VZEROUPPER()
	RET()
}

// fromHalf and toHalf pass between 32-bit lanes with a half in the low part and float32.
func fromHalf() {
	TEXT("fromHalfAVX2", NOSPLIT, "func(d, a *[32]uint32)")
	Pragma("noescape")
	Doc("fromHalfAVX2 turns the low half of every lane into float32.")
	p := pointers("d", "a")
	nan, low := canonical(), lowHalves()
	for i := 0; i < 128; i += 32 {
		x, mask := YMM(), YMM()
		VPAND(p[1].Offset(i), low, x)
		VPACKUSDW(x, x, x)
		VPERMQ(U8(0b1000), x, x)
		VCVTPH2PS(x.AsX(), x)
		replaceNaN(x, nan, mask)
		VMOVUPS(x, p[0].Offset(i))
	}
	VZEROUPPER()
	RET()
}

func lowHalves() reg.VecVirtual {
	low := YMM()
	x := GP32()
	MOVL(U32(math.MaxUint16), x)
	VMOVD(x, low.AsX())
	VPBROADCASTD(low.AsX(), low)
	return low
}

func toHalf() {
	TEXT("toHalfAVX2", NOSPLIT, "func(d, a *[32]uint32)")
	Pragma("noescape")
	Doc("toHalfAVX2 rounds every lane to a half, to nearest even.")
	p := pointers("d", "a")
	nan := canonical()
	for i := 0; i < 128; i += 32 {
		x, mask := YMM(), YMM()
		VMOVUPS(p[1].Offset(i), x)
		replaceNaN(x, nan, mask)
		VCVTPS2PH(U8(0), x, x.AsX())
		VPMOVZXWD(x.AsX(), x)
		VMOVUPS(x, p[0].Offset(i))
	}
	VZEROUPPER()
	RET()
}
