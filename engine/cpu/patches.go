package cpu

import (
	"slices"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
)

// patches views images [count,h,w,ch] as a matrix: a row for each of the high x
// wide positions of each image, made of the pixels under the taps of a convolution
// there (zeros outside the image). The matrix never exists: with the border filled
// in (see frame), the pixels of neighboring taps are adjacent, and those of the
// next position a step further.
type patches struct {
	src         ref
	dtype       graph.DType
	count       int
	h, w, ch    int
	high, wide  int
	step        [2]int // pixels from position to position, down and across
	taps        []tap  // in the order of the matrix's columns
	runs        []tap  // the same, neighbors in a row joined
	top, bottom int    // the rows that taps reach
	left, right int    // and the columns
}

// tap is a pixel (or n neighbors) relative to a position times step; at is
// its place in the kernel, i*KW+j.
type tap struct{ y, x, at, n int }

// join sorts the taps by row and column and joins neighbors.
func (p *patches) join() {
	slices.SortFunc(p.taps, func(a, b tap) int {
		if a.y != b.y {
			return a.y - b.y
		}
		return a.x - b.x
	})
	p.runs = p.runs[:0]
	for i, t := range p.taps {
		if k := len(p.runs) - 1; k >= 0 && p.runs[k].y == t.y && p.runs[k].x+p.runs[k].n == t.x {
			p.runs[k].n++
		} else {
			p.runs = append(p.runs, tap{t.y, t.x, t.at, 1})
		}
		if i == 0 {
			p.top, p.left, p.right = t.y, t.x, t.x
		}
		p.bottom, p.left, p.right = t.y, min(p.left, t.x), max(p.right, t.x)
	}
}

// flatten makes one row of all positions where the matrix is the images themselves.
func (p *patches) flatten() {
	if len(p.taps) == 1 && p.step == [2]int{1, 1} && p.taps[0].y == 0 && p.taps[0].x == 0 && p.high == p.h && p.wide == p.w {
		p.w *= p.count * p.h
		p.count, p.h, p.high, p.wide = 1, 1, 1, p.w
	}
}

// forward returns the patches that a convolution of x multiplies.
func (c *compiler) forward(op graph.Conv2D, x *graph.Value, y graph.Shape, kh, kw int) *patches {
	s := x.Shape()
	p := &patches{
		src: c.ref(x), dtype: x.DType(), count: s[0], h: s[1], w: s[2], ch: s[3],
		high: y[1], wide: y[2], step: op.Stride,
	}
	for i := range kh {
		for j := range kw {
			p.taps = append(p.taps, tap{i*op.Dilation[0] - op.Pad[0], j*op.Dilation[1] - op.Pad[2], i*kw + j, 1})
		}
	}
	p.join()
	return p
}

// residue is the set of pixels (first + stride*i) of an image whose gradient comes from
// the same taps.
type residue struct {
	patches
	first [2]int
}

// backward returns the patches of dy that a gradient of the image [H,W] sums, one for
// each residue of the strides.
func (c *compiler) backward(op graph.Conv2D, dy *graph.Value, x graph.Shape, kh, kw int) []*residue {
	s := dy.Shape()
	var all []*residue
	for r0 := range min(op.Stride[0], x[1]) {
		for r1 := range min(op.Stride[1], x[2]) {
			r := &residue{first: [2]int{r0, r1}, patches: patches{
				src: c.ref(dy), dtype: dy.DType(), count: s[0], h: s[1], w: s[2], ch: s[3], step: [2]int{1, 1},
				high: (x[1] - r0 + op.Stride[0] - 1) / op.Stride[0], wide: (x[2] - r1 + op.Stride[1] - 1) / op.Stride[1],
			}}
			for i := range kh {
				for j := range kw {
					y, x := r0+op.Pad[0]-i*op.Dilation[0], r1+op.Pad[2]-j*op.Dilation[1]
					if y%op.Stride[0] == 0 && x%op.Stride[1] == 0 {
						r.taps = append(r.taps, tap{y / op.Stride[0], x / op.Stride[1], i*kw + j, 1})
					}
				}
			}
			r.join()
			all = append(all, r)
		}
	}
	return all
}

// inner is the length of a row.
func (p *patches) inner() int { return len(p.taps) * p.ch }

// pixel returns the address of a pixel.
func (p *patches) pixel(b, y, x int) unsafe.Pointer {
	return unsafe.Add(p.src.ptr(), ((b*p.h+y)*p.w+x)*p.ch*int(p.dtype.Size()))
}

// grid divides the positions of images into rectangles.
type grid struct {
	*patches
	rows, cols   int // of a rectangle, less at the edges
	down, across int // rectangles of an image
}

// rect is a rectangle of positions of image b.
type rect struct{ b, i, j, rows, cols int }

// grid makes rectangles of at most most positions, at least tasks of them if
// there are as many rows, whose frames of elements of type d take no more than
// patchBytes if possible. They are whole rows or a part of one, so that their
// positions are contiguous.
func (p *patches) grid(most, tasks int, d graph.DType) grid {
	g := grid{patches: p, across: (p.wide + most - 1) / most}
	g.cols = (p.wide + g.across - 1) / g.across
	pitch := p.framePitch(g.cols, d)
	g.rows = max(1, min(p.high, most/g.cols, (patchBytes/pitch-p.bottom+p.top-1)/p.step[0]+1))
	if n := p.count * g.across; n*((p.high+g.rows-1)/g.rows) < tasks {
		g.rows = max(1, min(g.rows, p.high*n/tasks))
	}
	g.down = (p.high + g.rows - 1) / g.rows
	g.rows = (p.high + g.down - 1) / g.down
	g.down = (p.high + g.rows - 1) / g.rows
	return g
}

func (g *grid) rects() int { return g.patches.count * g.down * g.across }

// positions returns the most positions that a rectangle has.
func (g *grid) positions() int { return g.rows * g.cols }

// at returns the k-th rectangle.
func (g *grid) at(k int) rect {
	r := rect{b: k / (g.down * g.across), i: k / g.across % g.down * g.rows, j: k % g.across * g.cols}
	r.rows, r.cols = min(g.rows, g.high-r.i), min(g.cols, g.wide-r.j)
	return r
}

// first returns the number of a rectangle's first position.
func (g *grid) first(r rect) int { return (r.b*g.high+r.i)*g.wide + r.j }

// frame is the pixels that the taps of a rectangle reach, zeros outside the image:
// elements of type dtype, rows pitch bytes apart.
type frame struct {
	*patches
	data  unsafe.Pointer
	dtype graph.DType
	pitch int
}

// reach is the number of rows and columns of pixels that the taps of rows by cols
// positions span.
func (p *patches) reach(rows, cols int) (high, wide int) {
	return (rows-1)*p.step[0] + p.bottom - p.top + 1, (cols-1)*p.step[1] + p.right - p.left + 1
}

// framePitch is the bytes of a row of a copied frame; rows do not share cache sets.
func (p *patches) framePitch(cols int, d graph.DType) int {
	_, wide := p.reach(1, cols)
	return alignUp(wide*p.ch*int(d.Size()), 128) + 64
}

// frameBytes is the scratch for frames of a grid's rectangles; 0 if frames are parts of
// the images, see frame.
func (g *grid) frameBytes(d graph.DType) int {
	if g.inside(d) {
		return 0
	}
	high, _ := g.reach(g.rows, g.cols)
	return alignUp(high*g.framePitch(g.cols, d), 64)
}

// inside reports whether no tap reaches over the border of images of type d.
func (p *patches) inside(d graph.DType) bool {
	return p.dtype == d && p.top >= 0 && p.left >= 0 &&
		(p.high-1)*p.step[0]+p.bottom < p.h && (p.wide-1)*p.step[1]+p.right < p.w
}

// frame returns the frame of a rectangle, as elements of the images' type or float32.
func (g *grid) frame(r rect, d graph.DType, mem []byte) frame {
	y, x := r.i*g.step[0]+g.top, r.j*g.step[1]+g.left
	if g.inside(d) {
		return frame{g.patches, g.pixel(r.b, y, x), d, g.w * g.ch * int(d.Size())}
	}
	f := frame{g.patches, unsafe.Pointer(&mem[0]), d, g.framePitch(g.cols, d)}
	high, cols := g.reach(r.rows, r.cols)
	from, to := min(max(0, -x), cols), max(0, min(cols, g.w-x))
	px := g.ch * int(d.Size())
	for k := range high {
		row := unsafe.Slice((*byte)(unsafe.Add(f.data, k*f.pitch)), cols*px)
		if y+k < 0 || y+k >= g.h || from >= to {
			clear(row)
			continue
		}
		clear(row[:from*px])
		f.fill(row[from*px:to*px], g.pixel(r.b, y+k, x+from))
		clear(row[to*px:])
	}
	return f
}

// fill copies pixels of the images to dst, elements of the frame's type.
func (f *frame) fill(dst []byte, src unsafe.Pointer) {
	n := len(dst) / int(f.dtype.Size())
	if f.dtype == f.patches.dtype {
		copy(dst, unsafe.Slice((*byte)(src), len(dst)))
		return
	}
	widen(unsafe.Slice((*float32)(unsafe.Pointer(&dst[0])), n), unsafe.Slice((*uint16)(src), n), f.patches.dtype)
}

// rows returns the pixels under a run of taps along row i of the rectangle: one row of
// the matrix for each position.
func (f *frame) rows(i int, run tap) gemm.Matrix {
	at := (i*f.step[0]+run.y-f.top)*f.pitch + (run.x-f.left)*f.ch*int(f.dtype.Size())
	return gemm.Matrix{Data: unsafe.Add(f.data, at), Type: gemmType(f.dtype), Stride: f.step[1] * f.ch}
}
