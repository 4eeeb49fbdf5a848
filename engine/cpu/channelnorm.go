package cpu

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// channels is a tensor [B,...,C] as outer blocks of rows of C channels that
// share statistics: one block of all rows for a batch norm, one for each row
// of the batch for a group norm.
//
// A few channels make only a short vector, so several rows are processed at a time: fold
// rows form one wide row, and the values of channels are repeated fold times.
type channels struct {
	outer, rows, ch, fold int
	set, sets             int // rows per set, sets per block; one task sums up a set
	groups, size          int // groups of channels that share a statistic, channels per group
}

func channelsOf(s graph.Shape, groups int) *channels {
	v := &channels{outer: 1, rows: s.Rows(), ch: s.Last(), groups: s.Last(), size: 1}
	if groups > 0 {
		v.outer, v.rows, v.groups, v.size = s[0], v.rows/s[0], groups, v.ch/groups
	}
	v.fold = max(1, min(v.rows, tile/v.ch))
	v.set = max((v.rows+31)/32, min(v.rows, max(1, 2*grain/v.ch)))
	v.sets = (v.rows + v.set - 1) / v.set
	return v
}

// wide is the length of a wide row.
func (v *channels) wide() int { return v.fold * v.ch }

// each calls fn with the wide rows between rows from and to of block o: the position and
// the number of their elements (fewer at the end).
func (v *channels) each(o, from, to int, fn func(at, n int)) {
	base := o * v.rows
	for i := from; i < to; i += v.fold {
		fn((base+i)*v.ch, min(v.fold, to-i)*v.ch)
	}
}

// repeat fills dst, a wide row, with x [C].
func repeat(dst, x []float32) {
	for k := 0; k < len(dst); k += len(x) {
		copy(dst[k:], x)
	}
}

// block is how many elements are read a second time while they are in cache.
const block = 32 << 10

func (c *compiler) channelNorm(n *graph.Node, op graph.ChannelNorm) ([]phase, error) {
	v := channelsOf(n.In[0].Shape(), op.Groups)
	x, gamma, beta, y := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.Out[0])
	stats := n.Out[1:]
	if op.Given {
		stats = n.In[3:]
	}
	mean, variance := c.ref(stats[0]), c.ref(stats[1])
	dx := n.In[0].DType()
	code := c.code
	wide := v.wide()
	c.need(v.outer*(v.sets+1)*2*v.ch*4, 5*wide*4)
	// factors computes center and scale of channels from their statistics as stored, so
	// that they equal those of the forward half. They come after the parts of block o.
	factors := func(o int) {
		shift, scale := v.part(code, o, v.sets)
		for k := range shift {
			s := o*v.groups + k/v.size
			shift[k] = mean.f32()[s]
			scale[k] = float32(1/math.Sqrt(float64(variance.f32()[s])+op.Eps)) * gamma.f32()[k]
		}
	}
	normalize := phase{v.outer * v.sets, func(task, w int) {
		o, s := task/v.sets, task%v.sets
		mem := floats(code.worker(w), 0, 5*wide)
		reg, out, center, factor, offset := mem[:wide], mem[wide:2*wide], mem[2*wide:3*wide], mem[3*wide:4*wide], mem[4*wide:]
		shift, scale := v.part(code, o, v.sets)
		repeat(center, shift)
		repeat(factor, scale)
		repeat(offset, beta.f32())
		v.each(o, s*v.set, min((s+1)*v.set, v.rows), func(at, n int) {
			if dx == graph.BF16 {
				simd.ColumnNormBF16(y.u16()[at:at+n], x.u16()[at:at+n], center[:n], factor[:n], offset[:n])
				return
			}
			yr := directPart(y, dx, at, at+n, out)
			simd.ColumnNorm(yr, rowPart(x, dx, at, at+n, reg), center[:n], factor[:n], offset[:n])
			putPart(y, dx, at, yr)
		})
	}}
	if op.Given {
		return []phase{{v.outer, func(o, _ int) { factors(o) }}, normalize}, nil
	}
	combine := v.combine(code, mean, variance)
	return []phase{v.moments(code, x, dx), {v.outer, func(o, _ int) {
		combine(o)
		factors(o)
	}}, normalize}, nil
}

func (c *compiler) batchStats(n *graph.Node) ([]phase, error) {
	v := channelsOf(n.In[0].Shape(), 0)
	c.need(v.outer*v.sets*2*v.ch*4, 3*v.wide()*4)
	combine := v.combine(c.code, c.ref(n.Out[0]), c.ref(n.Out[1]))
	return []phase{v.moments(c.code, c.ref(n.In[0]), n.In[0].DType()), {v.outer, func(o, _ int) { combine(o) }}}, nil
}

// part returns, for set s of block o, the means and the sums of squared deviations of its
// channels in shared memory.
func (v *channels) part(code *Code, o, s int) (mean, m2 []float32) {
	mem := floats(code.m.shared, (o*(v.sets+1)+s)*2*v.ch*4, 2*v.ch)
	return mem[:v.ch], mem[v.ch:]
}

// moments is the phase that computes the parts of x.
func (v *channels) moments(code *Code, x ref, dx graph.DType) phase {
	wide := v.wide()
	return phase{v.outer * v.sets, func(task, w int) {
		o, s := task/v.sets, task%v.sets
		mem := floats(code.worker(w), 0, 3*wide)
		reg, center, acc := mem[:wide], mem[wide:2*wide], mem[2*wide:]
		mean, m2 := v.part(code, o, s)
		clear(mean)
		clear(m2)
		last := min((s+1)*v.set, v.rows)
		step := max(v.fold, block/v.ch/v.fold*v.fold)
		for from := s * v.set; from < last; from += step {
			to := min(from+step, last)
			clear(acc)
			v.each(o, from, to, func(at, n int) { addPart(acc[:n], x, dx, at, reg) })
			sum := gather(acc, v.ch)
			simd.MulScalar(sum, sum, 1/float32(to-from))
			repeat(center, sum)
			clear(acc)
			v.each(o, from, to, func(at, n int) {
				if dx == graph.BF16 {
					simd.ColumnSqDevBF16(acc[:n], x.u16()[at:at+n], center[:n])
				} else {
					simd.ColumnSqDev(acc[:n], rowPart(x, dx, at, at+n, reg), center[:n])
				}
			})
			merge(mean, m2, float32(from-s*v.set), center[:v.ch], gather(acc, v.ch), float32(to-from))
		}
	}}
}

// combine returns what computes the statistics of block o from its parts.
func (v *channels) combine(code *Code, mean, variance ref) func(o int) {
	return func(o int) {
		for g := range v.groups {
			var m, m2, count float64
			for s := range v.sets {
				rows := float64(min((s+1)*v.set, v.rows) - s*v.set)
				a, b := v.part(code, o, s)
				for k := g * v.size; k < (g+1)*v.size; k++ {
					d := float64(a[k]) - m
					total := count + rows
					m += d * rows / total
					m2 += float64(b[k]) + d*d*count*rows/total
					count = total
				}
			}
			mean.f32()[o*v.groups+g], variance.f32()[o*v.groups+g] = float32(m), float32(m2/count)
		}
	}
}

// merge combines the mean and the sum of squared deviations of n elements with those of k
// more (Chan, Golub and LeVeque 1979), for each channel.
func merge(mean, m2 []float32, n float32, mean1, m21 []float32, k float32) {
	share, both := k/(n+k), n*k/(n+k)
	for i, m := range mean1 {
		d := m - mean[i]
		mean[i] += d * share
		m2[i] += m21[i] + d*d*both
	}
}

// channelNormGrad sums dy and dy*(x-mean) by channel and then computes
// dx = a*dy + b*(x-mean) + c, whose coefficients follow from the sums.
func (c *compiler) channelNormGrad(n *graph.Node, op graph.ChannelNormGrad) ([]phase, error) {
	v := channelsOf(n.In[1].Shape(), op.Groups)
	dy, x, gamma, mean, variance := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.In[3]), c.ref(n.In[4])
	dx, dgamma, dbeta := c.ref(n.Out[0]), c.ref(n.Out[1]), c.ref(n.Out[2])
	ty, tx := n.In[0].DType(), n.In[1].DType()
	half := ty == graph.BF16 && tx == graph.BF16
	code := c.code
	wide := v.wide()
	c.need(v.outer*(2*v.sets+4)*v.ch*4, 7*wide*4)
	// line k of block o: two for each set's sums, then mean, a, b and c.
	line := func(o, k int) []float32 {
		return floats(code.m.shared, (o*(2*v.sets+4)+k)*v.ch*4, v.ch)
	}
	centers := func(o int, dst []float32) {
		for k := range dst {
			dst[k] = mean.f32()[o*v.groups+k/v.size]
		}
	}
	sums := phase{v.outer * v.sets, func(task, w int) {
		o, s := task/v.sets, task%v.sets
		mem := floats(code.worker(w), 0, 5*wide)
		ra, rb, center, sum, dot := mem[:wide], mem[wide:2*wide], mem[2*wide:3*wide], mem[3*wide:4*wide], mem[4*wide:]
		centers(o, line(o, 2*s)) // as scratch
		repeat(center, line(o, 2*s))
		clear(sum)
		clear(dot)
		v.each(o, s*v.set, min((s+1)*v.set, v.rows), func(at, n int) {
			if half {
				simd.ColumnGradSumsBF16(sum[:n], dot[:n], dy.u16()[at:at+n], x.u16()[at:at+n], center[:n])
			} else {
				simd.ColumnGradSums(sum[:n], dot[:n], rowPart(dy, ty, at, at+n, ra), rowPart(x, tx, at, at+n, rb), center[:n])
			}
		})
		copy(line(o, 2*s), gather(sum, v.ch))
		copy(line(o, 2*s+1), gather(dot, v.ch))
	}}
	coefficients := phase{v.outer, func(o, _ int) {
		sum, dot := line(o, 0), line(o, 1)
		for s := 1; s < v.sets; s++ {
			simd.Add(sum, sum, line(o, 2*s))
			simd.Add(dot, dot, line(o, 2*s+1))
		}
		centers(o, line(o, 2*v.sets))
		a, b, cc := line(o, 2*v.sets+1), line(o, 2*v.sets+2), line(o, 2*v.sets+3)
		count := float64(v.rows * v.size)
		for g := range v.groups {
			r := 1 / math.Sqrt(float64(variance.f32()[o*v.groups+g])+op.Eps)
			var total, along float64
			for k := g * v.size; k < (g+1)*v.size; k++ {
				total += float64(gamma.f32()[k]) * float64(sum[k])
				along += float64(gamma.f32()[k]) * float64(dot[k])
			}
			for k := g * v.size; k < (g+1)*v.size; k++ {
				a[k] = float32(r * float64(gamma.f32()[k]))
				b[k] = float32(-r * r * r * along / count)
				cc[k] = float32(-r * total / count)
				dot[k] = float32(float64(dot[k]) * r)
			}
		}
	}}
	weights := phase{1, func(_, _ int) {
		copy(dbeta.f32(), line(0, 0))
		copy(dgamma.f32(), line(0, 1))
		for o := 1; o < v.outer; o++ {
			simd.Add(dbeta.f32(), dbeta.f32(), line(o, 0))
			simd.Add(dgamma.f32(), dgamma.f32(), line(o, 1))
		}
	}}
	inputs := phase{v.outer * v.sets, func(task, w int) {
		o, s := task/v.sets, task%v.sets
		mem := floats(code.worker(w), 0, 7*wide)
		ra, rb, out := mem[:wide], mem[wide:2*wide], mem[2*wide:3*wide]
		var coef [4][]float32
		for k := range coef {
			coef[k] = mem[(3+k)*wide : (4+k)*wide]
			repeat(coef[k], line(o, 2*v.sets+k))
		}
		v.each(o, s*v.set, min((s+1)*v.set, v.rows), func(at, n int) {
			mean, a, b, cc := coef[0][:n], coef[1][:n], coef[2][:n], coef[3][:n]
			if half {
				simd.ColumnNormGradBF16(dx.u16()[at:at+n], dy.u16()[at:at+n], x.u16()[at:at+n], mean, a, b, cc)
				return
			}
			dxr := directPart(dx, tx, at, at+n, out)
			simd.ColumnNormGrad(dxr, rowPart(dy, ty, at, at+n, ra), rowPart(x, tx, at, at+n, rb), mean, a, b, cc)
			putPart(dx, tx, at, dxr)
		})
	}}
	return []phase{sums, coefficients, weights, inputs}, nil
}

func (c *compiler) runningStats(n *graph.Node, op graph.RunningStats) ([]phase, error) {
	mean, variance, batchMean, batchVar := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.In[3])
	momentum, unbiased := float32(op.Momentum), float32(float64(op.Rows)/float64(op.Rows-1))
	return []phase{{1, func(_, _ int) {
		m, v := mean.f32(), variance.f32()
		for i, b := range batchMean.f32() {
			m[i] += momentum * (b - m[i])
			v[i] += momentum * (batchVar.f32()[i]*unbiased - v[i])
		}
	}}}, nil
}
