package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// weightGrad is the gradient of a convolution's weights: the transposed patches times dy,
// a sum over all positions. The rectangles of positions are cut into fixed sets, whose
// sums [taps*C, O] are added in order; within a set a task handles a few runs of taps.
type weightGrad struct {
	*planes // for few channels; otherwise only its grid is used
	u       gemm.Micro
	dy      operand
	out     int
	set     int      // rectangles per set
	sets    int      // number of sets
	parts   [][2]int // runs [from, to) of each task
	// Offsets in the scratch: the packed left and right operands.
	left, right int
}

const (
	// sumBytes bounds the sums of all sets.
	sumBytes = 6 << 20
	// partBytes is the part of the second-level cache that the sums of a task may take.
	partBytes = 384 << 10
	// packedCols is how many columns of the patches are packed at a time.
	packedCols = 192
	// packedPositions is about how many positions are packed at a time; bfloat16 packs
	// twice as many.
	packedPositions = 256
)

func (c *compiler) conv2dGradWeight(n *graph.Node, op graph.Conv2DGradWeight) ([]phase, error) {
	x, dy := n.In[0], n.In[1]
	p := c.forward(op.Conv, x, dy.Shape(), op.KH, op.KW)
	if op.Conv.Depthwise() {
		return c.depthwiseWeight(n, p)
	}
	p.flatten()
	g := &weightGrad{dy: operand{ref: c.ref(dy), dtype: dy.DType()}, out: dy.Shape()[3]}
	few := asPlanes(p.ch, len(p.taps))
	if few {
		g.u, g.planes = planeMicro(x.DType(), dy.DType()), p.planes(1, 1)
		g.left = alignUp(g.need, 64)
		g.right = g.left
		if g.u.Word() == gemm.BF16 {
			g.right += alignUp(g.u.BlockBytes(g.inner(), alignUp(g.positions(), g.u.Unit()), gemm.F32, false), 64)
		}
		c.need(0, g.right+g.u.PackedBytes(g.positions(), g.out))
	} else {
		g.u = gemm.NewMicro(matmulISA, word(x.DType(), dy.DType()))
		most := packedPositions
		if g.u.Word() == gemm.BF16 {
			most *= 2
		}
		g.planes = &planes{grid: p.grid(most, 1, p.dtype)}
		words := g.rows * g.u.Words(g.cols)
		g.left = g.frameBytes(p.dtype)
		g.right = g.left + alignUp(g.u.BlockBytes(packedCols, words*g.u.Elems(), gemmType(p.dtype), true), 64)
		c.need(0, g.right+g.u.PackedBytes(words*g.u.Elems(), g.out))
	}
	bytes := p.inner() * g.out * 4
	sets := 16
	for sets > 1 && (sets > g.rects() || sets*bytes > sumBytes) {
		sets /= 2
	}
	g.set = (g.rects() + sets - 1) / sets
	g.sets = (g.rects() + g.set - 1) / g.set
	c.need(g.sets*bytes, 0)
	for from := 0; from < len(p.runs); {
		cols, to := 0, from
		for to < len(p.runs) && (to == from || few || (cols+p.runs[to].n*p.ch)*g.out*4 <= partBytes) {
			cols += p.runs[to].n * p.ch
			to++
		}
		g.parts = append(g.parts, [2]int{from, to})
		from = to
	}
	code, dw := c.code, c.ref(n.Out[0])
	return []phase{{g.sets * len(g.parts), func(task, w int) {
		set, part := task/len(g.parts), g.parts[task%len(g.parts)]
		for k := set * g.set; k < min((set+1)*g.set, g.rects()); k++ {
			if few {
				g.addPlanes(set, k, code.m.shared, code.worker(w))
			} else {
				g.add(set, k, part[0], part[1], code.m.shared, code.worker(w))
			}
		}
	}}, g.total(code, dw, op.KH*op.KW)}, nil
}

// sums returns row k of the sums of set s.
func (g *weightGrad) sums(shared []byte, s, k int) []float32 {
	return floats(shared, (s*g.inner()+k)*g.out*4, g.out)
}

// line returns dy from row i of a rectangle on.
func (g *weightGrad) line(r rect, i int) gemm.Matrix {
	at := (g.first(r) + i*g.wide) * g.out * int(g.dy.dtype.Size())
	return gemm.Matrix{Data: unsafe.Add(g.dy.ptr(), at), Type: gemmType(g.dy.dtype), Stride: g.out}
}

// add adds rectangle k to runs [r0, r1) of a set. Each line of positions starts with a
// new word in the packed operands.
func (g *weightGrad) add(set, k, r0, r1 int, shared, mem []byte) {
	r := g.at(k)
	f := g.frame(r, g.dtype, mem)
	line := g.u.Words(r.cols)
	words := r.rows * line
	var right gemm.Panels
	for i := range r.rows {
		dy := g.line(r, i)
		right = g.u.PackPartB(r.cols, g.out, &dy, i*line, words, mem[g.right:])
	}
	col := 0
	for n, run := range g.runs[:r1] {
		cols := run.n * g.ch
		for at := 0; at < cols && n >= r0; at += packedCols {
			var left gemm.Block
			some := min(packedCols, cols-at)
			for i := range r.rows {
				a := f.rows(i, run)
				a.Trans, a.Data = true, unsafe.Add(a.Data, at*int(g.dtype.Size()))
				left = g.u.PackPartA(some, r.cols, &a, i*line, words, mem[g.left:])
			}
			g.u.Mul(some, g.out, words*g.u.Elems(), &left, right, &g.sums(shared, set, col+at)[0], g.out, k > set*g.set)
		}
		col += cols
	}
}

// addPlanes adds rectangle k of few channels to a set.
func (g *weightGrad) addPlanes(set, k int, shared, mem []byte) {
	r := g.at(k)
	a, dy, positions := g.lay(r, mem), g.line(r, 0), r.rows*r.cols
	var left gemm.Block
	if g.u.Word() == gemm.F32 {
		left = g.u.ViewA(&a)
	} else {
		left = g.u.PackA(g.inner(), alignUp(positions, g.u.Unit()), &a, mem[g.left:])
	}
	right := g.u.ViewOrPackB(positions, g.out, &dy, mem[g.right:])
	g.u.Mul(g.inner(), g.out, positions, &left, right, &g.sums(shared, set, 0)[0], g.out, k > set*g.set)
}

// total adds up the sets and rearranges the sums [taps*C, O] in the order of the weights,
// [O, C, taps], some channels per task.
func (g *weightGrad) total(code *Code, dw ref, kk int) phase {
	const channels, outs = 8, 16 // the outputs in a cache line
	return phase{(g.ch + channels - 1) / channels, func(task, _ int) {
		first := task * channels
		last := min(g.ch, first+channels)
		for t := range g.taps {
			for k := t*g.ch + first; k < t*g.ch+last; k++ {
				total := g.sums(code.m.shared, 0, k)
				for s := 1; s < g.sets; s++ {
					simd.Add(total, total, g.sums(code.m.shared, s, k))
				}
			}
		}
		total, out := g.sums(code.m.shared, 0, 0), dw.f32()
		total = unsafe.Slice(&total[0], g.inner()*g.out)
		for o := 0; o < g.out; o += outs {
			for i := o; i < min(o+outs, g.out); i++ {
				for c := first; c < last; c++ {
					for t, tap := range g.taps {
						out[(i*g.ch+c)*kk+tap.at] = total[(t*g.ch+c)*g.out+i]
					}
				}
			}
		}
	}}
}
