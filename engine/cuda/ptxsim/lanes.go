package ptxsim

import (
	"github.com/snug-ml/snug/internal/isa"
	"github.com/snug-ml/snug/internal/simd"
)

//go:generate go -C ../../../tools/asm/ptxsim run . -out ../../../engine/cuda/ptxsim/lanes_amd64.s -stubs ../../../engine/cuda/ptxsim/lanes_amd64.go -pkg ptxsim

// These are registers of 32 lanes.
type (
	lanes32 = [32]uint32
	lanes64 = [32]uint64
	offsets = [32]int // in a memory
)

// fragment gives the registers of an mma by their offsets in bytes: four of A, two of B, four of C and four
// of D.
type fragment = [14]uint64

// The functions below implement the instructions that take most of a kernel's time, in the best form that the
// processor supports. All forms give the same bits.
var (
	add32, sub32, mul32 = add32Go, sub32Go, mul32Go
	fused32             = fused32Go
	fromHalf32          = fromHalf32Go
	toHalf32            = toHalf32Go
	addWords            = addWordsGo
	addWide             = addWideGo
	less32              = less32Go
	equal32             = equal32Go
	span                = spanGo
	mmaKernels          map[string]func(regs *lanes32, f *fragment) // by shape and types, "m16n8k8.f32.f16"
)

func init() {
	if simd.Active() != isa.Portable {
		useAssembly()
	}
}

func add32Go(d, a, b *lanes32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) + f32(b[i]))
	}
}

func sub32Go(d, a, b *lanes32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) - f32(b[i]))
	}
}

func mul32Go(d, a, b *lanes32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) * f32(b[i]))
	}
}

func fused32Go(d, a, b, x *lanes32) {
	for i := range d {
		d[i] = fma32(a[i], b[i], x[i])
	}
}

// addWordsGo and addWideGo add integers.
func addWordsGo(d, a, b *lanes32) {
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func addWideGo(d, a, b *lanes64) {
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

// less32Go has a bit for each lane in which a^flip is less than b^flip, as signed numbers.
func less32Go(a, b *lanes32, flip uint32) (r uint32) {
	for i := range a {
		if int32(a[i]^flip) < int32(b[i]^flip) {
			r |= 1 << i
		}
	}
	return r
}

// equal32Go has a bit for each lane in which a equals b.
func equal32Go(a, b *lanes32) (r uint32) {
	for i := range a {
		if a[i] == b[i] {
			r |= 1 << i
		}
	}
	return r
}

// spanGo puts the offsets of addresses from a base into off. low has the bits of all addresses. The highest bit of outside
// is set if an address is below the base or an offset is more than last, which is less than 1<<63.
func spanGo(off *offsets, addr *lanes64, base, last uint64) (low, outside uint64) {
	for i, a := range addr {
		o := a - base
		off[i] = int(o)
		low |= a
		outside |= o | (last - o)
	}
	return low, outside
}

func fromHalf32Go(d, a *lanes32) {
	for i := range d {
		d[i] = bits32(halfTable[uint16(a[i])])
	}
}

func toHalf32Go(d, a *lanes32) {
	for i := range d {
		d[i] = toHalf(a[i])
	}
}
