package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A reduction adds, for each of its sums, element i to lane i mod 64 (32 in
// float64), in order of i, and adds the lanes in a tree at the end.
type reduction struct {
	ins, outs string
	sums      int
	float64   bool // inputs are widened, and body gets and gives float64 vectors
	even      bool // the length is a multiple of 64
	chain     bool // the operations of body wait for one another
	// body gives one vector of terms for each sum and one for each output.
	body func(a *asm, in []vec) (terms, outs []vec)
}

// A reducer is a reduction being emitted for one instruction set.
type reducer struct {
	reduction
	*asm
	in, out []stream
	per     int // elements of a vector
	count   int // accumulator vectors of a sum
	memory  operand.Mem
	acc     []vec // the accumulators, where they fit in registers
	i       reg.GPVirtual
}

func (r reduction) code(a *asm) {
	e := &reducer{reduction: r, asm: a, per: a.lanes}
	lanes := 64
	if r.float64 {
		e.per, lanes = a.lanes/2, 32
	}
	e.count = lanes / e.per
	e.emit()
}

func (e *reducer) emit() {
	e.out = e.streams(e.outs)
	e.in = e.streams(e.ins, e.out...)
	n := e.length(e.in[0].name)
	e.i = e.GP64()
	e.XORQ(e.i, e.i)
	vectors := e.sums * e.count
	e.memory = e.AllocLocal(vectors * e.Bytes)
	inRegisters := vectors <= e.Registers/2
	if inRegisters {
		for range vectors {
			e.acc = append(e.acc, e.zero())
		}
	} else {
		z := e.zero()
		for v := range vectors {
			e.VMOVUPS(z, e.memory.Offset(v*e.Bytes))
		}
	}

	add := func(j int) {
		for s, term := range e.terms(j*e.per, nil) {
			if inRegisters {
				v := e.acc[s*e.count+j]
				e.accumulate(term, v, v)
			} else {
				e.addTo(term, e.memory.Offset((s*e.count+j)*e.Bytes), nil)
			}
		}
	}
	chains := 1
	if e.chain {
		chains = e.Chains
	}
	e.whole(e.i, n, e.count*e.per, func() {
		for j := 0; j < e.count; j += chains {
			e.inStep(chains, func(c int) { add(j + c) })
		}
	})

	// The rest goes through memory, so that one body serves every accumulator.
	for v, acc := range e.acc {
		e.VMOVUPS(acc, e.memory.Offset(v*e.Bytes))
	}
	if !e.even {
		e.left(n)
	}
	for s := range e.sums {
		e.tree(s)
	}
	e.finish()
}

// left adds the last n elements, fewer than lanes.
func (e *reducer) left(n reg.GPVirtual) {
	p := e.GP64()
	e.LEAQ(e.memory, p)
	end := e.label("end")
	loop, masked := e.label("tail"), e.label("masked")
	e.TESTQ(n, n)
	e.JZ(operand.LabelRef(end))
	e.SUBQ(operand.Imm(uint64(e.per)), n)
	e.JB(operand.LabelRef(masked))
	e.Label(loop)
	e.rest(p, nil)
	e.ADDQ(operand.Imm(uint64(e.Bytes)), p)
	e.ADDQ(operand.Imm(uint64(e.per)), e.i)
	e.SUBQ(operand.Imm(uint64(e.per)), n)
	e.JAE(operand.LabelRef(loop))
	e.Label(masked)
	e.ADDQ(operand.Imm(uint64(e.per)), n)
	e.JZ(operand.LabelRef(end))
	e.rest(p, e.tailMask(n))
	e.Label(end)
}

// rest adds one vector to the accumulators at p.
func (e *reducer) rest(p reg.GPVirtual, tail mask) {
	for s, term := range e.terms(0, tail) {
		e.addTo(term, operand.Mem{Base: p, Disp: s * e.count * e.Bytes}, tail)
	}
}

// terms loads the inputs, stores the outputs and returns the terms.
func (e *reducer) terms(offset int, tail mask) []vec {
	regs := make([]vec, len(e.in))
	for j, s := range e.in {
		if e.float64 {
			regs[j] = e.widen(s.at(e.i, offset), tail)
		} else {
			regs[j] = e.load(s, s.at(e.i, offset), tail)
		}
	}
	terms, outs := e.body(e.asm, regs)
	for j, v := range outs {
		e.store(e.out[j], v, e.out[j].at(e.i, offset), tail)
	}
	return terms
}

// accumulate sets d = acc + term.
func (e *reducer) accumulate(term vec, acc op, d vec) {
	if e.float64 {
		e.VADDPD(acc, term, d)
	} else {
		e.VADDPS(acc, term, d)
	}
}

// addTo adds the lanes of term that are in the mask to memory. A float64 term
// needs no mask: the lanes outside are 0.
func (e *reducer) addTo(term vec, m operand.Mem, tail mask) {
	if tail != nil && !e.float64 {
		term = e.keep(tail, term)
	}
	d := e.vec()
	e.accumulate(term, m, d)
	e.VMOVUPS(d, m)
}

// tree adds the lanes of sum s and stores the result.
func (e *reducer) tree(s int) {
	v := make([]vec, e.count)
	for j := range v {
		v[j] = e.vec()
		e.VMOVUPS(e.memory.Offset((s*e.count+j)*e.Bytes), v[j])
	}
	for w := e.count / 2; w > 0; w /= 2 {
		for j := range w {
			e.accumulate(v[j], v[j+w], v[j])
		}
	}
	sum := v[0]
	result := e.ReturnIndex(s)
	if e.float64 {
		e.fold(sum, func(a, b, d op) { e.VADDPD(a, b, d) })
		e.high64(sum, func(a, b, d op) { e.VADDSD(a, b, d) })
		e.Store(sum.AsX(), result)
		return
	}
	e.fold(sum, func(a, b, d op) { e.VADDPS(a, b, d) })
	e.high64(sum, func(a, b, d op) { e.VADDPS(a, b, d) })
	e.last32(sum, func(a, b, d op) { e.VADDSS(a, b, d) })
	e.Store(sum.AsX(), result)
}

// sums wraps the bodies without outputs.
func sums(f func(a *asm, in []vec) []vec) func(*asm, []vec) ([]vec, []vec) {
	return func(a *asm, in []vec) ([]vec, []vec) { return f(a, in), nil }
}

var (
	codeSum = reduction{ins: "x", sums: 1, body: sums(func(_ *asm, in []vec) []vec { return in })}.code
	codeDot = reduction{ins: "a b", sums: 1, body: sums(func(a *asm, in []vec) []vec {
		return []vec{a.mul(in[0], in[1])}
	})}.code
	codeSumF64   = reduction{ins: "x", sums: 1, float64: true, body: sums(func(_ *asm, in []vec) []vec { return in })}.code
	codeSumSqF64 = reduction{ins: "x", sums: 1, float64: true, body: sums(func(a *asm, in []vec) []vec {
		d := a.vec()
		a.VMULPD(in[0], in[0], d)
		return []vec{d}
	})}.code
)

// codeMaxValue emits the largest of what are numbers, and apart from it whether a
// NaN was seen.
func codeMaxValue(a *asm) { a.largest(math.Inf(-1), func(v vec) vec { return v }) }

// codeMaxMagnitude is that of the magnitudes.
func codeMaxMagnitude(a *asm) {
	a.largest(0, func(v vec) vec { return a.andnot(a.kregbits(0x80000000), v) })
}

func (a *asm) largest(start float64, of func(vec) vec) {
	const streamsAtOnce = 4
	x := a.streams("x")[0]
	n := a.length("x")
	i := a.GP64()
	a.XORQ(i, i)
	acc := make([]vec, streamsAtOnce)
	for j := range acc {
		acc[j] = a.fresh(start)
	}
	nan := a.zeroMask()
	step := func(acc vec, offset int, tail mask) {
		v := of(a.load(x, x.at(i, offset), tail))
		a.orMask(nan, a.cmp(unord, v, v))
		if tail != nil {
			v = a.blend(tail, v, a.kreg(start))
		}
		a.VMAXPS(acc, v, acc) // the larger; acc where v is NaN
	}
	a.whole(i, n, streamsAtOnce*a.lanes, func() {
		for j, v := range acc {
			step(v, j*a.lanes, nil)
		}
	})
	a.whole(i, n, a.lanes, func() { step(acc[0], 0, nil) })
	done := a.label("done")
	a.TESTQ(n, n)
	a.JZ(operand.LabelRef(done))
	step(acc[0], 0, a.tailMask(n))
	a.Label(done)

	combine := func(x, y, d op) { a.VMAXPS(x, y, d) }
	combine(acc[0], acc[1], acc[0])
	combine(acc[2], acc[3], acc[2])
	combine(acc[0], acc[2], acc[0])
	a.fold(acc[0], combine)
	a.high64(acc[0], combine)
	a.last32(acc[0], combine)
	number := a.label("number")
	a.jumpIfNone(nan, number)
	a.VPCMPEQD(acc[0].AsX(), acc[0].AsX(), acc[0].AsX()) // all ones: a NaN
	a.Label(number)
	a.Store(acc[0].AsX(), a.ReturnIndex(0))
	a.finish()
}

// codeIndexOf looks for the first element equal to v.
func codeIndexOf(a *asm) {
	x := a.streams("x")[0]
	n := a.length("x")
	i := a.GP64()
	a.XORQ(i, i)
	found, result := a.label("found"), a.GP64()
	bits := a.GP32()
	look := func(tail mask) {
		m := a.cmp(eq, a.load(x, x.at(i, 0), tail), a.scalars["v"])
		a.MOVL(a.laneBits(m), bits)
		if tail != nil { // the lanes outside hold 0
			a.ANDL(a.laneBits(tail), bits)
		}
		a.TESTL(bits, bits)
		a.JNZ(operand.LabelRef(found))
	}
	a.whole(i, n, a.lanes, func() { look(nil) })
	none := a.label("none")
	a.TESTQ(n, n)
	a.JZ(operand.LabelRef(none))
	look(a.tailMask(n))
	a.Label(none)
	a.MOVQ(operand.I32(-1), result)
	a.Store(result, a.ReturnIndex(0))
	a.finish()
	a.Label(found)
	lane := a.GP32()
	a.TZCNTL(bits, lane)
	a.LEAQ(operand.Mem{Base: i, Index: lane.As64(), Scale: 1}, result)
	a.Store(result, a.ReturnIndex(0))
	a.finish()
}
