package attention

import "github.com/snug-ml/snug/engine/cpu/gemm"

// Backward computes one task of the backward pass: dQ, dK and dV of one head.
// Every task runs exactly once, on any worker.
//
// With P the probabilities and delta the row sums of dO*O:
//
//	dV = P^T*dO, dP = dO*V^T, dS = scale*P*(dP-delta), dQ = dS*K, dK = dS^T*Q
//
// where dropout multiplies P in dV, and dP.
func (p *Plan) Backward(task int, args *Args, worker []byte) {
	b, h := task/p.Heads, task%p.Heads
	s := &p.bwd
	dq := args.DQ.matrix(b, h, 0)
	gradQ := p.sums(dq, p.Tq, ceil(p.Tk, p.block), worker, s.out)
	p.deltas(args, b, h, worker)
	last := p.tile(args, b, h, 0, p.Tq)
	visible := p.visible(&last, p.Tq-1)
	if visible == 0 {
		gradQ.clear(0, p.Tq)
	}
	tiles := ceil(p.Tq, tileRows)
	for j0 := 0; j0 < p.Tk; j0 += p.block {
		keys := min(p.block, p.Tk-j0)
		dk, dv := args.DK.matrix(b, h, j0), args.DV.matrix(b, h, j0)
		gradK, gradV := p.sums(dk, keys, tiles, worker, s.gradK), p.sums(dv, keys, tiles, worker, s.gradV)
		begun := 0
		if j0 < visible {
			begun = p.backBlock(args, b, h, j0, keys, gradQ, gradK, gradV, worker)
		}
		gradK.clear(begun, keys)
		gradV.clear(begun, keys)
		p.store(gradK, keys, dk)
		p.store(gradV, keys, dv)
	}
	p.store(gradQ, p.Tq, dq)
}

// deltas sets delta to the row sums of dO*O.
func (p *Plan) deltas(args *Args, b, h int, worker []byte) {
	s := &p.bwd
	delta := floats(worker, s.delta, p.Tq)
	for i := 0; i < p.Tq; i += tileRows {
		n := min(tileRows, p.Tq-i)
		o := p.widen(args.O.matrix(b, h, i), n, worker, s.rowsA)
		do := p.widen(args.DO.matrix(b, h, i), n, worker, s.rowsB)
		p.rows.dot(n, p.Size, (*float32)(o.Data), o.Stride*4, (*float32)(do.Data), do.Stride*4, &delta[i])
	}
}

// backBlock sums up what all queries give to a block of keys, and adds the
// block to dQ, which the first begins. Keys from the returned one on are seen
// by no query: their gradients are not set.
func (p *Plan) backBlock(args *Args, b, h, j0, keys int, gradQ, gradK, gradV sums, worker []byte) (begun int) {
	s := &p.bwd
	packed := false
	var keysT, valuesT, keysN gemm.Panels
	for i := 0; i < p.Tq; i += tileRows {
		t := p.tile(args, b, h, i, min(tileRows, p.Tq-i))
		valid := ints(worker, s.valid, t.n)
		n := p.limits(args, &t, j0, keys, valid)
		if n == 0 {
			if j0 == 0 {
				gradQ.clear(i, i+t.n)
			}
			continue
		}
		if !packed {
			k, v := args.K.matrix(b, h, j0), args.V.matrix(b, h, j0)
			keysN = p.u.PackB(keys, p.Size, &k, worker[s.keysN:], nil)
			k.Trans, v.Trans = true, true
			keysT = p.u.PackB(p.Size, keys, &k, worker[s.keysT:], worker[s.temp:])
			valuesT = p.u.PackB(p.Size, keys, &v, worker[s.valuesT:], worker[s.temp:])
			packed = true
		}
		p.backTile(args, &t, j0, n, begun, keysT, valuesT, keysN, gradQ.rest(i), gradK, gradV, worker)
		// Products add to whole tiles.
		begun = min(roundUp(n, p.u.Rows()), keys)
		gradK.clear(n, begun)
		gradV.clear(n, begun)
	}
	return begun
}

// backTile is backBlock for one tile of queries, of which the earlier ones have
// begun the gradients of the first begun keys.
func (p *Plan) backTile(args *Args, t *tile, j0, n, begun int, keysT, valuesT, keysN gemm.Panels, gradQ, gradK, gradV sums, worker []byte) {
	s := &p.bwd
	valid := ints(worker, s.valid, t.n)
	scores, grads := floats(worker, s.scores, t.n*p.pitch), floats(worker, s.gradScores, t.n*p.pitch)
	q, do := args.Q.matrix(t.b, t.h, t.i0), args.DO.matrix(t.b, t.h, t.i0)
	left := p.u.PackA(t.n, p.Size, &q, worker[s.left:])
	p.score(&left, keysT, valid, n, scores)
	left = p.u.PackA(t.n, p.Size, &do, worker[s.left:])
	p.score(&left, valuesT, valid, n, grads)
	p.mask(args, t, j0, valid, scores)
	keep := floats(worker, s.keep, p.pitch)
	if args.Dropout != nil {
		p.drop(args, t, j0, valid, grads, keep)
	}
	lse := args.LSE[(t.b*p.Heads+t.h)*p.Tq+t.i0:][:t.n]
	delta := floats(worker, s.delta, p.Tq)[t.i0:]
	for i := range lse {
		if lse[i] == negInf { // sees no key, whatever the other masks let through
			valid[i] = 0
		}
	}
	p.rows.grad(t.n, &scores[0], &grads[0], p.pitch*4, &valid[0], roundUp(n, 16), p.Scale, &lse[0], &delta[0])
	if args.Dropout != nil {
		p.drop(args, t, j0, valid, scores, keep)
	}
	p.limits(args, t, j0, p.block, valid)
	p.weigh(grads, keysN, valid, n, gradQ, j0 > 0, worker[s.left:])
	right := p.u.PackB(t.n, p.Size, &do, worker[s.grads:], nil)
	p.weighT(scores, right, valid, n, begun, gradV, worker)
	right = p.u.PackB(t.n, p.Size, &q, worker[s.queries:], nil)
	p.weighT(grads, right, valid, n, begun, gradK, worker)
}

// weighT adds x^T*right, for the first n columns of x, to the first begun rows
// of out and sets the others to it; rows of x that do not see a group of columns
// are left out.
func (p *Plan) weighT(x []float32, right gemm.Panels, valid []int32, n, begun int, out sums, worker []byte) {
	a := f32(x, p.pitch, true)
	var left gemm.Block
	if p.u.Word() == gemm.F32 {
		left = p.u.ViewA(&a)
	} else {
		left = p.u.PackA(n, len(valid), &a, worker[p.bwd.left:])
	}
	group := 4 * p.u.Rows()
	for j := 0; j < n; {
		end := n
		if j < begun {
			end = min(begun, n)
		}
		e := j + group
		if end-e < 2*p.u.Rows() { // short tiles come last, in one product
			e = end
		}
		i := firstRow(valid, j, 2)
		lhs := left.Rest(p.u, j, i)
		p.u.Mul(e-j, p.Size, len(valid)-i, &lhs, right.Rest(p.u, i, 0), out.row(j), out.Stride, j < begun)
		j = e
	}
}
