package cpu

import (
	"slices"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
)

// patches sees pictures [B,h,w,ch] as a matrix: a row for each of the high x
// wide positions of each picture, made of the pixels that the taps of a
// convolution fall on there (zeros outside the picture). The matrix never
// exists as a whole; rows are laid out where they are multiplied.
type patches struct {
	src        ref
	dtype      graph.DType
	h, w, ch   int
	high, wide int
	step       [2]int // pixels from position to position, down and across
	taps       []tap  // in the order of the matrix's columns
	runs       []tap  // the same, neighbours in a row joined
}

// tap is a pixel (or n neighbours) relative to a position times step; at is
// its place in the kernel, i*KW+j.
type tap struct{ y, x, at, n int }

// join sorts the taps by row and column and joins neighbours.
func (p *patches) join() {
	slices.SortFunc(p.taps, func(a, b tap) int {
		if a.y != b.y {
			return a.y - b.y
		}
		return a.x - b.x
	})
	p.runs = p.runs[:0]
	for _, t := range p.taps {
		if k := len(p.runs) - 1; k >= 0 && p.runs[k].y == t.y && p.runs[k].x+p.runs[k].n == t.x {
			p.runs[k].n++
		} else {
			p.runs = append(p.runs, tap{t.y, t.x, t.at, 1})
		}
	}
}

// forward are the patches that a convolution of x multiplies.
func (c *compiler) forward(op graph.Conv2D, x *graph.Value, y graph.Shape, kh, kw int) *patches {
	s := x.Shape()
	p := &patches{src: c.ref(x), dtype: x.DType(), h: s[1], w: s[2], ch: s[3], high: y[1], wide: y[2], step: op.Stride}
	for i := range kh {
		for j := range kw {
			p.taps = append(p.taps, tap{i*op.Dilation[0] - op.Pad[0], j*op.Dilation[1] - op.Pad[2], i*kw + j, 1})
		}
	}
	p.join()
	return p
}

// residue are the pixels (first + stride*i) of a picture: those whose gradient
// falls on the same taps.
type residue struct {
	patches
	first [2]int
}

// backward are the patches of dy that a gradient of the picture [H,W] adds up,
// one for each residue of the strides.
func (c *compiler) backward(op graph.Conv2D, dy *graph.Value, x graph.Shape, kh, kw int) []*residue {
	s := dy.Shape()
	var all []*residue
	for r0 := range min(op.Stride[0], x[1]) {
		for r1 := range min(op.Stride[1], x[2]) {
			r := &residue{first: [2]int{r0, r1}, patches: patches{
				src: c.ref(dy), dtype: dy.DType(), h: s[1], w: s[2], ch: s[3], step: [2]int{1, 1},
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

// cols is the length of a row.
func (p *patches) cols() int { return len(p.taps) * p.ch }

// plain reports whether the matrix is the pictures themselves.
func (p *patches) plain() bool {
	return len(p.taps) == 1 && p.step == [2]int{1, 1} && p.taps[0].y == 0 && p.taps[0].x == 0 && p.high == p.h && p.wide == p.w
}

// pixel is the byte offset of a pixel.
func (p *patches) pixel(b, y, x int) int {
	return ((b*p.h+y)*p.w + x) * p.ch * int(p.dtype.Size())
}

// pitch is the bytes from row to row of a laid out part; rows of neighbouring
// positions start in different cache sets.
func pitch(cols int, d graph.DType) int { return alignUp(cols*int(d.Size()), 128) + 64 }

// lay writes columns of runs [r0, r1) of rows first..first+n to dst, with
// zeros up to an even number of columns.
func (p *patches) lay(dst []byte, pitch, first, n, r0, r1 int) {
	size := int(p.dtype.Size())
	px := p.ch * size
	b, rest := first/(p.high*p.wide), first%(p.high*p.wide)
	i, j := rest/p.wide, rest%p.wide
	runs := p.runs[r0:r1]
	src := unsafe.Slice((*byte)(p.src.ptr()), p.src.n*size)
	for k := range n {
		out := dst[k*pitch : k*pitch+pitch]
		for _, t := range runs {
			y, x, bytes := i*p.step[0]+t.y, j*p.step[1]+t.x, t.n*px
			switch {
			case y < 0 || y >= p.h || x+t.n <= 0 || x >= p.w:
				clear(out[:bytes])
			case x >= 0 && x+t.n <= p.w:
				at := p.pixel(b, y, x)
				copy(out[:bytes], src[at:at+bytes])
			default:
				from, to := max(-x, 0), min(t.n, p.w-x)
				clear(out[:from*px])
				at := p.pixel(b, y, x+from)
				copy(out[from*px:to*px], src[at:at+(to-from)*px])
				clear(out[to*px : bytes])
			}
			out = out[bytes:]
		}
		clear(out[:min(size, len(out))])
		if j++; j == p.wide {
			j = 0
			if i++; i == p.high {
				i, b = 0, b+1
			}
		}
	}
}

// matrix is rows first..first+n, laid out in dst unless they lie so already.
func (p *patches) matrix(first, n int, dst []byte) gemm.Matrix {
	if p.plain() {
		return gemm.Matrix{Data: unsafe.Add(p.src.ptr(), first*p.ch*int(p.dtype.Size())), Type: gemmType(p.dtype), Stride: p.ch}
	}
	pitch := pitch(p.cols(), p.dtype)
	p.lay(dst, pitch, first, n, 0, len(p.runs))
	return gemm.Matrix{Data: unsafe.Pointer(&dst[0]), Type: gemmType(p.dtype), Stride: pitch / int(p.dtype.Size())}
}
