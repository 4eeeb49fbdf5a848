// Package sets describes the sets of instructions that kernels are written for: what
// they have that the code of an operation may use, none of which knows a set by name.
package sets

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/printer"

	"github.com/snug-ml/snug/tools/asm/arm64"
)

// A Set is what is to be known of a set of instructions.
type Set struct {
	Level     string // its constant in package internal/isa, and the end of its functions' names
	Extends   string // the level whose code serves where this one has no better; empty: there is none
	Bytes     int    // of a vector
	Registers int    // vector registers

	// Constants is how many constants code keeps in registers. Others are read from memory
	// where they are used: with Broadcast to a register, else by the instruction.
	Constants int
	Broadcast bool
	// Chains is how many vectors a loop takes in step whose operations wait for one another:
	// a processor does not look ahead far enough to find the next vector by itself.
	Chains int
	// Opmask means that masks have registers of their own, and that loads, stores and
	// arithmetic take one. Else a mask is a vector, of ones in the lanes that are set.
	Opmask bool
	// SignMask means that a blend looks at the sign bits of its mask only.
	SignMask bool
	// Addend means that fused operations add to their addend, else one that adds to a
	// product in place of its first factor exists as well.
	Addend bool
	// Lookup is how many float32 elements one permutation picks from; Bytewise means that it
	// picks bytes.
	Lookup   int
	Bytewise bool
	// LookupLoad means that what is picked from is loaded first: a permutation that reads
	// memory takes longer than both.
	LookupLoad bool
	// Exponents means that exponents and significands are taken apart and put together by
	// instructions of their own.
	Exponents bool
	// Ternary means that any function of three operands is one instruction, bit by bit.
	Ternary bool
	// Zero means that there are comparisons with zero.
	Zero bool
	// PassNaN means that there are a minimum and a maximum that are NaN where either
	// operand is.
	PassNaN bool
	// Halves means that the upper halves of lanes can be packed, and made of packed ones,
	// and that a sum can be rounded to them.
	Halves bool
	// BF16 means that float32 is rounded to bfloat16 by an instruction.
	BF16 bool
}

// Lanes returns the float32 elements of a vector.
func (s Set) Lanes() int { return s.Bytes / 4 }

// The sets. NEON code is written as AVX code of 128 bits, which package arm64 translates.
var (
	AVX2   = Set{Level: "AVX2", Bytes: 32, Registers: 16, Chains: 2, SignMask: true, Lookup: 8, LookupLoad: true}
	AVX512 = Set{Level: "AVX512", Bytes: 64, Registers: 32, Constants: 18, Broadcast: true, Chains: 1, Opmask: true, Lookup: 32, Exponents: true, Ternary: true}
	NEON   = Set{Level: "NEON", Bytes: 16, Registers: 32, Constants: 6, Chains: 1, Addend: true, Lookup: 8, Bytewise: true, Zero: true, PassNaN: true, Halves: true}

	NEONBF16 = func() Set {
		s := NEON
		s.Level, s.Extends, s.BF16 = "NEONBF16", NEON.Level, true
		return s
	}()
)

// A Port is an architecture, the sets that its processors may have, and how their code is
// printed.
type Port struct {
	Name  string // as in GOARCH
	Sets  []Set
	Print func(f *ir.File, command, pkg string) ([]byte, error)
}

// Ports are the architectures.
var Ports = []Port{
	{"amd64", []Set{AVX2, AVX512}, func(f *ir.File, command, pkg string) ([]byte, error) {
		return printer.NewGoAsm(printer.Config{Name: command, Pkg: pkg}).Print(f)
	}},
	{"arm64", []Set{NEON, NEONBF16}, func(f *ir.File, command, _ string) ([]byte, error) {
		text, err := arm64.Translate(f, command)
		return []byte(text), err
	}},
}
