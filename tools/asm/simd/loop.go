package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A stream is a slice argument that a loop reads or writes a vector at a time,
// with the format its elements have in memory.
type stream struct {
	name   string
	format string // "f32" (any 32-bit element), "bf16", "f16" or "u8"
	ptr    reg.GPVirtual
}

// size returns the bytes of an element.
func (s stream) size() int {
	return map[string]int{"f32": 4, "bf16": 2, "f16": 2, "u8": 1}[s.format]
}

// streams parses "name name:format ..." and loads the pointers; a name that
// occurs in earlier shares its pointer.
func (a *asm) streams(list string, earlier ...stream) []stream {
	var out []stream
	for _, f := range strings.Fields(list) {
		name, format, found := strings.Cut(f, ":")
		if !found {
			format = "f32"
		}
		s := stream{name: name, format: format}
		for _, e := range earlier {
			if e.name == name {
				s.ptr = e.ptr
			}
		}
		if s.ptr == nil {
			s.ptr = a.base(name)
		}
		out = append(out, s)
	}
	return out
}

// at addresses the element index + offset.
func (s stream) at(index reg.Register, offset int) operand.Mem {
	size := s.size()
	return operand.Mem{Base: s.ptr, Index: index, Scale: uint8(size), Disp: offset * size}
}

// chain is the unrolling of loops whose operations wait for one another: as much as is good
// for the set.
const chain = 0

// each emits the loop of an elementwise kernel: body computes one vector of
// every output from one vector of every input. The main loop takes unroll
// vectors a turn; the last elements run through the same body under a mask.
// The length is that of the first output.
func each(unroll int, outs, ins string, body func(a *asm, in []vec) []vec) func(*asm) {
	return func(a *asm) {
		a.each(unroll, outs, ins, body)
		a.finish()
	}
}

func (a *asm) each(unroll int, outs, ins string, body func(a *asm, in []vec) []vec) {
	out := a.streams(outs)
	in := a.streams(ins, out...)
	n := a.length(out[0].name)
	i := a.GP64()
	a.XORQ(i, i)

	step := func(offset int, tail mask) {
		regs := make([]vec, len(in))
		for j, s := range in {
			regs[j] = a.load(s, s.at(i, offset), tail)
		}
		for j, v := range body(a, regs) {
			a.store(out[j], v, out[j].at(i, offset), tail)
		}
	}
	chains := 1
	if unroll == chain {
		unroll, chains = a.Chains, a.Chains
	}
	a.whole(i, n, unroll*a.lanes, func() {
		for u := 0; u < unroll; u += chains {
			a.inStep(chains, func(c int) { step((u+c)*a.lanes, nil) })
		}
	})
	if unroll > 1 {
		a.whole(i, n, a.lanes, func() { step(0, nil) })
	}
	if a.masked(out, in) {
		done := a.label("done")
		a.TESTQ(n, n)
		a.JZ(operand.LabelRef(done))
		step(0, a.tailMask(n))
		a.Label(done)
	}
}

// whole emits a loop that runs body while n >= step, moving step elements from
// n to i each turn.
func (a *asm) whole(i, n reg.GPVirtual, step int, body func()) {
	loop, end := a.label("loop"), a.label("end")
	a.SUBQ(operand.Imm(uint64(step)), n)
	a.JB(operand.LabelRef(end))
	a.Label(loop)
	body()
	a.ADDQ(operand.Imm(uint64(step)), i)
	a.SUBQ(operand.Imm(uint64(step)), n)
	a.JAE(operand.LabelRef(loop))
	a.Label(end)
	a.ADDQ(operand.Imm(uint64(step)), n)
}

// one wraps the bodies that have a single output.
func one(f func(a *asm, in []vec) vec) func(*asm, []vec) []vec {
	return func(a *asm, in []vec) []vec { return []vec{f(a, in)} }
}

// unary and binary are each for the commonest shapes.
func unary(unroll int, f func(a *asm, x vec) vec) func(*asm) {
	return each(unroll, "dst", "x", one(func(a *asm, in []vec) vec { return f(a, in[0]) }))
}

func binary(unroll int, names string, f func(a *asm, x, y vec) vec) func(*asm) {
	if len(strings.Fields(names)) != 2 {
		panic(fmt.Sprintf("binary: %q is not two names", names))
	}
	return each(unroll, "dst", names, one(func(a *asm, in []vec) vec { return f(a, in[0], in[1]) }))
}

// inStep emits what body emits for each of 0 to n-1, an instruction of each in turn.
func (a *asm) inStep(n int, body func(c int)) {
	file, err := a.Result()
	if err != nil {
		panic(err)
	}
	functions := file.Functions()
	f := functions[len(functions)-1]
	begin := len(f.Nodes)
	bodies := make([][]ir.Node, n)
	for c := range bodies {
		body(c)
		bodies[c] = slices.Clone(f.Nodes[begin:])
		f.Nodes = f.Nodes[:begin]
	}
	for i := range bodies[0] {
		for _, b := range bodies {
			f.Nodes = append(f.Nodes, b[i])
		}
	}
}
