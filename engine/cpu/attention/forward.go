package attention

import (
	"math"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/simd"
)

var negInf = float32(math.Inf(-1))

// Forward computes one task of the forward pass: O and LSE of a chunk of the
// queries of one head. Every task runs exactly once, on any worker.
func (p *Plan) Forward(task int, args *Args, worker []byte) {
	chunks := ceil(p.Tq, p.chunk)
	head := task / chunks
	// Under a causal mask later chunks have more work: they come first.
	q0 := (chunks - 1 - task%chunks) * p.chunk
	rows := min(p.chunk, p.Tq-q0)
	b, h := head/p.Heads, head%p.Heads
	s := &p.fwd
	m, l := floats(worker, s.m, rows), floats(worker, s.l, rows)
	for i := range m {
		m[i], l[i] = negInf, 0
	}
	o := args.O.matrix(b, h, q0)
	out := p.sums(o, rows, ceil(p.Tk, p.block), worker, s.out)
	last := p.tile(args, b, h, q0, rows)
	visible := p.visible(&last, rows-1)
	if visible == 0 {
		out.clear(0, rows)
	}
	for j0 := 0; j0 < visible; j0 += p.block {
		keys := min(p.block, p.Tk-j0)
		var block keyBlock
		for i := 0; i < rows; i += tileRows {
			t := p.tile(args, b, h, q0+i, min(tileRows, rows-i))
			valid := ints(worker, s.valid, t.n)
			n := p.limits(args, &t, j0, keys, valid)
			if n == 0 {
				if j0 == 0 {
					out.clear(i, i+t.n)
				}
				continue
			}
			if !block.ready {
				block = p.prepare(args, b, h, j0, keys, worker)
			}
			p.attend(args, &t, &block, n, out.rest(i), m[i:], l[i:], worker)
		}
	}
	p.finish(args, b, h, q0, rows, out, m, l)
	p.store(out, rows, o)
}

// keyBlock is a block of keys and values as attend reads them.
type keyBlock struct {
	ready  bool
	j0     int         // first key
	keysT  gemm.Panels // K^T, unless the plan is narrow
	keys   gemm.Matrix // K in float32, if it is
	values gemm.Panels
}

// prepare packs a block of keys. For a few queries packing would cost more
// than it saves: the keys and values are read in place, or as float32 rows.
func (p *Plan) prepare(args *Args, b, h, j0, keys int, worker []byte) keyBlock {
	s := &p.fwd
	block := keyBlock{ready: true, j0: j0}
	k, v := args.K.matrix(b, h/p.group, j0), args.V.matrix(b, h/p.group, j0)
	if !p.narrow {
		k.Trans = true
		block.keysT = p.u.PackB(p.Size, keys, &k, worker[s.keysT:], worker[s.temp:])
		block.values = p.u.PackB(keys, p.Size, &v, worker[s.valuesN:], nil)
		return block
	}
	block.keys = p.widen(k, keys, worker, s.wideK)
	v = p.widen(v, keys, worker, s.wideV)
	block.values = p.u.ViewOrPackB(keys, p.Size, &v, worker[s.valuesN:])
	return block
}

// widen returns rows of x in float32: x itself or a copy in the scratch.
func (p *Plan) widen(x gemm.Matrix, rows int, worker []byte, at int) gemm.Matrix {
	if x.Type == gemm.F32 {
		return x
	}
	dst := floats(worker, at, rows*p.outPitch)
	p.u.Load(rows, p.Size, &x, &dst[0], p.outPitch)
	return f32(dst, p.outPitch, false)
}

// attend adds the first n keys of a block to the outputs of a tile of queries,
// which the first block begins.
func (p *Plan) attend(args *Args, t *tile, block *keyBlock, n int, out sums, m, l []float32, worker []byte) {
	s := &p.fwd
	valid := ints(worker, s.valid, t.n)
	scores := floats(worker, s.scores, t.n*p.pitch)
	q := args.Q.matrix(t.b, t.h, t.i0)
	if p.narrow {
		q = p.widen(q, t.n, worker, s.left)
		p.scoreRows(&q, &block.keys, valid, scores)
	} else {
		left := p.u.PackA(t.n, p.Size, &q, worker[s.left:])
		p.score(&left, block.keysT, valid, n, scores)
	}
	p.mask(args, t, block.j0, valid, scores)
	alpha := floats(worker, s.alpha, t.n)
	p.rows.softmax(t.n, &scores[0], p.pitch*4, &valid[0], roundUp(n, 16), p.Scale, &m[0], &l[0], &alpha[0])
	if block.j0 > 0 {
		p.rows.scale(t.n, p.Size, out.row(0), out.Stride*4, &alpha[0])
	}
	if args.Dropout != nil {
		p.drop(args, t, block.j0, valid, scores, floats(worker, s.keep, p.multipliers()))
	}
	p.weigh(scores, block.values, valid, n, out, block.j0 > 0, worker[s.left2:])
}

// scoreRows is score for float32 rows of queries and keys, one dot product each.
func (p *Plan) scoreRows(q, k *gemm.Matrix, valid []int32, scores []float32) {
	for i, n := range valid {
		if n > 0 {
			query := (*float32)(unsafe.Add(q.Data, 4*i*q.Stride))
			p.rows.dot(int(n), p.Size, query, 0, (*float32)(k.Data), 4*k.Stride, &scores[i*p.pitch])
		}
	}
}

// score sets the visible part of scores to left*right for n keys. Columns of keys that
// the first rows do not see are left out, in whole tiles.
func (p *Plan) score(left *gemm.Block, right gemm.Panels, valid []int32, n int, scores []float32) {
	step := p.u.Cols()
	for j := 0; j < n; j += step {
		i := firstRow(valid, j, p.u.Rows())
		// Neighboring panels that start at the same row form one matmul.
		e := j + step
		for e < n && firstRow(valid, e, p.u.Rows()) == i {
			e += step
		}
		part := left.Rest(p.u, i, 0)
		p.u.Mul(len(valid)-i, min(e, n)-j, p.Size, &part, right.Rest(p.u, 0, j), &scores[i*p.pitch+j], p.pitch, false)
		j = e - step
	}
}

// weigh sets out to x*right, for rows of x that are 0 beyond valid, or adds it to out.
func (p *Plan) weigh(x []float32, right gemm.Panels, valid []int32, n int, out sums, add bool, pack []byte) {
	a := f32(x, p.pitch, false)
	left := p.u.PackA(len(valid), roundUp(n, max(2, p.u.Unit())), &a, pack)
	step := p.u.Rows()
	for i := 0; i < len(valid); {
		e := min(i+step, len(valid))
		k := p.whole(valid[e-1])
		for e < len(valid) && p.whole(valid[min(e+step, len(valid))-1]) == k {
			e = min(e+step, len(valid))
		}
		part := left.Rest(p.u, i, 0)
		p.u.Mul(e-i, p.Size, k, &part, right, out.row(i), out.Stride, add)
		i = e
	}
}

// whole returns how many elements of a row are multiplied if n of them are not 0: the
// kernels' words hold several.
func (p *Plan) whole(n int32) int { return roundUp(int(n), p.u.Unit()) }

// finish divides by the sums of the weights and stores LSE.
func (p *Plan) finish(args *Args, b, h, q0, rows int, out sums, m, l []float32) {
	lse := args.LSE[(b*p.Heads+h)*p.Tq+q0:][:rows]
	simd.Log(lse, l)
	simd.Add(lse, lse, m) // -Inf where no key is seen
	for i, sum := range l {
		if sum != 0 { // NaN propagates
			l[i] = 1 / sum
		}
	}
	p.rows.scale(rows, p.Size, out.row(0), out.Stride*4, &l[0])
}
