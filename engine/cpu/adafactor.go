package cpu

import (
	"math"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// factored is a step of Adafactor. A weight consists of batch matrices, whose rows are
// cut into parts; each part's contribution to the columns is summed in order.
type factored struct {
	op                             graph.Adafactor
	w                              *trained
	r, c, lr, gscale, t            ref
	code                           *Code
	batch, rows, cols, parts, size int // size: rows per part
	tasks, per                     int // parts per task
	shared                         struct{ columns, byRow, byColumn, squares int }
}

// partsOfColumns is the largest number of sums that are added up for each column.
const partsOfColumns = 16

// fewColumns is up to how many columns a loop takes less time than a call for each row.
const fewColumns = 16

func (c *compiler) adafactor(n *graph.Node, op graph.Adafactor) ([]phase, error) {
	f := &factored{op: op, code: c.code}
	f.w = c.trained(n, op, op.Round, stepTile*4)
	f.batch, f.rows, f.cols = op.Matrices(n.In[0].Shape())
	f.c = c.ref(n.In[2])
	if op.Factored {
		f.r, f.c = f.c, c.ref(n.In[3])
	}
	scalars := c.refs(n.In[2+op.States():])
	f.lr, f.gscale, f.t = scalars[0], scalars[1], scalars[2]
	ok := scalars[3]
	f.size = (f.rows + partsOfColumns - 1) / partsOfColumns
	f.size = min(f.rows, max(f.size, (grain+f.cols-1)/f.cols))
	f.parts = (f.rows + f.size - 1) / f.size
	f.tasks, f.per = chunks(f.batch*f.parts, max(1, grain/(f.size*f.cols)))
	s, bytes := &f.shared, 0
	for _, v := range []struct {
		at    *int
		elems int
	}{{&s.squares, 2 * f.tasks}, {&s.columns, f.batch * f.parts * f.cols}, {&s.byRow, f.batch * f.rows}, {&s.byColumn, f.batch * f.cols}} {
		*v.at = bytes
		bytes += 4 * v.elems
	}
	c.need(bytes, 0)
	matrices, each := chunks(f.batch, max(1, grain/(f.rows+f.cols)))
	elems, per := f.w.tasks()
	when := func(run func(task, worker int)) func(task, worker int) {
		return func(task, worker int) {
			if ok.scalar() != 0 {
				run(task, worker)
			}
		}
	}
	return []phase{
		{f.tasks, when(f.sums)},
		{matrices, when(func(task, _ int) {
			for k := task * each; k < min((task+1)*each, f.batch); k++ {
				f.moments(k)
			}
		})},
		{f.tasks, when(f.squares)},
		{elems, func(task, worker int) {
			from, to := task*per, min((task+1)*per, f.w.w.n)
			if ok.scalar() != 0 {
				f.apply(from, to, worker)
			}
			if op.ZeroGrad {
				f.w.g.clear(from, to)
			}
		}},
	}, nil
}

// floats is one of the vectors in the shared workspace.
func (f *factored) floats(at, from, n int) []float32 { return floats(f.code.m.shared, at+4*from, n) }

// sums adds up the squares of rows, which become their means at once, and of columns.
func (f *factored) sums(task, worker int) {
	scale, rest := f.gscale.scalar(), math.Pow(float64(f.t.scalar()), -f.op.Decay)
	mem := f.code.worker(worker)
	tmp := floats(mem, 0, stepTile)
	for p := task * f.per; p < min((task+1)*f.per, f.batch*f.parts); p++ {
		k, from := p/f.parts, p%f.parts*f.size
		columns := f.floats(f.shared.columns, p*f.cols, f.cols)
		clear(columns)
		for i := k*f.rows + from; i < k*f.rows+min(from+f.size, f.rows); i++ {
			at, sum := i*f.cols, 0.0
			if f.cols < fewColumns {
				for j, g := range f.w.g.part(mem, at, at+f.cols) {
					g *= scale
					sum += float64(g) * float64(g)
					columns[j] += float32(g * g)
				}
			} else {
				for a := 0; a < f.cols; a += stepTile {
					b := min(a+stepTile, f.cols)
					x := tmp[:b-a]
					simd.MulScalar(x, f.w.g.part(mem, at+a, at+b), scale)
					sum += simd.SumSqF64(x)
					simd.Square(x, x)
					simd.Add(columns[a:b], columns[a:b], x)
				}
			}
			if f.op.Factored {
				r := &f.r.f32()[i]
				*r = float32((1-rest)*float64(*r) + rest*(sum/float64(f.cols)+f.op.Eps))
			}
		}
	}
}

// moments computes the moments of columns, and the factors of rows and columns of matrix
// k.
func (f *factored) moments(k int) {
	rest := math.Pow(float64(f.t.scalar()), -f.op.Decay)
	sums := f.floats(f.shared.columns, k*f.parts*f.cols, f.parts*f.cols)
	total(sums[:f.cols], sums, f.parts, f.cols)
	c := f.c.f32()[k*f.cols : (k+1)*f.cols]
	for j, s := range sums[:f.cols] {
		c[j] = float32((1-rest)*float64(c[j]) + rest*(float64(s)/float64(f.rows)+f.op.Eps))
	}
	simd.Rsqrt(f.floats(f.shared.byColumn, k*f.cols, f.cols), c)
	byRow := f.floats(f.shared.byRow, k*f.rows, f.rows)
	if !f.op.Factored {
		byRow[0] = 1
		return
	}
	r := f.r.f32()[k*f.rows : (k+1)*f.rows]
	simd.MulScalar(byRow, r, float32(float64(f.rows)/simd.SumF64(r)))
	simd.Rsqrt(byRow, byRow)
}

// scaled sets x to g, a part of a row from column a on, times its factors except the
// row's.
func (f *factored) scaled(x, g []float32, k, a int, scale float32) {
	by := f.floats(f.shared.byColumn, k*f.cols+a, len(g))
	if len(g) < fewColumns {
		for j, g := range g {
			x[j] = g * scale * by[j]
		}
		return
	}
	simd.MulScalar(x, g, scale)
	simd.Mul(x, x, by)
}

// squares sums the squares of the step before it is bounded.
func (f *factored) squares(task, worker int) {
	scale, sum := f.gscale.scalar(), 0.0
	mem := f.code.worker(worker)
	tmp := floats(mem, 0, stepTile)
	for p := task * f.per; p < min((task+1)*f.per, f.batch*f.parts); p++ {
		k, from := p/f.parts, p%f.parts*f.size
		for i := k*f.rows + from; i < k*f.rows+min(from+f.size, f.rows); i++ {
			row := 0.0
			for a := 0; a < f.cols; a += stepTile {
				b := min(a+stepTile, f.cols)
				f.scaled(tmp[:b-a], f.w.g.part(mem, i*f.cols+a, i*f.cols+b), k, a, scale)
				row += simd.SumSqF64(tmp[:b-a])
			}
			by := float64(f.floats(f.shared.byRow, i, 1)[0])
			sum += row * by * by
		}
	}
	f.partial()[task] = sum
}

func (f *factored) partial() []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(&f.code.m.shared[f.shared.squares])), f.tasks)
}

// apply updates elements from to to.
func (f *factored) apply(from, to, worker int) {
	sum := 0.0
	for _, s := range f.partial() {
		sum += s
	}
	lr := float64(f.lr.scalar()) * f.op.LRScale
	decay, scale := float32(1-lr*f.op.WeightDecay), f.gscale.scalar()
	step := lr / max(1, math.Sqrt(sum/float64(f.w.w.n))/f.op.Clip)
	tmp := floats(f.code.worker(worker), 0, stepTile)
	f.w.each(from, to, worker, func(x, g []float32, from, to int) {
		if decay != 1 {
			simd.MulScalar(x, x, decay)
		}
		for at := from; at < to; {
			i, a := at/f.cols, at%f.cols
			n := min(to-at, f.cols-a, stepTile)
			f.scaled(tmp[:n], g[at-from:at-from+n], i/f.rows, a, scale)
			simd.Axpy(x[at-from:at-from+n], tmp[:n], -float32(step)*f.floats(f.shared.byRow, i, 1)[0])
			at += n
		}
	})
}
