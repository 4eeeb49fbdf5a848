package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Grouped matmuls have sizes that are known only at run time: a task packs a strip of one
// group's matrix, once, and multiplies all rows of the group by it, so the work is
// proportional to the rows that exist.

// group returns the rows [first, last) of group e.
func group(offsets ref, e int) (first, last int) {
	return int(offsets.i32()[e]), int(offsets.i32()[e+1])
}

// strip returns about how many columns of a matrix of k rows a task packs: a quarter of
// the second-level cache, and enough tasks to share out.
func strip(u gemm.Micro, k, n, groups, workers int) int {
	cols := max(1, patchBytes/(k*4)/u.Cols())
	if even := n * groups / (4 * workers) / u.Cols(); even < cols {
		cols = max(1, even)
	}
	return min(cols*u.Cols(), alignUp(n, u.Cols()))
}

// groupRows is how many rows are multiplied at a time.
const groupRows = 192

func (c *compiler) groupedMatmul(n *graph.Node, op graph.GroupedMatMul) ([]phase, error) {
	xv, wv, yv := n.In[0], n.In[1], n.Out[0]
	x, w, offsets, y := c.ref(xv), c.ref(wv), c.ref(n.In[2]), c.ref(yv)
	var bias ref
	if op.Bias {
		bias = c.ref(n.In[3])
	}
	groups, inner, out := wv.Shape()[0], xv.Shape()[1], yv.Shape()[1]
	u := gemm.NewMicro(matmulISA, word(xv.DType(), wv.DType()), inner)
	cut := strip(u, inner, out, groups, c.workers)
	cuts := (out + cut - 1) / cut
	d := yv.DType()
	packed := alignUp(u.PackedBytes(inner, cut), 64)
	block := packed + alignUp(u.ScratchBytes(inner), 64)
	product := block + alignUp(u.BlockBytes(groupRows, inner, gemmType(xv.DType()), false), 64)
	c.need(0, product+groupRows*cut*4)
	code := c.code
	ld := wv.Shape()[2]
	run := func(task, worker int) {
		e, col := task/cuts, task%cuts*cut
		first, last := group(offsets, e)
		if first == last {
			return
		}
		cols, mem := min(cut, out-col), code.worker(worker)
		b := gemm.Matrix{Type: gemmType(wv.DType()), Stride: ld, Trans: op.Trans}
		at := e*inner*out + col
		if op.Trans {
			at = (e*out + col) * inner
		}
		b.Data = unsafe.Add(w.ptr(), at*int(wv.DType().Size()))
		right := u.PackB(inner, cols, &b, mem[:packed], mem[packed:block])
		for i := first; i < last; i += groupRows {
			rows := min(groupRows, last-i)
			a := gemm.Matrix{Data: unsafe.Add(x.ptr(), i*inner*int(xv.DType().Size())), Type: gemmType(xv.DType()), Stride: inner}
			left := u.PackA(rows, inner, &a, mem[block:])
			c, ldc := (*float32)(unsafe.Pointer(&mem[product])), cut
			if d == graph.F32 {
				c, ldc = &y.f32()[i*out+col], out
			}
			u.Mul(rows, cols, inner, &left, right, c, ldc, false)
			for r := range rows {
				row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(c), 4*r*ldc)), cols)
				if op.Bias {
					simd.Add(row, row, bias.f32()[e*out+col:e*out+col+cols])
				}
				putPart(y, d, (i+r)*out+col, row)
			}
		}
	}
	size := int(d.Size())
	rest := func(_, _ int) { // rows of no group
		first, _ := group(offsets, 0)
		_, last := group(offsets, groups-1)
		clear(y.bytes(0, first*out*size))
		clear(y.bytes(last*out*size, (y.n-last*out)*size))
	}
	return []phase{{groups * cuts, run}, {1, rest}}, nil
}

func (c *compiler) groupedOuter(n *graph.Node) ([]phase, error) {
	av, bv := n.In[0], n.In[1]
	a, b, offsets, y := c.ref(av), c.ref(bv), c.ref(n.In[2]), c.ref(n.Out[0])
	groups, rows, out := n.Out[0].Shape()[0], av.Shape()[1], bv.Shape()[1]
	u := gemm.NewMicro(matmulISA, word(av.DType(), bv.DType()))
	cut := strip(u, groupRows, out, groups, c.workers)
	cuts := (out + cut - 1) / cut
	packed := alignUp(u.PackedBytes(groupRows, cut), 64)
	block := packed + alignUp(u.ScratchBytes(groupRows), 64)
	c.need(0, block+u.BlockBytes(rows, groupRows, gemmType(av.DType()), true))
	code := c.code
	return []phase{{groups * cuts, func(task, worker int) {
		e, col := task/cuts, task%cuts*cut
		first, last := group(offsets, e)
		cols, mem := min(cut, out-col), code.worker(worker)
		sum := y.f32()[e*rows*out : (e+1)*rows*out]
		if first == last {
			for r := range rows {
				clear(sum[r*out+col : r*out+col+cols])
			}
		}
		for i := first; i < last; i += groupRows {
			k := min(groupRows, last-i)
			left := gemm.Matrix{Data: unsafe.Add(a.ptr(), i*rows*int(av.DType().Size())), Type: gemmType(av.DType()), Stride: rows, Trans: true}
			right := gemm.Matrix{Data: unsafe.Add(b.ptr(), (i*out+col)*int(bv.DType().Size())), Type: gemmType(bv.DType()), Stride: out}
			panels := u.PackB(k, cols, &right, mem[:packed], mem[packed:block])
			lhs := u.PackA(rows, k, &left, mem[block:])
			u.Mul(rows, cols, k, &lhs, panels, &sum[col], out, i > first)
		}
	}}}, nil
}

func (c *compiler) groupedSum(n *graph.Node) ([]phase, error) {
	x, offsets, y := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	groups, width, d := n.Out[0].Shape()[0], n.Out[0].Shape()[1], n.In[0].DType()
	cuts := (width + tile - 1) / tile
	code := c.code
	c.need(0, tile*4)
	return []phase{{groups * cuts, func(task, worker int) {
		e, col := task/cuts, task%cuts*tile
		first, last := group(offsets, e)
		reg := floats(code.worker(worker), 0, tile)
		sum := y.f32()[e*width+col : e*width+min(col+tile, width)]
		clear(sum)
		for i := first; i < last; i++ {
			simd.Add(sum, sum, rowPart(x, d, i*width+col, i*width+col+len(sum), reg))
		}
	}}}, nil
}
