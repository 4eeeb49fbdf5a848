package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// epilogue runs an elementwise body over the finished blocks of a matmul. Register 0 is
// the matmul's result; result 0 replaces it.
type epilogue struct {
	p       *program
	code    *Code
	from    int         // byte offset of the registers in the worker's scratch
	end     int         // after them
	product graph.DType // the format that the matmul's result is first rounded to
	// plain means that nothing is converted: instructions may work on memory directly.
	plain   bool
	workers []workerEpilogue
}

// workerEpilogue is the epilogue as one worker runs it.
type workerEpilogue struct {
	*epilogue
	w       int
	streams []gemm.Stream
}

// epilogue compiles bd for the matmul n. in are the body's operands, the first of which
// is the matmul's result.
func (c *compiler) epilogue(n *graph.Node, bd *graph.Body, in []*graph.Value, product graph.DType, from int) (*epilogue, error) {
	dims := n.Out[0].Shape()
	p, err := c.tileProgram(bd, in, n.Out[:len(bd.Results)], dims)
	if err != nil {
		return nil, err
	}
	e := &epilogue{p: p, code: c.code, from: from, end: from + p.scratchBytes(), product: product}
	e.plain = product == graph.F32 && n.Out[0].DType() == graph.F32
	for _, o := range p.in[1:] {
		e.plain = e.plain && (o.dtype == graph.F32 && o.stride[1] == 1 || o.dtype == graph.Invalid)
	}
	if k := p.out[0] - len(p.in); k >= 0 && n.Out[0].DType() == graph.F32 {
		// The matmul's result is where result 0 belongs, and must stay while it is read.
		p.dest[k], p.stored[0] = toRegister, false
		if !p.reads(k+1, 0) && !p.results(0) {
			p.dest[k], p.stored[0] = 0, true
		}
	}
	for w := range max(c.workers, 1) {
		e.workers = append(e.workers, workerEpilogue{e, w, make([]gemm.Stream, 0, len(p.in)+len(p.out))})
	}
	return e, nil
}

// results reports whether register q is a result.
func (p *program) results(q int) bool {
	for _, r := range p.out {
		if r == q {
			return true
		}
	}
	return false
}

func (e *epilogue) forWorker(w int) gemm.Epilogue { return &e.workers[w] }

// Streams implements [gemm.Epilogue].
func (e *workerEpilogue) Streams() []gemm.Stream {
	e.streams = e.streams[:0]
	add := func(o *operand) {
		if o.dtype != graph.Invalid && o.stride[0] != 0 && o.stride[1] == 1 {
			size := int(o.dtype.Size())
			e.streams = append(e.streams, gemm.Stream{Data: o.ptr(), Pitch: o.stride[0] * size, Size: size})
		}
	}
	for q := 1; q < len(e.p.in); q++ {
		add(&e.p.in[q])
	}
	for j := range e.p.outRef {
		if j > 0 || e.p.outRef[j].dtype != graph.F32 { // otherwise it replaces the matmul's result
			add(&e.p.outRef[j])
		}
	}
	return e.streams
}

// enough is the number of elements from which an instruction is worth running on one row.
const enough = 128

// Tile implements [gemm.Epilogue]. The body runs on as many rows at once as fill the
// registers, since starting an instruction costs as much as processing a hundred
// elements; but it runs on one row, in place, if nothing needs converting.
func (e *workerEpilogue) Tile(i0, i1, j0, j1 int, acc *float32, stride int) (stored bool) {
	var g rowGroup
	g.program, g.product, g.acc, g.stride = e.p, e.product, acc, stride
	g.regs = floats(e.code.worker(e.w), e.from, e.p.regs*(e.p.size+gap))
	g.i0, g.j0 = i0, j0
	for j := j0; j < j1; j += tile {
		g.j, g.width = j, min(tile, j1-j)
		rows := tile / g.width
		if e.plain && g.width >= enough {
			rows = 1
		}
		g.same(rows)
		for i := i0; i < i1; i += rows {
			g.i, g.rows = i, min(rows, i1-i)
			g.run(rows == 1)
		}
	}
	return e.p.outRef[0].dtype != graph.F32
}

// rowGroup is some rows of a block being processed by the program.
type rowGroup struct {
	*program
	product graph.DType
	regs    []float32
	r       [graph.MaxRegisters][]float32
	acc     *float32 // the matmul's result at row i0, column j0
	stride  int
	i0, j0  int
	// What is being computed: rows i.. by columns j..
	i, j, rows, width int
}

// reg is the register q.
func (g *rowGroup) reg(q int) []float32 { return g.program.reg(g.regs, q, g.rows*g.width) }

// row is row k of a register that holds all rows of the group.
func (g *rowGroup) row(reg []float32, k int) []float32 { return reg[k*g.width : (k+1)*g.width] }

// tileRow returns row k of the group in the matmul's tile.
func (g *rowGroup) tileRow(k int) []float32 {
	at := (g.i+k-g.i0)*g.stride + g.j - g.j0
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(g.acc), at*4)), g.width)
}

// at is the offset of row k of the group in operand o.
func (g *rowGroup) at(o *operand, k int) int { return (g.i+k)*o.stride[0] + g.j*o.stride[1] }

// same loads the operands that are the same in all rows.
func (g *rowGroup) same(rows int) {
	g.i, g.rows = 0, rows
	for q := 1; q < len(g.in); q++ {
		o := &g.in[q]
		if o.dtype == graph.Invalid || o.stride[0] != 0 {
			continue
		}
		reg := g.reg(q)
		first := o.load(g.row(reg, 0), g.at(o, 0), o.stride[1])
		g.r[q] = first
		if rows > 1 {
			for k := range rows {
				copy(g.row(reg, k), first)
			}
			g.r[q] = reg
		}
	}
}

// run computes the rows of the group; with direct, the only row, in place.
func (g *rowGroup) run(direct bool) {
	n := g.rows * g.width
	g.take(direct)
	for q := 1; q < len(g.in); q++ {
		o := &g.in[q]
		switch {
		case o.dtype == graph.Invalid:
		case o.stride[0] == 0:
			g.r[q] = g.r[q][:n] // loaded by same
		case direct:
			g.r[q] = o.load(g.reg(q), g.at(o, 0), o.stride[1])
		default:
			g.r[q] = g.reg(q)
			for k := range g.rows {
				row := g.row(g.r[q], k)
				if src := o.load(row, g.at(o, k), o.stride[1]); &src[0] != &row[0] {
					copy(row, src)
				}
			}
		}
	}
	for k := range g.code {
		d := len(g.in) + k
		dst := g.reg(d)
		if j := g.dest[k]; direct && j == 0 {
			dst = g.tileRow(0)
		} else if direct && j != toRegister {
			o := &g.outRef[j]
			dst = unsafe.Slice((*float32)(unsafe.Add(o.ptr(), g.at(o, 0)*4)), g.width)
		}
		g.r[d] = dst
		ins := &g.code[k]
		if ins.drop == nil {
			ins.apply(dst, &g.r)
			continue
		}
		mask := g.reg(d)
		for q := range g.rows {
			ins.drop.mask(g.row(mask, q), g.at(&g.outRef[0], q))
		}
		simd.Mul(dst, mask, g.r[ins.arg[0]])
		round(dst, ins.half)
	}
	g.put(direct)
}

// take sets register 0 to the matmul's result, rounded to its format.
func (g *rowGroup) take(direct bool) {
	if direct && g.product == graph.F32 {
		g.r[0] = g.tileRow(0)
		return
	}
	g.r[0] = g.reg(0)
	for k := range g.rows {
		row := g.row(g.r[0], k)
		switch g.product {
		case graph.BF16:
			simd.RoundBF16(row, g.tileRow(k))
		case graph.F16:
			simd.RoundF16(row, g.tileRow(k))
		default:
			copy(row, g.tileRow(k))
		}
	}
}

// put stores the results that are not where they belong, the one that replaces the
// matmul's result last.
func (g *rowGroup) put(direct bool) {
	for j := len(g.out) - 1; j >= 0; j-- {
		if direct && g.stored[j] {
			continue
		}
		o, reg := &g.outRef[j], g.r[g.out[j]]
		for k := range g.rows {
			o.store(g.row(reg, k), g.at(o, k))
		}
	}
}
