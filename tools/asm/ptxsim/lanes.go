package main

import (
	"fmt"
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

// sums writes a function that adds integers of so many bits.
func sums(name string, bits int, add func(...Op)) {
	TEXT(name, NOSPLIT, fmt.Sprintf("func(d, a, b *[32]uint%d)", bits))
	Pragma("noescape")
	Doc(fmt.Sprintf("%s adds integers of %d bits.", name, bits))
	p := pointers("d", "a", "b")
	for i := 0; i < 4*bits; i += 32 {
		x := YMM()
		VMOVDQU(p[1].Offset(i), x)
		add(p[2].Offset(i), x, x)
		VMOVDQU(x, p[0].Offset(i))
	}
	VZEROUPPER()
	RET()
}

// masked puts a bit for each lane into a result: the signs of what compare returns for each eight lanes.
func masked(compare func(i int) Op) {
	r, x := GP32(), GP32()
	XORL(r, r)
	for i := 96; i >= 0; i -= 32 {
		VMOVMSKPS(compare(i), x)
		SHLL(U8(8), r)
		ORL(x, r)
	}
	VZEROUPPER()
	Store(r, ReturnIndex(0))
	RET()
}

// broadcast puts a parameter into all lanes.
func broadcast(name string) reg.VecVirtual {
	v := YMM()
	x := Load(Param(name), GP32())
	VMOVD(x, v.AsX())
	VPBROADCASTD(v.AsX(), v)
	return v
}

func less() {
	TEXT("lessAVX2", NOSPLIT, "func(a, b *[32]uint32, flip uint32) uint32")
	Pragma("noescape")
	Doc("lessAVX2 has a bit for each lane in which a^flip is less than b^flip, as signed numbers.")
	p := pointers("a", "b")
	flip := broadcast("flip")
	masked(func(i int) Op {
		a, b := YMM(), YMM()
		VPXOR(p[0].Offset(i), flip, a)
		VPXOR(p[1].Offset(i), flip, b)
		VPCMPGTD(a, b, b)
		return b
	})
}

func equal() {
	TEXT("equalAVX2", NOSPLIT, "func(a, b *[32]uint32) uint32")
	Pragma("noescape")
	Doc("equalAVX2 has a bit for each lane in which a equals b.")
	p := pointers("a", "b")
	masked(func(i int) Op {
		a := YMM()
		VMOVDQU(p[0].Offset(i), a)
		VPCMPEQD(p[1].Offset(i), a, a)
		return a
	})
}

// span subtracts a base from addresses, and collects what shows whether all are aligned and in bounds.
func span() {
	TEXT("spanAVX2", NOSPLIT, "func(off *[32]int, addr *[32]uint64, base, last uint64) (low, outside uint64)")
	Pragma("noescape")
	Doc("spanAVX2 subtracts base from the addresses. low has the bits of all addresses, and outside its highest bit set", "if an offset, all below 1<<63, is more than last.")
	p := pointers("off", "addr")
	base, last, low, outside := YMM(), YMM(), YMM(), YMM()
	for i, v := range []reg.VecVirtual{base, last} {
		x := Load(Param([]string{"base", "last"}[i]), GP64())
		VMOVQ(x, v.AsX())
		VPBROADCASTQ(v.AsX(), v)
	}
	VPXOR(low, low, low)
	VPXOR(outside, outside, outside)
	for i := 0; i < 256; i += 32 {
		a, room := YMM(), YMM()
		VMOVDQU(p[1].Offset(i), a)
		VPOR(a, low, low)
		VPSUBQ(base, a, a)
		VMOVDQU(a, p[0].Offset(i))
		VPSUBQ(a, last, room)
		VPOR(a, outside, outside)
		VPOR(room, outside, outside)
	}
	for i, v := range []reg.VecVirtual{low, outside} {
		half := XMM()
		VEXTRACTI128(U8(1), v, half)
		VPOR(half, v.AsX(), v.AsX())
		VPSHUFD(U8(0b1110), v.AsX(), half)
		VPOR(half, v.AsX(), v.AsX())
		r := GP64()
		VMOVQ(v.AsX(), r)
		Store(r, ReturnIndex(i))
	}
	VZEROUPPER()
	RET()
}
