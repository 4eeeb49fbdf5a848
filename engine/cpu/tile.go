package cpu

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// tile is how many elements the elementwise interpreter handles at a time: its
// registers (4 KiB each) stay in the first-level cache.
const tile = 1024

// gap is the space between registers, in elements: instructions are a third slower if all
// their operands have the same offset within a page.
const gap = 80

// instr is one instruction of a tile program.
type instr struct {
	run  func(dst, x, y, z []float32)
	drop *dropout // instead of run
	arg  [3]int
	narg int
	half graph.DType // round the result to this format, if 16-bit
}

type dropout struct {
	op      graph.Dropout
	counter ref
}

// operand is an input of a tile program: where its elements are for a given element of
// the result.
type operand struct {
	ref
	dtype  graph.DType
	stride []int // per collapsed dimension of the result
}

// program is an elementwise body compiled for tiles of up to tile elements.
type program struct {
	in     []operand
	code   []instr
	out    []int // registers that are stored, and then those that are summed
	outRef []operand
	// slot is the place of each register in the worker's scratch, regs the number
	// of places.
	slot []int
	regs int
	size int // elements of a register, at most tile
	// dest is the result into whose memory each instruction writes, or toRegister; stored
	// says which results are then where they belong.
	dest   []int
	stored []bool
}

const toRegister = -1

// scratchBytes is the worker scratch of the program's registers.
func (p *program) scratchBytes() int { return p.regs * (tile + gap) * 4 }

// scalarFn returns the vector function of fn.
func scalarFn(e graph.Elementwise) (func(dst, x, y, z []float32), error) {
	a := float32(e.Alpha)
	one := func(f func(dst, x []float32)) func(dst, x, y, z []float32) {
		return func(dst, x, _, _ []float32) { f(dst, x) }
	}
	two := func(f func(dst, x, y []float32)) func(dst, x, y, z []float32) {
		return func(dst, x, y, _ []float32) { f(dst, x, y) }
	}
	oneA := func(f func(dst, x []float32, a float32)) func(dst, x, y, z []float32) {
		return func(dst, x, _, _ []float32) { f(dst, x, a) }
	}
	twoA := func(f func(dst, x, y []float32, a float32)) func(dst, x, y, z []float32) {
		return func(dst, x, y, _ []float32) { f(dst, x, y, a) }
	}
	switch e.Fn {
	case graph.FnCopy:
		return one(simd.Copy), nil
	case graph.FnNeg:
		return one(simd.Neg), nil
	case graph.FnAbs:
		return one(simd.Abs), nil
	case graph.FnSquare:
		return one(simd.Square), nil
	case graph.FnSqrt:
		return one(simd.Sqrt), nil
	case graph.FnRsqrt:
		return one(simd.Rsqrt), nil
	case graph.FnRecip:
		return one(simd.Recip), nil
	case graph.FnExp:
		return one(simd.Exp), nil
	case graph.FnLog:
		return one(simd.Log), nil
	case graph.FnSin:
		return one(simd.Sin), nil
	case graph.FnCos:
		return one(simd.Cos), nil
	case graph.FnTanh:
		return one(simd.Tanh), nil
	case graph.FnSigmoid:
		return one(simd.Sigmoid), nil
	case graph.FnSoftplus:
		return one(simd.Softplus), nil
	case graph.FnRelu:
		return one(simd.Relu), nil
	case graph.FnLeakyRelu:
		return oneA(simd.LeakyRelu), nil
	case graph.FnElu:
		return oneA(simd.ELU), nil
	case graph.FnSiLU:
		return one(simd.SiLU), nil
	case graph.FnGELU:
		return one(simd.GELU), nil
	case graph.FnGELUTanh:
		return one(simd.GELUTanh), nil
	case graph.FnAddC:
		return oneA(simd.AddScalar), nil
	case graph.FnMulC:
		return oneA(simd.MulScalar), nil
	case graph.FnMinC:
		return oneA(minScalar), nil
	case graph.FnMaxC:
		return oneA(maxScalar), nil
	case graph.FnIsFinite:
		return one(isFinite), nil
	case graph.FnPositive:
		return one(simd.GreaterZero), nil
	case graph.FnFloor:
		return one(floor), nil
	case graph.FnAdd:
		return two(simd.Add), nil
	case graph.FnSub:
		return two(simd.Sub), nil
	case graph.FnMul:
		return two(simd.Mul), nil
	case graph.FnDiv:
		return two(simd.Div), nil
	case graph.FnMax:
		return two(simd.Max), nil
	case graph.FnMin:
		return two(simd.Min), nil
	case graph.FnGreater:
		return two(greater), nil
	case graph.FnEqual:
		return two(equal), nil
	case graph.FnTanhGrad:
		return two(simd.TanhGrad), nil
	case graph.FnSigmoidGrad:
		return two(simd.SigmoidGrad), nil
	case graph.FnReluGrad:
		return two(simd.ReluGrad), nil
	case graph.FnLeakyReluGrad:
		return twoA(simd.LeakyReluGrad), nil
	case graph.FnEluGrad:
		return twoA(simd.ELUGrad), nil
	case graph.FnSiLUGrad:
		return two(simd.SiLUGrad), nil
	case graph.FnGELUGrad:
		return two(simd.GELUGrad), nil
	case graph.FnGELUTanhGrad:
		return two(simd.GELUTanhGrad), nil
	case graph.FnAbsGrad:
		return two(absGrad), nil
	case graph.FnSelect:
		return simd.Select, nil
	}
	return nil, fmt.Errorf("the CPU has no vector function %v", e.Fn)
}

func minScalar(dst, x []float32, a float32) {
	for i, v := range x {
		dst[i] = min(v, a)
	}
}

func maxScalar(dst, x []float32, a float32) {
	for i, v := range x {
		dst[i] = max(v, a)
	}
}

func bit(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

func isFinite(dst, x []float32) {
	for i, v := range x {
		dst[i] = bit(finite(v))
	}
}

func floor(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(math.Floor(float64(v)))
	}
}

func greater(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = bit(v > y[i])
	}
}

func equal(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = bit(v == y[i])
	}
}

func absGrad(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = y[i] * (bit(v > 0) - bit(v < 0))
	}
}

// body returns the elementwise program of a node as a graph.Body.
func body(n *graph.Node) *graph.Body {
	switch op := n.Op.(type) {
	case graph.Fused:
		return op.Body
	case graph.Expand:
		return &graph.Body{Inputs: 1, Results: []int{1}, Instrs: []graph.Instr{
			{Op: graph.Elementwise{Fn: graph.FnCopy}, Arg: []int{0}, DType: n.Out[0].DType()}}}
	default:
		arg := make([]int, len(n.In))
		for i := range arg {
			arg[i] = i
		}
		return &graph.Body{Inputs: len(n.In), Results: []int{len(n.In)}, Instrs: []graph.Instr{
			{Op: op, Arg: arg, DType: n.Out[0].DType()}}}
	}
}

// tileProgram compiles bd over operands with the given element strides.
func (c *compiler) tileProgram(bd *graph.Body, in, out []*graph.Value, dims graph.Shape) (*program, error) {
	p := &program{size: tile, out: bd.Results, stored: make([]bool, len(out))}
	operandOf := func(v *graph.Value) operand {
		return operand{c.ref(v), v.DType(), v.Shape().Strides(dims)}
	}
	for i, v := range in {
		if counterOnly(bd, i) { // read by dropout itself
			p.in = append(p.in, operand{c.ref(v), graph.Invalid, make([]int, len(dims))})
			continue
		}
		p.in = append(p.in, operandOf(v))
	}
	for _, v := range out {
		p.outRef = append(p.outRef, operandOf(v))
	}
	for _, s := range bd.Instrs {
		ins := instr{half: s.DType, narg: len(s.Arg)}
		copy(ins.arg[:], s.Arg)
		switch op := s.Op.(type) {
		case graph.Elementwise:
			f, err := scalarFn(op)
			if err != nil {
				return nil, err
			}
			ins.run = f
		case graph.Dropout:
			// The run counter is an input of the body, but not a tensor.
			ins.drop = &dropout{op, p.in[s.Arg[1]].ref}
			ins.narg = 1
		default:
			return nil, fmt.Errorf("a body cannot hold %s", op.Name())
		}
		p.code = append(p.code, ins)
	}
	for k := range p.code {
		p.dest = append(p.dest, toRegister)
		if q := len(p.in) + k; !p.reads(k+1, q) && !slices.Contains(p.out[len(out):], q) {
			p.code[k].half = graph.F32 // storing it rounds it
		}
	}
	for j, q := range p.out[:len(out)] {
		k := q - len(p.in)
		if k >= 0 && p.outRef[j].dtype == graph.F32 && p.dest[k] == toRegister && !p.readsLater(k, p.outRef[j].ref) {
			p.dest[k], p.stored[j] = j, true
		}
	}
	p.allot(func(i int) bool { return in[i].Shape().Elems() == dims.Elems() })
	return p, nil
}

// allot assigns places to registers. A result takes the place of an operand that is not
// read after it, so that all stay in the first-level cache; but not the place of one that
// is the same in all rows (not full), which is kept from tile to tile.
func (p *program) allot(full func(input int) bool) {
	for i := range p.in {
		p.slot = append(p.slot, i)
	}
	p.regs = len(p.in)
	var free []int
	for k, ins := range p.code {
		dies := func() {
			for _, q := range ins.arg[:ins.narg] {
				if (q >= len(p.in) || full(q)) && !p.reads(k+1, q) && !slices.Contains(p.out, q) && !slices.Contains(free, p.slot[q]) {
					free = append(free, p.slot[q])
				}
			}
		}
		if ins.drop == nil { // otherwise the mask is written before the operand is read
			dies()
		}
		at := p.regs
		if len(free) > 0 {
			at, free = free[len(free)-1], free[:len(free)-1]
		} else {
			p.regs++
		}
		p.slot = append(p.slot, at)
		if ins.drop != nil {
			dies()
		}
	}
}

// reg returns the first n elements of the place of register q.
func (p *program) reg(regs []float32, q, n int) []float32 {
	at := p.slot[q] * (p.size + gap)
	return regs[at : at+n]
}

// reads reports whether an instruction from k on reads register q.
func (p *program) reads(k, q int) bool {
	return slices.ContainsFunc(p.code[k:], func(ins instr) bool { return slices.Contains(ins.arg[:ins.narg], q) })
}

// readsLater reports whether an instruction after k, or a sum, reads an input at the
// same place as r: a result that overwrites an operand.
func (p *program) readsLater(k int, r ref) bool {
	there := func(a int) bool { return a < len(p.in) && p.in[a].base == r.base && p.in[a].off == r.off }
	for _, ins := range p.code[k+1:] {
		if slices.ContainsFunc(ins.arg[:ins.narg], there) {
			return true
		}
	}
	return slices.ContainsFunc(p.out[len(p.outRef):], there)
}

// collapse merges neighboring dimensions that every operand walks alike, so that the
// innermost run is as long as possible; but not across a wall, which is a number of
// elements.
func (p *program) collapse(dims graph.Shape, walls ...int) graph.Shape {
	all := make([]*operand, 0, len(p.in)+len(p.outRef))
	for i := range p.in {
		all = append(all, &p.in[i])
	}
	for i := range p.outRef {
		all = append(all, &p.outRef[i])
	}
	var out graph.Shape
	inside := 1
	strides := make([][]int, len(all))
	for d := len(dims) - 1; d >= 0; d-- {
		if dims[d] == 1 {
			continue
		}
		join := len(out) > 0 && !slices.Contains(walls, inside)
		inside *= dims[d]
		for i, o := range all {
			if join && o.stride[d] != strides[i][len(out)-1]*out[len(out)-1] {
				join = false
			}
		}
		if join {
			out[len(out)-1] *= dims[d]
			continue
		}
		out = append(out, dims[d])
		for i, o := range all {
			strides[i] = append(strides[i], o.stride[d])
		}
	}
	if len(out) == 0 {
		out = graph.Shape{1}
		for i := range all {
			strides[i] = []int{0}
		}
	}
	for i, o := range all {
		o.stride = strides[i]
		slices.Reverse(o.stride)
	}
	slices.Reverse(out)
	return out
}

// load reads n elements of operand o from element offset at into reg, or returns the
// memory itself if it already has the right format.
func (o *operand) load(reg []float32, at, step int) []float32 {
	switch {
	case o.dtype == graph.F32 && step == 1:
		return unsafe.Slice((*float32)(unsafe.Add(o.ptr(), at*4)), len(reg))
	case o.dtype == graph.F32:
		simd.Fill(reg, *(*float32)(unsafe.Add(o.ptr(), at*4)))
	case o.dtype == graph.I32:
		src := unsafe.Slice((*int32)(unsafe.Add(o.ptr(), at*4)), 1+(len(reg)-1)*step)
		if step == 1 {
			simd.I32ToF32(reg, src)
		} else {
			simd.Fill(reg, float32(src[0]))
		}
	case step == 1:
		src := unsafe.Slice((*uint16)(unsafe.Add(o.ptr(), at*2)), len(reg))
		widen(reg, src, o.dtype)
	default:
		var one [1]float32
		widen(one[:], unsafe.Slice((*uint16)(unsafe.Add(o.ptr(), at*2)), 1), o.dtype)
		simd.Fill(reg, one[0])
	}
	return reg
}

// loadRows is load for several rows of len(reg)/rows elements, pitch apart in the
// operand and contiguous in reg.
func (o *operand) loadRows(reg []float32, at, step, rows, pitch int) []float32 {
	n := len(reg) / rows
	switch {
	case rows == 1, step == 1 && pitch == n, step == 0 && pitch == 0:
		return o.load(reg, at, step)
	case pitch == 0:
		copy(reg[:n], o.load(reg[:n], at, step))
		for done := n; done < len(reg); done *= 2 {
			copy(reg[done:], reg[:done])
		}
	case step == 0 && pitch == 1 && n <= 16: // a call for each row would take longest
		// Where they have to be converted, the values of the rows wait at the end of reg, which they reach last.
		for i, v := range o.load(reg[len(reg)-rows:], at, 1) {
			part := reg[i*n : (i+1)*n]
			for j := range part {
				part[j] = v
			}
		}
	default:
		for i := range rows {
			part := reg[i*n : (i+1)*n]
			if got := o.load(part, at+i*pitch, step); &got[0] != &part[0] {
				copy(part, got)
			}
		}
	}
	return reg
}

func widen(dst []float32, src []uint16, d graph.DType) {
	if d == graph.BF16 {
		simd.BF16ToF32(dst, src)
	} else {
		simd.F16ToF32(dst, src)
	}
}

func narrow(dst []uint16, src []float32, d graph.DType) {
	if d == graph.BF16 {
		simd.F32ToBF16(dst, src)
	} else {
		simd.F32ToF16(dst, src)
	}
}

// store writes reg to elements at.. of operand o.
func (o *operand) store(reg []float32, at int) {
	if o.dtype == graph.F32 {
		dst := unsafe.Slice((*float32)(unsafe.Add(o.ptr(), at*4)), len(reg))
		if &dst[0] != &reg[0] {
			copy(dst, reg)
		}
		return
	}
	narrow(unsafe.Slice((*uint16)(unsafe.Add(o.ptr(), at*2)), len(reg)), reg, o.dtype)
}

// maxOperands bounds the inputs and results of one tile program, so that the table
// of their places is on the stack.
const maxOperands = graph.MaxRegisters + graph.MaxBodyResults

// held is the row of an operand, the same for all rows of a tile, that a register
// is filled with.
type held struct{ at, n int }

// tile runs the program on n <= tile elements, rows rows of them. at[i] is the element
// offset of operand i (inputs, then results), step its innermost stride (1 or 0) and
// pitch that of its rows; flat is the index of the first element in the result, where
// rows are contiguous. regs holds the registers, and kept describes what they hold from
// tile to tile. sums, if any, receives what is summed.
func (p *program) tile(n, rows, flat int, at, step, pitch []int, regs []float32, kept *[graph.MaxRegisters]held, sums *columnSums) {
	var r [graph.MaxRegisters][]float32
	for i := range p.in {
		if p.in[i].dtype == graph.Invalid {
			continue
		}
		reg := p.reg(regs, i, n)
		if rows > 1 && pitch[i] == 0 && step[i] == 1 {
			if kept[i].at != at[i] || kept[i].n < n {
				p.in[i].loadRows(reg, at[i], step[i], rows, pitch[i])
				kept[i] = held{at[i], n}
			}
			r[i] = reg
			continue
		}
		r[i], kept[i].n = p.in[i].loadRows(reg, at[i], step[i], rows, pitch[i]), 0
	}
	ni := len(p.in)
	for k := range p.code {
		d := ni + k
		reg := p.reg(regs, d, n)
		r[d] = reg
		if j := p.dest[k]; j != toRegister {
			r[d] = unsafe.Slice((*float32)(unsafe.Add(p.outRef[j].ptr(), at[ni+j]*4)), n)
		}
		if ins := &p.code[k]; ins.drop != nil {
			ins.drop.mask(reg, flat)
			simd.Mul(r[d], reg, r[ins.arg[0]])
			round(r[d], ins.half)
		} else {
			ins.apply(r[d], &r)
		}
	}
	for k, q := range p.out[len(p.outRef):] {
		sums.add(k, r[q], flat)
	}
	for j := range p.outRef {
		if !p.stored[j] {
			p.outRef[j].store(r[p.out[j]], at[ni+j])
		}
	}
}

// apply runs the instruction on registers.
func (ins *instr) apply(dst []float32, r *[graph.MaxRegisters][]float32) {
	var y, z []float32
	if ins.narg > 1 {
		y = r[ins.arg[1]]
	}
	if ins.narg > 2 {
		z = r[ins.arg[2]]
	}
	ins.run(dst, r[ins.arg[0]], y, z)
	round(dst, ins.half)
}

// round rounds x to the precision of d.
func round(x []float32, d graph.DType) {
	switch d {
	case graph.BF16:
		simd.RoundBF16(x, x)
	case graph.F16:
		simd.RoundF16(x, x)
	}
}

// mask writes the factors of the elements from flat on.
func (d *dropout) mask(reg []float32, flat int) {
	simd.DropoutMask(reg, d.op.Seed, randomStream(d.op.Stream, d.counter), d.op.First+uint64(flat), float32(1-d.op.P))
}

// randomStream is the Philox stream of random operation number stream in the
// run that counter numbers; see [graph.Dropout].
func randomStream(stream uint32, counter ref) uint64 {
	return philoxStream(stream, uint32(counter.i32()[0]))
}

// philoxStream is what selects the random numbers of a stream in the run, or in the update,
// of that number.
func philoxStream(stream, run uint32) uint64 { return uint64(run)<<32 | uint64(stream) }

func (p *program) operand(i int) *operand {
	if i < len(p.in) {
		return &p.in[i]
	}
	return &p.outRef[i-len(p.in)]
}

// counterOnly reports whether input i of bd is only the run counter of dropouts.
func counterOnly(bd *graph.Body, i int) bool {
	used := false
	for _, s := range bd.Instrs {
		for j, a := range s.Arg {
			if a != i {
				continue
			}
			if _, drop := s.Op.(graph.Dropout); !drop || j != 1 {
				return false
			}
			used = true
		}
	}
	return used
}
