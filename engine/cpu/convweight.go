package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/cpu/simd"
	"github.com/snug-ml/snug/engine/graph"
)

// weightGrad is the gradient of a convolution's weights: the transposed
// patches times dy, a sum over all positions. Positions are cut into fixed
// sets, whose sums [taps*C, O] are added in order; within a set a task has a
// few runs of taps.
type weightGrad struct {
	*patches
	u          gemm.Micro
	dy         ref
	dyType     graph.DType
	rows, out  int
	set, sets  int
	parts      [][2]int // runs [from, to) of a task
	tile       int      // rows laid out at a time
	block, pan int      // offsets in the scratch: packed left and right operands
}

// sumBytes bounds the sums of all sets.
const sumBytes = 4 << 20

func (c *compiler) conv2dWeight(n *graph.Node, op graph.Conv2DWeight) ([]phase, error) {
	x, dy := n.In[0], n.In[1]
	p := c.forward(op.Conv, x, dy.Shape(), op.KH, op.KW)
	if op.Conv.Depthwise() {
		return c.depthwiseWeight(n, p)
	}
	g := &weightGrad{
		patches: p, u: gemm.NewMicro(products, word(x.DType(), dy.DType())), dy: c.ref(dy), dyType: dy.DType(),
		rows: dy.Shape().Rows(), out: dy.Shape()[3],
	}
	// A run of many channels is a task; small ones share the reading of dy.
	const enough = 128
	most := 0
	for from := 0; from < len(p.runs); {
		cols, to := 0, from
		for to < len(p.runs) && (to == from || cols+p.runs[to].n*p.ch <= enough) {
			cols += p.runs[to].n * p.ch
			to++
		}
		g.parts = append(g.parts, [2]int{from, to})
		most, from = max(most, cols), to
	}
	size := pitch(most, p.dtype)
	g.tile = max(32, min(256, patchBytes/size)) &^ 1
	bytes := p.cols() * g.out * 4
	g.sets = max(1, min(16, sumBytes/bytes, g.rows/g.tile))
	g.set = alignUp((g.rows+g.sets-1)/g.sets, 2)
	g.sets = (g.rows + g.set - 1) / g.set
	g.block = alignUp(g.tile*size, 64)
	g.pan = g.block + alignUp(g.u.BlockBytes(most, g.tile, gemmType(p.dtype), true), 64)
	c.need(g.sets*bytes, g.pan+g.u.PackedBytes(g.tile, g.out)+g.u.ScratchBytes(g.tile))
	code, dw := c.code, c.ref(n.Out[0])
	kk := op.KH * op.KW
	tasks, per := chunks(p.cols(), max(1, grain/g.out))
	return []phase{{g.sets * len(g.parts), func(task, w int) {
		part := g.parts[task%len(g.parts)]
		g.sum(task/len(g.parts), part[0], part[1], code.m.shared, code.worker(w))
	}}, {tasks, func(task, _ int) {
		for k := task * per; k < min((task+1)*per, p.cols()); k++ {
			total := g.sums(code.m.shared, 0, k)
			for s := 1; s < g.sets; s++ {
				simd.Add(total, total, g.sums(code.m.shared, s, k))
			}
			first := k%p.ch*kk + p.taps[k/p.ch].at
			out := dw.f32()
			for o, v := range total {
				out[first+o*p.ch*kk] = v
			}
		}
	}}}, nil
}

// sums is row k of set s.
func (g *weightGrad) sums(shared []byte, s, k int) []float32 {
	return floats(shared, (s*g.cols()+k)*g.out*4, g.out)
}

// sum does runs [r0, r1) of one set.
func (g *weightGrad) sum(set, r0, r1 int, shared, mem []byte) {
	first, cols := 0, 0
	for i, r := range g.runs[:r1] {
		if i < r0 {
			first += r.n * g.ch
		} else {
			cols += r.n * g.ch
		}
	}
	pitch, size := pitch(cols, g.dtype), int(g.dtype.Size())
	sums := g.sums(shared, set, first)
	last := min((set+1)*g.set, g.rows)
	for i := set * g.set; i < last; i += g.tile {
		n := min(g.tile, last-i)
		a := gemm.Matrix{Type: gemmType(g.dtype), Trans: true}
		if g.plain() {
			a.Data, a.Stride = unsafe.Add(g.src.ptr(), i*g.ch*size), g.ch
		} else {
			g.lay(mem, pitch, i, n, r0, r1)
			a.Data, a.Stride = unsafe.Pointer(&mem[0]), pitch/size
		}
		var left gemm.Block
		if g.u.Word() == gemm.F32 && a.Type == gemm.F32 {
			left = g.u.ViewF32(&a)
		} else {
			left = g.u.PackA(cols, n, &a, mem[g.block:])
		}
		b := gemm.Matrix{Data: unsafe.Add(g.dy.ptr(), i*g.out*int(g.dyType.Size())), Type: gemmType(g.dyType), Stride: g.out}
		right, ok := g.u.ViewB(g.out, &b)
		if !ok {
			packed := g.pan + g.u.PackedBytes(g.tile, g.out)
			right = g.u.PackB(n, g.out, &b, mem[g.pan:packed], mem[packed:])
		}
		g.u.Mul(cols, g.out, n, &left, right, &sums[0], g.out, i > set*g.set)
	}
}
