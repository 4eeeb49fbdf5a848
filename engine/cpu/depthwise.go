package cpu

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Depthwise convolution works on vectors of channels, several neighboring positions at a
// time where they see neighboring pixels.

// fold returns how many positions are processed together.
func (p *patches) fold() int {
	if p.step[1] != 1 {
		return 1
	}
	return max(1, min(p.wide, tile/p.ch))
}

// visit calls fn for each tap that is inside the image from n positions of
// row i on, from the j-th: the elements of the positions' vectors, from first
// on, that see the pixels' elements from at on.
func (p *patches) visit(b, i, j, n int, fn func(t tap, first, at, n int)) {
	for _, t := range p.taps {
		y, x := i*p.step[0]+t.y, j*p.step[1]+t.x
		from, to := max(0, -x), min(n, p.w-x)
		if y < 0 || y >= p.h || from >= to {
			continue
		}
		fn(t, from*p.ch, ((b*p.h+y)*p.w+x+from)*p.ch, (to-from)*p.ch)
	}
}

// depthwise multiplies the patches of each residue by the weights, tap by tap;
// rows of positions go to pixels first + stride*position of out.
func (c *compiler) depthwise(residues []*residue, wv, out *graph.Value, stride [2]int) ([]phase, error) {
	ch, kk := wv.Shape()[0], wv.Shape()[2]*wv.Shape()[3]
	wide := ch
	for _, r := range residues {
		wide = max(wide, r.fold()*ch)
	}
	weights, dw, code := c.ref(wv), wv.DType(), c.code
	c.need(kk*wide*4, ch*kk*4)
	tapWeights := func(t, n int) []float32 { return floats(code.m.shared, t*wide*4, n) }
	ps := []phase{{1, func(_, w int) {
		x := rowPart(weights, dw, 0, ch*kk, floats(code.worker(w), 0, ch*kk))
		for t := range kk {
			strided(tapWeights(t, ch), x[t:], kk)
			repeat(tapWeights(t, wide), tapWeights(t, ch))
		}
	}}}
	dst, s := operand{ref: c.ref(out), dtype: out.DType()}, out.Shape()
	for _, r := range residues {
		fold := r.fold()
		c.need(0, 3*fold*ch*4)
		rows := s[0] * r.high
		tasks, per := chunks(rows, max(1, grain/(r.wide*ch*(1+len(r.taps)))))
		ps = append(ps, phase{tasks, func(task, w int) {
			mem := floats(code.worker(w), 0, 3*fold*ch)
			acc, reg, prod := mem[:fold*ch], mem[fold*ch:2*fold*ch], mem[2*fold*ch:]
			for i := task * per; i < min((task+1)*per, rows); i++ {
				b, p := i/r.high, i%r.high
				for q := 0; q < r.wide; q += fold {
					n := min(fold, r.wide-q)
					clear(acc[:n*ch])
					r.visit(b, p, q, n, func(t tap, first, at, n int) {
						simd.Mul(prod[:n], rowPart(r.src, r.dtype, at, at+n, reg), tapWeights(t.at, n))
						simd.Add(acc[first:first+n], acc[first:first+n], prod[:n])
					})
					at := ((b*s[1]+r.first[0]+p*stride[0])*s[2] + r.first[1] + q*stride[1]) * ch
					if stride[1] == 1 {
						dst.store(acc[:n*ch], at)
						continue
					}
					for k := range n {
						dst.store(acc[k*ch:(k+1)*ch], at+k*stride[1]*ch)
					}
				}
			}
		}})
	}
	return ps, nil
}

// depthwiseWeight sums products of pixels and dy by tap and channel; rows of
// positions are cut into fixed sets, whose sums are added in order.
func (c *compiler) depthwiseWeight(n *graph.Node, p *patches) ([]phase, error) {
	s, ch, kk := n.In[1].Shape(), p.ch, len(p.taps)
	dy, ty, dw, code := c.ref(n.In[1]), n.In[1].DType(), c.ref(n.Out[0]), c.code
	fold := p.fold()
	wide := fold * ch
	rows := s[0] * p.high
	set := max((rows+31)/32, min(rows, max(1, grain/(p.wide*ch))))
	sets := (rows + set - 1) / set
	c.need(sets*kk*ch*4, (kk+3)*wide*4)
	sums := func(set, tap int) []float32 { return floats(code.m.shared, (set*kk+tap)*ch*4, ch) }
	return []phase{{sets, func(task, w int) {
		mem := floats(code.worker(w), 0, (kk+3)*wide)
		acc, prod, ra, rb := mem[:kk*wide], mem[kk*wide:(kk+1)*wide], mem[(kk+1)*wide:(kk+2)*wide], mem[(kk+2)*wide:]
		clear(acc)
		for i := task * set; i < min((task+1)*set, rows); i++ {
			for q := 0; q < p.wide; q += fold {
				m := min(fold, p.wide-q)
				at := (i*p.wide + q) * ch
				g := rowPart(dy, ty, at, at+m*ch, ra)
				p.visit(i/p.high, i%p.high, q, m, func(t tap, first, at, n int) {
					simd.Mul(prod[:n], rowPart(p.src, p.dtype, at, at+n, rb), g[first:first+n])
					sum := acc[t.at*wide : t.at*wide+n]
					simd.Add(sum, sum, prod[:n])
				})
			}
		}
		for t := range kk {
			out := sums(task, t)
			clear(out)
			for k := t * wide; k < (t+1)*wide; k += ch {
				simd.Add(out, out, acc[k:k+ch])
			}
		}
	}}, {1, func(_, _ int) {
		out := dw.f32()
		for t := range kk {
			total := sums(0, t)
			for s := 1; s < sets; s++ {
				simd.Add(total, total, sums(s, t))
			}
			for k, v := range total {
				out[k*kk+t] = v
			}
		}
	}}}, nil
}
