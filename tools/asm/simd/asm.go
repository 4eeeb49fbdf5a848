package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"

	"github.com/snug-ml/snug/tools/asm/arm64"
)

type (
	vec  = reg.VecVirtual
	op   = operand.Op
	mask = reg.Register // an opmask register in AVX-512 code, else a vector
)

// A set is a set of instructions that kernels are written for.
type set struct {
	level string // of package simd
	bytes int    // of a vector
	steps int    // which of a kernel's steps
}

// NEON code is written as AVX code of 128 bits, which package arm64 translates.
var (
	avx2   = set{"AVX2", 32, 0}
	avx512 = set{"AVX512", 64, 1}
	neon   = set{"NEON", 16, 0}
)

// A port is an architecture, the sets that its processors may have, and how their code
// is printed.
type port struct {
	name       string // as in GOARCH
	constraint string // the build constraint, where the file's name gives none
	sets       []set
	print      func(*ir.File) ([]byte, error)
}

// ports are the columns of the table whose rows are the kernels of groups.
var ports = []port{
	{name: "amd64", sets: []set{avx2, avx512}, print: func(f *ir.File) ([]byte, error) {
		return printer.NewGoAsm(printer.Config{Name: command, Pkg: "simd"}).Print(f)
	}},
	{name: "arm64", sets: []set{neon}, print: func(f *ir.File) ([]byte, error) {
		text, err := arm64.Translate(f, command)
		return []byte(text), err
	}},
}

// asm emits one function for one instruction set. Its methods give the vector
// operations all sets have one name; each returns a new virtual register
// unless it says that it changes one.
type asm struct {
	*build.Context
	file    *file
	wide    bool // AVX-512
	neon    bool // else AVX2
	bytes   int  // of a vector
	lanes   int  // float32 lanes of a vector
	scalars map[string]vec
	consts  map[uint32]vec // constants held in registers (AVX-512)
	hoist   []uint32       // what consts will hold
	asked   []uint32       // constants asked for, in order
	labels  int
}

// maxHoisted is how many constants AVX-512 code keeps in registers; further
// ones are broadcast where they are used.
const maxHoisted = 18

// A file is an assembly file under construction.
type file struct {
	*build.Context
	data []string // names declared
}

func newFile() *file { return &file{Context: build.NewContext()} }

func newAsm(f *file, s set) *asm {
	return &asm{
		Context: f.Context, file: f, wide: s == avx512, neon: s == neon, bytes: s.bytes, lanes: s.bytes / 4,
		scalars: map[string]vec{}, consts: map[uint32]vec{},
	}
}

func (a *asm) vec() vec {
	switch {
	case a.wide:
		return a.ZMM()
	case a.neon:
		return a.XMM()
	}
	return a.YMM()
}

// label returns a label not used before in the function.
func (a *asm) label(name string) string {
	a.labels++
	return fmt.Sprintf("%s%d", name, a.labels)
}

// word returns memory that holds the 32 bits eight times.
func (a *asm) word(bits uint32) operand.Mem {
	return a.data(fmt.Sprintf("word_%08x", bits), slices.Repeat([]uint32{bits}, 8)...)
}

// table returns memory that holds the 64-bit values.
func (a *asm) table(name string, values ...uint64) operand.Mem {
	var words []uint32
	for _, v := range values {
		words = append(words, uint32(v), uint32(v>>32))
	}
	return a.data(name, words...)
}

// data returns memory that holds the words, declared once a file.
func (a *asm) data(name string, words ...uint32) operand.Mem {
	if slices.Contains(a.file.data, name) {
		return operand.NewDataAddr(operand.NewStaticSymbol(name), 0)
	}
	a.file.data = append(a.file.data, name)
	m := a.StaticGlobal(name)
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, w := range words {
		a.AddDatum(4*i, operand.U32(w))
	}
	return m
}

// kbits returns an operand with the 32 bits in every lane: a register, or in
// AVX2 code memory, which instructions take as their last source only.
func (a *asm) kbits(bits uint32) op {
	if !a.wide {
		return a.word(bits)
	}
	return a.kregbits(bits)
}

// k is kbits for a float32.
func (a *asm) k(v float64) op { return a.kbits(f32(v)) }

// kregbits returns a register with the 32 bits in every lane; it must not be changed.
func (a *asm) kregbits(bits uint32) vec {
	if v, ok := a.consts[bits]; ok {
		return v
	}
	if !slices.Contains(a.asked, bits) {
		a.asked = append(a.asked, bits)
	}
	v := a.vec()
	a.VBROADCASTSS(a.word(bits), v)
	return v
}

func (a *asm) kreg(v float64) vec { return a.kregbits(f32(v)) }

// fresh returns a register with v in every lane that may be changed.
func (a *asm) fresh(v float64) vec {
	if !a.wide {
		return a.kreg(v)
	}
	return a.dup(a.kreg(v))
}

func f32(v float64) uint32 { return math.Float32bits(float32(v)) }

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

// The last operand of these may be memory.

func (a *asm) add(x, y op) vec { d := a.vec(); a.VADDPS(y, x, d); return d }
func (a *asm) sub(x, y op) vec { d := a.vec(); a.VSUBPS(y, x, d); return d }
func (a *asm) mul(x, y op) vec { d := a.vec(); a.VMULPS(y, x, d); return d }
func (a *asm) div(x, y op) vec { d := a.vec(); a.VDIVPS(y, x, d); return d }

// min and max return y where either is NaN, and of two zeros.
func (a *asm) min(x, y op) vec { d := a.vec(); a.VMINPS(y, x, d); return d }
func (a *asm) max(x, y op) vec { d := a.vec(); a.VMAXPS(y, x, d); return d }

func (a *asm) and(x, y op) vec { d := a.vec(); a.VANDPS(y, x, d); return d }
func (a *asm) or(x, y op) vec  { d := a.vec(); a.VORPS(y, x, d); return d }
func (a *asm) xor(x, y op) vec { d := a.vec(); a.VXORPS(y, x, d); return d }

// andnot returns ^x & y.
func (a *asm) andnot(x, y op) vec { d := a.vec(); a.VANDNPS(y, x, d); return d }

func (a *asm) sqrt(x op) vec { d := a.vec(); a.VSQRTPS(x, d); return d }

func (a *asm) addi(x, y op) vec { d := a.vec(); a.VPADDD(y, x, d); return d }
func (a *asm) subi(x, y op) vec { d := a.vec(); a.VPSUBD(y, x, d); return d }

func (a *asm) shl(x op, n int) vec { d := a.vec(); a.VPSLLD(operand.U8(n), x, d); return d }
func (a *asm) shr(x op, n int) vec { d := a.vec(); a.VPSRLD(operand.U8(n), x, d); return d }
func (a *asm) sar(x op, n int) vec { d := a.vec(); a.VPSRAD(operand.U8(n), x, d); return d }

// toFloat converts signed integers.
func (a *asm) toFloat(x op) vec { d := a.vec(); a.VCVTDQ2PS(x, d); return d }

// mulAdd returns p*x + c, rounded once. It changes p, but in NEON code, whose
// instructions add to c.
func (a *asm) mulAdd(p vec, x, c op) vec {
	if a.neon {
		d := a.dup(c)
		a.mulAddInto(d, p, x)
		return d
	}
	a.VFMADD213PS(c, x, p)
	return p
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

// Comparison predicates of VCMPPS.
const (
	eq    = 0x00 // ordered, quiet
	lt    = 0x11 // less, false for NaN
	le    = 0x12
	unord = 0x03
	neq   = 0x04 // not equal, true for NaN
	gt    = 0x1e
)

// cmp compares x with y.
func (a *asm) cmp(predicate uint8, x, y op) mask {
	if a.wide {
		d := a.K()
		a.VCMPPS(operand.U8(predicate), y, x, d)
		return d
	}
	d := a.vec()
	a.VCMPPS(operand.U8(predicate), y, x, d)
	return d
}

// negative returns where the sign bit is set.
func (a *asm) negative(x vec) mask {
	if a.wide {
		d := a.K()
		a.VPMOVD2M(x, d)
		return d
	}
	if a.neon {
		return a.sar(x, 31)
	}
	return x // VBLENDVPS looks at the sign bit only
}

// blend returns yes where m is set and no elsewhere; yes may be memory.
func (a *asm) blend(m mask, yes, no op) vec {
	d := a.vec()
	if a.wide {
		a.VBLENDMPS(yes, no, m, d)
	} else {
		a.VBLENDVPS(m, yes, no, d)
	}
	return d
}

// keep returns x where m is set and 0 elsewhere. But in AVX-512 code m must come from cmp.
func (a *asm) keep(m mask, x op) vec {
	d := a.vec()
	if a.wide {
		a.VMOVAPS_Z(x, m, d)
	} else {
		a.VANDPS(x, m, d)
	}
	return d
}

// drop returns 0 where m is set and x elsewhere. But in AVX-512 code m must come from cmp.
func (a *asm) drop(m mask, x op) vec {
	if a.wide {
		return a.blend(m, a.zero(), x)
	}
	return a.andnot(m, x)
}

// signBit and the rest of a float32, as masks.
const (
	signBit = 0x80000000
	absBits = 0x7fffffff
)

func (a *asm) abs(x vec) vec { return a.and(x, a.kbits(absBits)) }
func (a *asm) neg(x vec) vec { return a.xor(x, a.kbits(signBit)) }

// finish ends the function.
func (a *asm) finish() {
	a.VZEROUPPER()
	a.RET()
}

// load64 returns a general register with an integer argument.
func (a *asm) load64(name string) reg.GPVirtual {
	r := a.GP64()
	a.Load(a.Param(name), r)
	return r
}

// base and length of a slice argument.
func (a *asm) base(name string) reg.GPVirtual {
	r := a.GP64()
	a.Load(a.Param(name).Base(), r)
	return r
}

func (a *asm) length(name string) reg.GPVirtual {
	r := a.GP64()
	a.Load(a.Param(name).Len(), r)
	return r
}

// loadScalars broadcasts every float32 argument.
func (a *asm) loadScalars(k kernel) {
	for _, arg := range k.arguments() {
		if arg.kind != "float32" {
			continue
		}
		addr, err := a.Param(arg.name).Resolve()
		if err != nil {
			panic(fmt.Sprintf("%s: argument %s: %v", k.name, arg.name, err))
		}
		v := a.vec()
		a.VBROADCASTSS(addr.Addr, v)
		a.scalars[arg.name] = v
	}
}
