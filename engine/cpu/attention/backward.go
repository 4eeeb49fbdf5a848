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
	gradQ := floats(worker, s.out, p.Tq*p.outPitch)
	clear(gradQ)
	p.deltas(args, b, h, worker)
	last := p.tile(args, b, h, 0, p.Tq)
	visible := p.visible(&last, p.Tq-1)
	for j0 := 0; j0 < p.Tk; j0 += p.block {
		keys := min(p.block, p.Tk-j0)
		gradK, gradV := floats(worker, s.gradK, keys*p.outPitch), floats(worker, s.gradV, keys*p.outPitch)
		clear(gradK)
		clear(gradV)
		if j0 < visible {
			p.backBlock(args, b, h, j0, keys, gradQ, gradK, gradV, worker)
		}
		dk, dv := args.DK.matrix(b, h, j0), args.DV.matrix(b, h, j0)
		p.u.Store(keys, p.Size, &gradK[0], p.outPitch, &dk)
		p.u.Store(keys, p.Size, &gradV[0], p.outPitch, &dv)
	}
	dq := args.DQ.matrix(b, h, 0)
	p.u.Store(p.Tq, p.Size, &gradQ[0], p.outPitch, &dq)
}

// deltas sets delta to the row sums of dO*O.
func (p *Plan) deltas(args *Args, b, h int, worker []byte) {
	s := &p.bwd
	delta := floats(worker, s.delta, p.Tq)
	x, y := floats(worker, s.rowsA, tileRows*p.outPitch), floats(worker, s.rowsB, tileRows*p.outPitch)
	for i := 0; i < p.Tq; i += tileRows {
		n := min(tileRows, p.Tq-i)
		o, do := args.O.matrix(b, h, i), args.DO.matrix(b, h, i)
		p.u.Load(n, p.Size, &o, &x[0], p.outPitch)
		p.u.Load(n, p.Size, &do, &y[0], p.outPitch)
		p.rows.dot(n, p.Size, &x[0], p.outPitch*4, &y[0], p.outPitch*4, &delta[i])
	}
}

// backBlock adds what all queries give to a block of keys, and the block to dQ.
func (p *Plan) backBlock(args *Args, b, h, j0, keys int, gradQ, gradK, gradV []float32, worker []byte) {
	s := &p.bwd
	packed := false
	var keysT, valuesT, keysN gemm.Panels
	for i := 0; i < p.Tq; i += tileRows {
		t := p.tile(args, b, h, i, min(tileRows, p.Tq-i))
		valid := ints(worker, s.valid, t.n)
		n := p.limits(args, &t, j0, keys, valid)
		if n == 0 {
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
		p.backTile(args, &t, j0, n, keysT, valuesT, keysN, gradQ[i*p.outPitch:], gradK, gradV, worker)
	}
}

// backTile is backBlock for one tile of queries.
func (p *Plan) backTile(args *Args, t *tile, j0, n int, keysT, valuesT, keysN gemm.Panels, gradQ, gradK, gradV []float32, worker []byte) {
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
	p.weigh(grads, keysN, valid, n, gradQ, worker[s.left:])
	right := p.u.PackB(t.n, p.Size, &do, worker[s.grads:], nil)
	p.weighT(scores, right, valid, n, gradV, worker)
	right = p.u.PackB(t.n, p.Size, &q, worker[s.queries:], nil)
	p.weighT(grads, right, valid, n, gradK, worker)
}

// weighT adds x^T*right to out for the first n columns of x; rows that do not
// see a group of columns are left out.
func (p *Plan) weighT(x []float32, right gemm.Panels, valid []int32, n int, out []float32, worker []byte) {
	a := f32(x, p.pitch, true)
	var left gemm.Block
	if p.u.Word() == gemm.F32 {
		left = p.u.ViewA(&a)
	} else {
		left = p.u.PackA(n, len(valid), &a, worker[p.bwd.left:])
	}
	group := 4 * p.u.Rows()
	for j := 0; j < n; {
		e := j + group
		if n-e < 2*p.u.Rows() { // short tiles come last, in one product
			e = n
		}
		i := firstRow(valid, j, 2)
		lhs := left.Rest(p.u, j, i)
		p.u.Mul(e-j, p.Size, len(valid)-i, &lhs, right.Rest(p.u, i, 0), &out[j*p.outPitch], p.outPitch, true)
		j = e
	}
}
