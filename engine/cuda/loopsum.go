package cuda

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// columnSums are sums of the columns of outer matrices with rows rows and cols columns, the elements of a loop. As in
// kernels/reduce.cu, whose sums have the same bits, rows are added up in parts of size, a part in 8 interleaved series.
// A block has a part, 32 chunks of its columns, and a warp for each series.
type columnSums struct {
	of                []int // registers of the body
	outer, rows, cols int
	parts, size       int
}

const series = loopThreads / 32

// columnSums returns how a loop itself computes the sums of its columns, and sets the loop's width; nil if there are too
// few columns for the lanes of a warp, or too few parts for the card.
func (l *lowering) columnSums(k *loop, outer, rows, cols int) *columnSums {
	s := &columnSums{outer: outer, rows: rows, cols: cols}
	if s.parts, s.size = partsOf(rows); outer > mostBlocks || cols < 32 {
		return nil
	}
	k.collapse()
	widest := k.widest()
	for k.width = widest; k.width > 1; k.width /= 2 {
		if cols%k.width == 0 && 32*k.width <= cols && s.blocks(k.width) >= 4*l.sms {
			break
		}
	}
	if k.width == 1 && widest > 1 || s.blocks(k.width) < 4*l.sms || k.dims.Elems() > math.MaxUint32 {
		return nil
	}
	return s
}

// blocks is how many a loop has whose threads have chunks of a width.
func (s *columnSums) blocks(width int) int { return s.outer * s.parts * ceil(s.cols, 32*width) }

// sumUp generates and launches a loop whose sums are out.
func (l *lowering) sumUp(k *loop, out []*graph.Value) {
	s, p := k.sums, &params{}
	for _, o := range k.operands() {
		p.ptr(o.at)
	}
	to := make([]address, len(out)) // float32 [outer, parts, cols]
	for i, v := range out {
		if to[i] = l.at(v); s.parts > 1 {
			to[i] = l.take(4 * int64(s.outer) * int64(s.parts) * int64(s.cols))
		}
		p.ptr(to[i])
	}
	x := l.runGrid(l.generate("loop", func() (string, listing, error) { return k.summing(l.target) }), [3]int{ceil(s.cols, 32*k.width), s.parts, s.outer}, loopThreads, p)
	k.work(x)
	n, w, blocks := len(s.of), warps(int(k.dims.Elems())/k.width), s.blocks(k.width)
	x.does("row", w).does("sum", n*w*k.width).does("part", n*blocks*k.width).adds(counts.Sector, n*blocks*ceil(4*min(32*k.width, s.cols), 32)).
		moves(int64(4*n) * int64(s.outer) * int64(s.parts) * int64(s.cols))
	for i, v := range out {
		if s.parts > 1 {
			l.reduceColumns("sum_", graph.F32, to[i], l.at(v), s.outer, s.parts, s.cols, 1)
		}
	}
}

// summing is the PTX of a loop with sums, from its parameters on, and what it is for.
func (k *loop) summing(target int) (string, listing, error) {
	steps, err := stepsOf(target)
	if err != nil {
		return "", nil, err
	}
	s, e := k.sums, &emitter{steps: steps}
	e.says("the rows of the thread")
	thread, lane, own, col := e.fresh(), e.fresh(), e.fresh(), e.fresh()
	block, part, matrix := e.fresh(), e.fresh(), e.fresh()
	e.put("mov.u32 %s, %%tid.x", thread)
	e.put("and.b32 %s, %s, 31", lane, thread)
	e.put("shr.u32 %s, %s, 5", own, thread)
	e.put("mov.u32 %s, %%ctaid.x", block)
	e.put("mov.u32 %s, %%ctaid.y", part)
	e.put("mov.u32 %s, %%ctaid.z", matrix)
	e.put("mad.lo.u32 %s, %s, 32, %s", col, block, lane) // in units of the width
	row, end := e.fresh(), e.fresh()
	e.put("mad.lo.u32 %s, %s, %d, %s", row, part, s.size, own)
	e.put("mad.lo.u32 %s, %s, %d, %d", end, part, s.size, s.size)
	e.put("min.u32 %s, %s, %d", end, end, s.rows)
	e.put("setp.ge.u32 %%outside, %s, %d", col, s.cols/k.width)
	e.put("selp.b32 %s, 0, %s, %%outside", end, end)
	sums := make([][]string, len(s.of))
	for i := range sums {
		for range k.width {
			sum := e.fresh()
			e.put("mov.b32 %s, 0", sum)
			sums[i] = append(sums[i], sum)
		}
	}
	fmt.Fprintf(&e.text, "$row:\n")
	e.put("setp.ge.u32 %%outside, %s, %s", row, end)
	e.put("@%%outside bra $rows")
	chunk := e.fresh()
	e.put("mad.lo.u32 %s, %s, %d, %s", chunk, matrix, s.rows, row)
	e.put("mad.lo.u32 %s, %s, %d, %s", chunk, chunk, s.cols/k.width, col)
	values, err := k.elements(e, chunk)
	if err != nil {
		return "", nil, err
	}
	for i, r := range s.of {
		for j, sum := range sums[i] {
			e.put("add.f32 %s, %s, %s", sum, sum, values[r][j%len(values[r])])
		}
	}
	e.put("add.u32 %s, %s, %d", row, row, series)
	e.put("bra $row")
	fmt.Fprintf(&e.text, "$rows:\n")

	e.says("the part of the sums")
	const line = 33 * 4 // bytes from series to series: no bank twice
	e.shared = series * line
	base, at := e.fresh(), e.fresh()
	e.put("mov.u32 %s, shared", base)
	e.put("mad.lo.u32 %s, %s, 4, %s", base, lane, base)
	e.put("mad.lo.u32 %s, %s, %d, %s", at, own, line, base)
	to, first := e.fresh(), e.wide()
	e.put("mad.lo.u32 %s, %s, %d, %s", to, matrix, s.parts, part)
	e.put("mad.lo.u32 %s, %s, %d, %s", to, to, s.cols/k.width, col)
	e.put("setp.ge.u32 %%outside, %s, %d", col, s.cols/k.width)
	e.put("setp.ne.or.u32 %%outside, %s, 0, %%outside", own)
	for i, r := range s.of {
		e.says("result %d is the sums of r%d, by parts", len(k.out)+i, r)
		e.put("ld.param.u64 %s, [p%d]", first, len(k.in)+len(k.out)+i)
		e.put("cvta.to.global.u64 %s, %s", first, first)
		e.put("mad.wide.u32 %s, %s, %d, %s", first, to, 4*k.width, first)
		for _, sum := range sums[i] {
			e.put("st.shared.b32 [%s], %s", at, sum)
			e.put("bar.sync 0")
			for m := 1; m < series; m++ {
				x := e.fresh()
				e.put("ld.shared.b32 %s, [%s+%d]", x, base, m*line)
				e.put("add.f32 %s, %s, %s", sum, sum, x)
			}
			e.put("bar.sync 0")
		}
		for j := 0; j < k.width; j += 4 {
			n := min(4, k.width-j)
			e.put("@!%%outside st.global%s.b32 [%s+%d], %s", vector(n), first, 4*j, list(sums[i][j:j+n]))
		}
	}
	text, says := e.kernel(len(k.in)+len(k.out)+len(s.of), loopThreads)
	return text, says, nil
}
