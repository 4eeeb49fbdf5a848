package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/snug-ml/snug/tools/asm/sets"
)

type (
	vec  = reg.VecVirtual
	op   = operand.Op
	mask = reg.Register // an opmask register or a vector, as the set has it
)

// asm emits one function for one instruction set. Its methods give the vector
// operations all sets have one name; each returns a new virtual register
// unless it says that it changes one.
type asm struct {
	*build.Context
	sets.Set
	file    *file
	lanes   int // float32 lanes of a vector
	scalars map[string]vec
	consts  map[uint32]vec // constants held in registers
	hoist   []uint32       // what consts will hold
	asked   []uint32       // constants asked for, in order
	labels  int
}

// A file is an assembly file under construction.
type file struct {
	*build.Context
	data []string // names declared
}

func newFile() *file { return &file{Context: build.NewContext()} }

func newAsm(f *file, s sets.Set) *asm {
	return &asm{
		Context: f.Context, Set: s, file: f, lanes: s.Lanes(),
		scalars: map[string]vec{}, consts: map[uint32]vec{},
	}
}

// vec returns a new vector register.
func (a *asm) vec() vec { return a.vector(a.Bytes) }

// vector returns a new register of so many bytes.
func (a *asm) vector(bytes int) vec {
	return a.Vec(map[int]reg.Spec{16: reg.S128, 32: reg.S256, 64: reg.S512}[bytes])
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

// kbits returns an operand with the 32 bits in every lane: a register, or memory, which
// instructions take as their last source only.
func (a *asm) kbits(bits uint32) op {
	if _, held := a.consts[bits]; held || a.Broadcast {
		return a.kregbits(bits)
	}
	a.ask(bits)
	return a.word(bits)
}

// ask notes that a constant is of use in a register.
func (a *asm) ask(bits uint32) {
	if !slices.Contains(a.asked, bits) {
		a.asked = append(a.asked, bits)
	}
}

// k is kbits for a float32.
func (a *asm) k(v float64) op { return a.kbits(f32(v)) }

// kregbits returns a register with the 32 bits in every lane; it must not be changed.
func (a *asm) kregbits(bits uint32) vec {
	if v, ok := a.consts[bits]; ok {
		return v
	}
	a.ask(bits)
	v := a.vec()
	a.VBROADCASTSS(a.word(bits), v)
	return v
}

func (a *asm) kreg(v float64) vec { return a.kregbits(f32(v)) }

// fresh returns a register with v in every lane that may be changed.
func (a *asm) fresh(v float64) vec { return a.freshBits(f32(v)) }

func (a *asm) freshBits(bits uint32) vec {
	v := a.kregbits(bits)
	if _, held := a.consts[bits]; held || a.Broadcast {
		return a.own(v)
	}
	return v
}

// own copies an operand to a register that may be changed: a constant from memory, where a
// load costs arithmetic nothing.
func (a *asm) own(x op) vec {
	for bits, v := range a.consts {
		if v == x && a.Addend {
			d := a.vec()
			a.VBROADCASTSS(a.word(bits), d)
			return d
		}
	}
	return a.dup(x)
}

func f32(v float64) uint32 { return math.Float32bits(float32(v)) }

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
