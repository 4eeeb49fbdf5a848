package cuda

import (
	"math/bits"
	"strconv"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/tiling"
)

// picture is a convolution's input as a matrix; see kernels/conv.cu. Its rows are the pixels of pictures of
// rows x cols, its columns the taps times the channels of a source [B,H,W,C], padded.
type picture struct {
	source                   graph.Shape
	rows, cols               int
	taps                     [2]int
	stride, dilation, origin [2]int
}

// pictureOf is the matrix by which op multiplies x, padded to a number of channels, for a result y.
func pictureOf(op graph.Conv2D, x graph.Shape, channels int, w, y graph.Shape) picture {
	return picture{
		source: graph.Shape{x[0], x[1], x[2], channels}, rows: y[1], cols: y[2], taps: [2]int{w[2], w[3]},
		stride: op.Stride, dilation: op.Dilation, origin: [2]int{-op.Pad[0], -op.Pad[2]},
	}
}

func (p *picture) pixels() int  { return p.source[0] * p.rows * p.cols }
func (p *picture) columns() int { return p.taps[0] * p.taps[1] * p.source[3] }

// picture appends the geometry of q.
func (p *params) picture(q picture) *params {
	p.u32(q.source[1], q.source[2], q.stride[0], q.stride[1], q.dilation[0], q.dilation[1], q.origin[0], q.origin[1])
	return p.divisor(q.source[3]).divisor(q.taps[1]).divisor(q.rows).divisor(q.cols)
}

// divisor appends the constants by which the kernels divide numbers below 2^31 by n.
func (p *params) divisor(n int) *params {
	shift := bits.Len(uint(n - 1)) // 2^shift >= n
	return p.u32(n, ((1<<shift)-n)<<32/n+1, shift)
}

// convolved fails for shapes too large for the kernels' counters.
func (l *lowering) convolved(s ...graph.Shape) {
	for _, s := range s {
		if s.Rows() >= 1<<28 {
			l.fail("images of %v: the convolution kernels index at most %d pixels; use a smaller batch", s, 1<<28)
		}
	}
}

func (l *lowering) conv(n *graph.Node, op graph.Conv2D) {
	x, w, y := n.In[0], n.In[1], n.Out[0]
	if op.Depthwise() {
		l.depthwise("depthwise_", op, n, x.Shape(), y.Shape(), w.Shape())
		return
	}
	l.convolved(x.Shape(), y.Shape())
	a, b := l.factors(x, w)
	s := w.Shape() // [O,C,KH,KW]
	from, channels := l.padded(a, x.Shape())
	p := pictureOf(op, x.Shape(), channels, s, y.Shape())
	packed := b.at
	if s[2]*s[3] > 1 || channels != s[1] || b.at.offset%16 != 0 {
		packed = l.packed(b, graph.Shape{s[0], s[2], s[3], s[1]}, []int{s[1] * s[2] * s[3], s[3], 1, s[2] * s[3]}, 0, channels)
	}
	l.convProduct("conv_", a.dtype, from, packed, p, p.pixels(), s[0], p.columns(), y.DType(), l.at(y))
}

// padded returns a picture of shape s with its channels padded to whole pieces of 16 bytes, as tensor cores
// take them, and their number after padding.
func (l *lowering) padded(f factor, s graph.Shape) (at address, channels int) {
	if !l.onTensorCores(f.dtype, false) || aligned(f, s[3]) {
		return f.at, s[3]
	}
	channels = ceil(s[3], 8) * 8
	return l.packed(f, graph.Shape{s.Rows(), s[3]}, []int{s[3], 1}, 0, channels), channels
}

// packed copies elements, starting at first, by dimensions and strides, with the last dimension padded by
// zeros.
func (l *lowering) packed(f factor, dims graph.Shape, strides []int, first, last int) address {
	to := dims.Clone()
	to[len(to)-1] = last
	t := graph.Type{DType: f.dtype, Shape: to}
	at := l.take(t.Bytes())
	if last != dims.Last() {
		l.clear(at, t.Bytes())
	}
	stride := make([]int, len(to))
	for i := range to {
		stride[i] = elementStride(to, i)
	}
	l.copyLoop(dims, strided{dtype: f.dtype, at: f.at.plus(int64(first) * f.dtype.Size()), stride: strides}, strided{dtype: f.dtype, at: at, stride: stride})
	return at
}

// convGradInput is a convolution of dy for each remainder of the picture's rows and columns modulo the
// stride: pixels with the same remainder see the same taps.
func (l *lowering) convGradInput(n *graph.Node, op graph.Conv2DGradInput) {
	dy, w, dx := n.In[0], n.In[1], n.Out[0]
	if op.Conv.Depthwise() {
		l.depthwise("depthwise_grad_", op.Conv, n, dx.Shape(), dy.Shape(), w.Shape())
		return
	}
	l.convolved(dx.Shape(), dy.Shape())
	a, b := l.factors(dy, w)
	from, channels := l.padded(a, dy.Shape())
	source := graph.Shape{dy.Shape()[0], dy.Shape()[1], dy.Shape()[2], channels}
	down, across := phases(op.Conv, 0, op.H, w.Shape()[2]), phases(op.Conv, 1, op.W, w.Shape()[3])
	whole := op.Conv.Stride == [2]int{1, 1} // there is only one phase
	if !whole {
		l.clear(l.at(dx), dx.Type.Bytes()) // pixels that no tap sees
	}
	var part address
	for i, r := range down {
		for j, c := range across {
			if r.extent == 0 || c.extent == 0 || r.taps == 0 || c.taps == 0 {
				continue
			}
			s := w.Shape() // [O,C,KH,KW]
			packed := l.packed(b, graph.Shape{s[1], r.taps, c.taps, s[0]}, []int{s[2] * s[3], r.step * s[3], c.step, s[1] * s[2] * s[3]}, r.first*s[3]+c.first, channels)
			p := picture{
				source: source, rows: r.extent, cols: c.extent, taps: [2]int{r.taps, c.taps},
				stride: [2]int{1, 1}, dilation: [2]int{-r.dilation, -c.dilation}, origin: [2]int{r.offset, c.offset},
			}
			if whole {
				l.convProduct("conv_", a.dtype, from, packed, p, p.pixels(), s[1], p.columns(), dx.DType(), l.at(dx))
				continue
			}
			if part == (address{}) { // the first phases are the largest
				part = l.take(int64(p.pixels()) * int64(s[1]) * dx.DType().Size())
			}
			l.convProduct("conv_", a.dtype, from, packed, p, p.pixels(), s[1], p.columns(), dx.DType(), part)
			dims := graph.Shape{dy.Shape()[0], r.extent, c.extent, s[1]}
			first := int64(i*op.W+j) * int64(s[1]) * dx.DType().Size()
			to := []int{op.H * op.W * s[1], op.Conv.Stride[0] * op.W * s[1], op.Conv.Stride[1] * s[1], 1}
			l.copyLoop(dims, strided{dtype: dx.DType(), at: part, stride: dims.Strides(dims)}, strided{dtype: dx.DType(), at: l.at(dx).plus(first), stride: to})
		}
	}
}

// phase is what the rows (or columns) r, r+stride, ... of a picture see: the taps first, first+step and so on.
// For row r+stride*a, the u-th of these taps reads row a+offset-u*dilation of the result.
type phase struct{ extent, first, step, taps, offset, dilation int }

// phases are those of dimension d, for extents n of the picture and k of the kernel.
func phases(op graph.Conv2D, d, n, k int) []phase {
	stride, dilation, pad := op.Stride[d], op.Dilation[d], op.Pad[2*d]
	common := gcd(stride, dilation)
	all := make([]phase, stride)
	for r := range all {
		p := phase{extent: max(0, ceil(n-r, stride)), step: stride / common, dilation: dilation / common}
		for i := range k {
			if (r+pad-i*dilation)%stride != 0 {
				continue
			}
			if p.taps == 0 {
				p.first, p.offset = i, (r+pad-i*dilation)/stride
			}
			p.taps++
		}
		all[r] = p
	}
	return all
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (l *lowering) convGradWeight(n *graph.Node, op graph.Conv2DGradWeight) {
	x, dy, dw := n.In[0], n.In[1], n.Out[0]
	if op.Conv.Depthwise() {
		l.depthwiseWeight(n, op)
		return
	}
	l.convolved(x.Shape(), dy.Shape())
	a, b := l.factors(x, dy)
	from, channels := l.padded(a, x.Shape())
	grad, outputs := l.padded(b, dy.Shape())
	p := pictureOf(op.Conv, x.Shape(), channels, dw.Shape(), dy.Shape())
	s, to := dw.Shape(), l.at(dw) // [O,C,KH,KW]
	if op.KH*op.KW > 1 || channels != s[1] || outputs != s[0] {
		to = l.take(4 * int64(outputs) * int64(p.columns()))
	}
	l.convProduct("conv_weight_", a.dtype, grad, from, p, outputs, p.columns(), p.pixels(), graph.F32, to)
	if to != l.at(dw) {
		strides := []int{p.columns(), 1, op.KW * channels, channels}
		l.copyLoop(s, strided{dtype: graph.F32, at: to, stride: strides}, strided{dtype: graph.F32, at: l.at(dw), stride: s.Strides(s)})
	}
}

// fewChannels is how many channels the result of a convolution has at most that is computed in tiles of 128 pixels.
const fewChannels = 8

// convProduct launches a product of which one factor is a picture, and stores the result in a format. A long
// K is split where there are too few tiles for the card.
func (l *lowering) convProduct(kernel string, f graph.DType, a, b address, p picture, m, n, k int, d graph.DType, to address) {
	cut := tiling.Product{Batch: 1, M: m, N: n, K: k}
	tile, threads := 64, 128
	other, row := n, k // the other factor's vectors, and the elements of its rows
	if kernel == "conv_weight_" {
		other, row = m, m
	}
	if !l.onTensorCores(f, false) {
		l.steppable(row)
		threads, kernel = 256, "s"+kernel
		tile = cut.Tile(l.sms)
	}
	parts, size := cut.Split(l.sms, tile)
	e := plain(d, n, to)
	var partial address
	if parts > 1 {
		partial = l.take(4 * int64(parts) * int64(m) * int64(n))
		e = plain(graph.F32, n, partial)
	}
	tiles, area, side := cut.Tiles(tile), tile*tile, strconv.Itoa(tile)
	if kernel == "conv_" && parts == 1 && n <= fewChannels {
		tiles, area, side = ceil(m, 128), 128*fewChannels, "few"
	}
	q := new(params).ptr(a).ptr(b).picture(p).u32(m, n, k, size)
	x := l.runProduct(kernel+side+"_"+f.String(), [3]int{tiles, 1, parts}, threads, q, e, area, tiles*parts, parts*m*n)
	x.does("step", tiles*parts*ceil(size, map[int]int{128: 32, 256: 8}[threads])).multiplies(m, n, k).moves(p.source.Elems()*f.Size(), int64(other)*int64(k)*f.Size())
	if parts == 1 {
		return
	}
	sum := to
	if d != graph.F32 {
		sum = l.take(4 * int64(m) * int64(n))
	}
	l.reduceColumns("sum_", graph.F32, partial, sum, 1, parts, m*n, 1)
	if d != graph.F32 {
		l.copyLoop(graph.Shape{m * n}, strided{dtype: graph.F32, at: sum, stride: []int{1}}, strided{dtype: d, at: to, stride: []int{1}})
	}
}

// depthwiseWindows appends the geometry of kernels/depthwise.cu.
func (p *params) depthwiseWindows(op graph.Conv2D, x, y, w graph.Shape) *params {
	p.u32(x[1], x[2], x[3], w[2], w[3], op.Dilation[0], op.Dilation[1], op.Pad[0], op.Pad[2])
	return p.divisor(y[1]).divisor(y[2]).divisor(op.Stride[0]).divisor(op.Stride[1])
}

// depthwise launches the kernel of a depthwise convolution or of its gradient for a picture x; y is the
// convolution's result.
func (l *lowering) depthwise(kernel string, op graph.Conv2D, n *graph.Node, x, y, w graph.Shape) {
	l.convolved(x, y)
	const strip = 8 // pixels a thread
	out := n.Out[0]
	d, at := l.alike(n.In...)
	s, to := out.Shape(), l.at(out)
	strips := l.counted(graph.Shape{s[0], s[1], ceil(s[2], strip), s[3]})
	if d != out.DType() {
		to = l.take(out.Type.With(d).Bytes())
	}
	p := new(params).ptr(at[0]).ptr(at[1]).ptr(to).u32(strips).depthwiseWindows(op, x, y, w)
	l.run(kernel+d.String(), ceil(strips, 256), 256, p).does("warp", warps(strips)).does("tap", warps(strips)*w[2]*w[3]).moves(traffic(n.In...), traffic(out))
	l.narrowed(out, d, to)
}

// narrowed converts a result that was computed in another format to its own.
func (l *lowering) narrowed(out *graph.Value, d graph.DType, at address) {
	if d == out.DType() {
		return
	}
	s := out.Shape().Strides(out.Shape())
	l.copyLoop(out.Shape(), strided{dtype: d, at: at, stride: s}, strided{dtype: out.DType(), at: l.at(out), stride: s})
}

func (l *lowering) depthwiseWeight(n *graph.Node, op graph.Conv2DGradWeight) {
	x, dy, dw := n.In[0], n.In[1], n.Out[0]
	l.convolved(x.Shape(), dy.Shape())
	d, at := l.alike(x, dy)
	pixels, channels, taps := dy.Shape().Rows(), x.Shape()[3], op.KH*op.KW
	const most = 512 // pixels of a part
	parts := min(ceil(pixels, most), 65535)
	size := ceil(pixels, parts)
	parts = ceil(pixels, size)
	to := l.at(dw)
	if parts > 1 {
		to = l.take(int64(parts) * dw.Type.Bytes())
	}
	p := new(params).ptr(at[0]).ptr(at[1]).ptr(to).u32(pixels, size).depthwiseWindows(op.Conv, x.Shape(), dy.Shape(), dw.Shape())
	l.runGrid("depthwise_weight_"+d.String(), [3]int{ceil(channels, 32), parts, taps}, 256, p).
		does("block", warps(channels)*parts*taps).does("line", warps(channels)*pixels*taps).moves(traffic(x, dy))
	if parts > 1 {
		l.reduceColumns("sum_", graph.F32, to, l.at(dw), 1, parts, channels*taps, 1)
	}
}
