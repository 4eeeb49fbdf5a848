package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Convolutions of few channels are bound by memory, and too narrow for the kernels as
// they are: the functions here work on planes, vectors of neighboring positions, instead
// of vectors of channels.

const (
	// fewChannels is the largest number of channels that counts as few.
	fewChannels = 4
	// fewInputs is the longest row of patches of few channels that is laid out.
	fewInputs = 64
	// scattered is how many positions have their patches or products in cache.
	scattered = 512
)

// asPlanes reports whether patches of this number of taps are laid out as planes.
func asPlanes(ch, taps int) bool { return ch <= fewChannels && ch*taps <= fewInputs }

// element is the weight of output o, input c and tap at.
func (w *weights) element(o, c, at int) float32 {
	k := (o*w.in+c)*w.kk + at
	if w.dtype == graph.F32 {
		return w.src.f32()[k]
	}
	var x [1]float32
	widen(x[:], w.src.u16()[k:k+1], w.dtype)
	return x[0]
}

// of is the weight between channel c of the patches and column n of the result.
func (w *weights) of(c, n, at int) float32 {
	if w.turned {
		return w.element(c, n, at)
	}
	return w.element(n, c, at)
}

// planeMicro multiplies planes of type a by b: in float32, without packing, except where
// four terms of bfloat16 are multiplied at a time, which makes packing pay.
func planeMicro(a, b graph.DType) gemm.Micro {
	if u := gemm.NewMicro(matmulISA, word(a, b)); u.Unit() == 4 {
		return u
	}
	return gemm.NewMicro(matmulISA, gemm.F32)
}

// planes lays out the patches of rectangles of few channels, float32: a line for each
// column of their matrix, and lines of zeros up to terms. Each line is padded with zeros
// to a multiple of four.
type planes struct {
	grid
	terms        int
	pitch        int // bytes from line to line
	plane, lines int // offsets in the scratch: the frame's channels apart, the lines
	need         int
}

func (p *patches) planes(tasks, unit int) *planes {
	l := &planes{grid: p.grid(scattered, tasks, graph.F32), terms: alignUp(p.inner(), unit)}
	l.pitch = alignUp(l.positions()*4, 128) + 64
	l.plane = l.frameBytes(graph.F32)
	l.lines = l.plane
	if p.ch > 1 {
		high, _ := l.reach(l.rows, l.cols)
		l.lines += alignUp(high*l.framePitch(l.cols, graph.F32), 64)
	}
	l.need = l.lines + l.terms*l.pitch
	return l
}

// lay lays out a rectangle and returns the matrix [columns, positions].
func (l *planes) lay(r rect, mem []byte) gemm.Matrix {
	f := l.frame(r, graph.F32, mem)
	high, width := l.reach(r.rows, r.cols)
	data, pitch := f.data, f.pitch
	if l.ch > 1 {
		data, pitch = unsafe.Pointer(&mem[l.plane]), l.framePitch(l.cols, graph.F32)
		for i := range high {
			row := unsafe.Slice((*float32)(unsafe.Add(f.data, i*f.pitch)), width*l.ch)
			simd.Transpose(floats(mem, l.plane+i*pitch, width*l.ch), width, row, l.ch, width, l.ch)
		}
	}
	reached := (r.cols-1)*l.step[1] + 1
	for t, tap := range l.taps {
		for c := range l.ch {
			// Rows of pixels, and of positions.
			at, from := (tap.y-l.top)*pitch/4+c*width+tap.x-l.left, l.step[0]*pitch/4
			src := unsafe.Slice((*float32)(data), at+(r.rows-1)*from+reached)
			dst := floats(mem, l.lines+(t*l.ch+c)*l.pitch, r.rows*r.cols)
			for ; len(dst) > 0; dst = dst[r.cols:] {
				strided(dst[:r.cols], src[at:at+reached], l.step[1])
				at += from
			}
		}
	}
	n := r.rows * r.cols
	for t := range l.terms {
		from := 0
		if t < l.inner() {
			from = n
		}
		clear(floats(mem, l.lines+t*l.pitch, alignUp(n, 4))[from:])
	}
	return gemm.Matrix{Data: unsafe.Pointer(&mem[l.lines]), Stride: l.pitch / 4}
}

// fewIn multiplies patches of few channels: their planes, transposed, by the
// weights.
func (c *compiler) fewIn(residues []*residue, w *weights, out *pixels) []phase {
	u := planeMicro(residues[0].dtype, w.dtype)
	code, n := c.code, out.ch
	direct := out.stride == [2]int{1, 1} && out.dtype == graph.F32
	var ps []phase
	for _, r := range residues {
		l := r.planes(2*c.workers, u.Unit())
		inner := l.terms
		block := alignUp(l.need, 64)
		product := block
		if u.Word() == gemm.BF16 {
			product += alignUp(u.BlockBytes(l.positions(), inner, gemm.F32, true), 64)
		}
		need := product
		if !direct {
			need += l.positions() * n * 4
		}
		loose := alignUp(u.PackedBytes(inner, n), 64) // the weights before packing
		c.need(loose+inner*n*4, need)
		ps = append(ps, phase{1, func(int, int) {
			if inner == 0 {
				return
			}
			m := floats(code.m.shared, loose, inner*n)
			clear(m[r.inner()*n:])
			for k := range m[:r.inner()*n] {
				m[k] = w.of(k/n%r.ch, k%n, r.taps[k/n/r.ch].at)
			}
			u.PackB(inner, n, &gemm.Matrix{Data: unsafe.Pointer(&m[0]), Stride: n}, code.m.shared[:loose], nil)
		}}, phase{l.rects(), func(task, worker int) {
			mem, rect := code.worker(worker), l.at(task)
			var y *float32
			if direct {
				y = &out.f32()[l.first(rect)*n]
			} else {
				y = (*float32)(unsafe.Pointer(&mem[product]))
			}
			positions := rect.rows * rect.cols
			if inner == 0 {
				clear(unsafe.Slice(y, positions*n))
			} else {
				a := l.lay(rect, mem)
				if n == 1 && u.Word() == gemm.F32 {
					// One row of positions fills the panels of the kernels, which a column of weights would not.
					left := u.ViewA(&gemm.Matrix{Data: unsafe.Pointer(&code.m.shared[loose]), Stride: inner})
					right, _ := u.ViewB(alignUp(positions, u.Cols()), &a)
					u.Mul(1, positions, inner, &left, right, y, positions, false)
				} else {
					a.Trans = true
					var left gemm.Block
					if u.Word() == gemm.F32 {
						left = u.ViewA(&a)
					} else {
						left = u.PackA(positions, inner, &a, mem[block:])
					}
					u.Mul(positions, n, inner, &left, u.Panels(inner, code.m.shared), y, n, false)
				}
			}
			if !direct {
				for i := range rect.rows {
					line := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(y), 4*i*rect.cols*n)), rect.cols*n)
					out.put(r, rect.b, rect.i+i, rect.j, 0, line, n, n)
				}
			}
		}})
	}
	return ps
}

// fewOut multiplies the pixels by the weights of all taps, and sums the contributions to
// each position: a matmul that is smaller by the number of taps.
func (c *compiler) fewOut(residues []*residue, w *weights, out *pixels) []phase {
	code, n, dtype := c.code, out.ch, residues[0].dtype
	u := gemm.NewMicro(matmulISA, word(dtype, w.dtype), residues[0].ch)
	var ps []phase
	for _, r := range residues {
		p := &r.patches
		g := p.grid(4*scattered, 2*c.workers, dtype)
		rows := len(p.taps) * n
		// The pixels that a rectangle's taps reach.
		high, wide := p.reach(g.rows, g.cols)
		wide = min(p.w, wide)
		pitch := alignUp(high*wide, 32) + 16
		packed := alignUp(u.BlockBytes(max(1, rows), p.ch, gemm.F32, false), 64)
		scratch := packed + u.PackedBytes(p.ch, wide)
		sums := scratch + u.ScratchBytes(p.ch)
		line := sums + rows*pitch*4
		c.need(rows*p.ch*4, line+2*n*g.cols*4)
		ps = append(ps, phase{1, func(int, int) {
			m := floats(code.m.shared, 0, rows*p.ch)
			for k := range m {
				m[k] = w.of(k%p.ch, k/p.ch%n, p.taps[k/p.ch/n].at)
			}
		}}, phase{g.rects(), func(task, worker int) {
			mem, rect := code.worker(worker), g.at(task)
			y0, y1 := max(0, rect.i*p.step[0]+p.top), min(p.h, (rect.i+rect.rows-1)*p.step[0]+p.bottom+1)
			x0, x1 := max(0, rect.j*p.step[1]+p.left), min(p.w, (rect.j+rect.cols-1)*p.step[1]+p.right+1)
			if rows > 0 && x0 < x1 {
				left := u.PackA(rows, p.ch, &gemm.Matrix{Data: unsafe.Pointer(&code.m.shared[0]), Stride: p.ch}, mem)
				for y := y0; y < y1; y++ {
					b := gemm.Matrix{Data: p.pixel(rect.b, y, x0), Type: gemmType(dtype), Stride: p.ch, Trans: true}
					right := u.PackB(p.ch, x1-x0, &b, mem[packed:scratch], mem[scratch:sums])
					u.Mul(rows, x1-x0, p.ch, &left, right, &floats(mem, sums+4*(y-y0)*wide, 1)[0], pitch, false)
				}
			}
			for i := range rect.rows {
				for o := range n {
					acc := floats(mem, line+4*o*rect.cols, rect.cols)
					clear(acc)
					for t, tap := range p.taps {
						y, x := (rect.i+i)*p.step[0]+tap.y, rect.j*p.step[1]+tap.x
						if y < y0 || y >= y1 {
							continue
						}
						products := floats(mem, sums+4*((t*n+o)*pitch+(y-y0)*wide), x1-x0)
						addShifted(acc, products, x-x0, p.step[1])
					}
				}
				all := floats(mem, line+4*n*rect.cols, rect.cols*n)
				simd.Transpose(all, n, floats(mem, line, rect.cols*n), rect.cols, n, rect.cols)
				out.put(r, rect.b, rect.i+i, rect.j, 0, all, n, n)
			}
		}})
	}
	return ps
}

// addShifted adds src[first+k*step] to acc[k] wherever that element exists.
func addShifted(acc, src []float32, first, step int) {
	from := 0
	if first < 0 {
		from = (step - 1 - first) / step
	}
	to := min(len(acc), (len(src)-first+step-1)/step)
	if from >= to {
		return
	}
	acc, src = acc[from:to], src[first+from*step:]
	if step == 1 {
		simd.Add(acc, acc, src[:len(acc)])
		return
	}
	for k := range acc {
		acc[k] += src[k*step]
	}
}
