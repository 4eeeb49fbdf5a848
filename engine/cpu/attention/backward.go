package attention

import "github.com/snug-ml/snug/engine/cpu/gemm"

// Backward computes one task of the backward pass: dK and dV of one head, and dQ
// of the heads of queries that share it. Every task runs exactly once, on any worker.
//
// With P the probabilities and delta the row sums of dO*O:
//
//	dV = P^T*dO, dP = dO*V^T, dS = scale*P*(dP-delta), dQ = dS*K, dK = dS^T*Q
//
// where dropout multiplies P in dV, and dP.
func (p *Plan) Backward(task int, args *Args, worker []byte) {
	b, kv := task/p.KVHeads, task%p.KVHeads
	s := &p.bwd
	last := p.tile(args, b, kv, 0, p.Tq)
	visible := p.visible(&last, p.Tq-1)
	for g := range p.group {
		p.deltas(args, b, kv, g, worker)
		if visible == 0 {
			p.gradQ(args, b, kv, g, worker).clear(0, p.Tq)
		}
	}
	products := p.group * ceil(p.Tq, tileRows)
	for j0 := 0; j0 < p.Tk; j0 += p.block {
		keys := min(p.block, p.Tk-j0)
		dk, dv := args.DK.matrix(b, kv, j0), args.DV.matrix(b, kv, j0)
		gradK, gradV := p.sums(dk, keys, products, worker, s.gradK), p.sums(dv, keys, products, worker, s.gradV)
		begun := 0
		if j0 < visible {
			begun = p.backBlock(args, b, kv, j0, keys, gradK, gradV, worker)
		}
		gradK.clear(begun, keys)
		gradV.clear(begun, keys)
		p.store(gradK, keys, dk)
		p.store(gradV, keys, dv)
	}
	for g := range p.group {
		p.store(p.gradQ(args, b, kv, g, worker), p.Tq, args.DQ.matrix(b, kv*p.group+g, 0))
	}
}

// gradQ returns the rows in which dQ of the g-th head of queries of head kv is added up.
func (p *Plan) gradQ(args *Args, b, kv, g int, worker []byte) sums {
	dq := args.DQ.matrix(b, kv*p.group+g, 0)
	return p.sums(dq, p.Tq, ceil(p.Tk, p.block), worker, p.bwd.out+g*p.Tq*p.outPitch*4)
}

// deltaOf returns the row sums of dO*O of the g-th head of queries of a task.
func (p *Plan) deltaOf(g int, worker []byte) []float32 {
	return floats(worker, p.bwd.delta+g*roundUp(p.Tq*4, 64), p.Tq)
}

// deltas computes them.
func (p *Plan) deltas(args *Args, b, kv, g int, worker []byte) {
	s := &p.bwd
	delta, h := p.deltaOf(g, worker), kv*p.group+g
	for i := 0; i < p.Tq; i += tileRows {
		n := min(tileRows, p.Tq-i)
		o := p.widen(args.O.matrix(b, h, i), n, worker, s.rowsA)
		do := p.widen(args.DO.matrix(b, h, i), n, worker, s.rowsB)
		p.rows.dot(n, p.Size, (*float32)(o.Data), o.Stride*4, (*float32)(do.Data), do.Stride*4, &delta[i])
	}
}

// packedKeys is a block of keys and values packed for the matmuls of the backward
// pass.
type packedKeys struct {
	ready                 bool
	keysT, valuesT, keysN gemm.Panels
}

// backBlock sums the contributions of all queries to a block of keys, and adds the
// block to dQ, which the first begins. Keys from the returned one on are seen
// by no query: their gradients are not set.
func (p *Plan) backBlock(args *Args, b, kv, j0, keys int, gradK, gradV sums, worker []byte) (begun int) {
	var block packedKeys
	for g := range p.group {
		gradQ := p.gradQ(args, b, kv, g, worker)
		for i := 0; i < p.Tq; i += tileRows {
			t := p.tile(args, b, kv*p.group+g, i, min(tileRows, p.Tq-i))
			n := p.limits(args, &t, j0, keys, ints(worker, p.bwd.valid, t.n))
			if n == 0 {
				if j0 == 0 {
					gradQ.clear(i, i+t.n)
				}
				continue
			}
			if !block.ready {
				block = p.packKeys(args, b, kv, j0, keys, worker)
			}
			p.backTile(args, &t, j0, n, begun, &block, p.deltaOf(g, worker)[i:], gradQ.rest(i), gradK, gradV, worker)
			// Matmuls add to whole tiles.
			if end := min(roundUp(n, p.u.Rows()), keys); end > begun {
				gradK.clear(max(n, begun), end)
				gradV.clear(max(n, begun), end)
				begun = end
			}
		}
	}
	return begun
}

func (p *Plan) packKeys(args *Args, b, kv, j0, keys int, worker []byte) packedKeys {
	s := &p.bwd
	k, v := args.K.matrix(b, kv, j0), args.V.matrix(b, kv, j0)
	block := packedKeys{ready: true, keysN: p.u.PackB(keys, p.Size, &k, worker[s.keysN:], nil)}
	k.Trans, v.Trans = true, true
	block.keysT = p.u.PackB(p.Size, keys, &k, worker[s.keysT:], worker[s.temp:])
	block.valuesT = p.u.PackB(p.Size, keys, &v, worker[s.valuesT:], worker[s.temp:])
	return block
}

// backTile is backBlock for one tile of queries, of which the earlier ones have
// begun the gradients of the first begun keys.
func (p *Plan) backTile(args *Args, t *tile, j0, n, begun int, block *packedKeys, delta []float32, gradQ, gradK, gradV sums, worker []byte) {
	s := &p.bwd
	valid := ints(worker, s.valid, t.n)
	scores, grads := floats(worker, s.scores, t.n*p.pitch), floats(worker, s.gradScores, t.n*p.pitch)
	q, do := args.Q.matrix(t.b, t.h, t.i0), args.DO.matrix(t.b, t.h, t.i0)
	left := p.u.PackA(t.n, p.Size, &q, worker[s.left:])
	p.score(&left, block.keysT, valid, n, scores)
	left = p.u.PackA(t.n, p.Size, &do, worker[s.left:])
	p.score(&left, block.valuesT, valid, n, grads)
	p.mask(args, t, j0, valid, scores)
	keep := floats(worker, s.keep, p.multipliers())
	if args.Dropout != nil {
		p.drop(args, t, j0, valid, grads, keep)
	}
	lse := args.LSE[(t.b*p.Heads+t.h)*p.Tq+t.i0:][:t.n]
	for i := range lse {
		if lse[i] == negInf { // sees no key, whatever the other masks allow
			valid[i] = 0
		}
	}
	p.rows.grad(t.n, &scores[0], &grads[0], p.pitch*4, &valid[0], roundUp(n, 16), p.Scale, &lse[0], &delta[0])
	if args.Dropout != nil {
		p.drop(args, t, j0, valid, scores, keep)
	}
	p.limits(args, t, j0, p.block, valid)
	p.weigh(grads, block.keysN, valid, n, gradQ, j0 > 0, worker[s.left:])
	right := p.u.PackB(t.n, p.Size, &do, worker[s.grads:], nil)
	p.weighT(scores, right, valid, n, begun, gradV, worker)
	right = p.u.PackB(t.n, p.Size, &q, worker[s.queries:], nil)
	p.weighT(grads, right, valid, n, begun, gradK, worker)
}

// weighT adds x^T*right, for the first n columns of x, to the first begun rows of out and
// sets the other rows to it; rows of x that do not see a group of columns are left out.
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
		if end-e < 2*p.u.Rows() { // short tiles come last, in one matmul
			e = end
		}
		i := firstRow(valid, j, max(2, p.u.Unit()))
		lhs := left.Rest(p.u, j, i)
		p.u.Mul(e-j, p.Size, len(valid)-i, &lhs, right.Rest(p.u, i, 0), out.row(j), out.Stride, j < begun)
		j = e
	}
}
