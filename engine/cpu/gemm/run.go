package gemm

import "unsafe"

// Run computes one task of a phase. Every task of a phase must run exactly
// once, on any worker; shared is common to all, worker is the caller's own.
func (p *Plan) Run(phase, task int, args *Args, shared, worker []byte) {
	if p.lib != nil {
		p.runLibrary(task, args, worker)
		return
	}
	i := p.groupOf(phase)
	mul, pack := p.mulTasks(i), p.packTasks(i+1)
	// Packing tasks are spread evenly among the multiplying ones, so that memory and
	// arithmetic are busy at the same time.
	packed := task * pack / (mul + pack)
	if (task+1)*pack/(mul+pack) > packed {
		p.packGroup(i+1, packed, &args.B, shared, worker)
		return
	}
	task -= packed
	if p.packs() {
		shared = p.half(i, shared)
	}
	s := p.group(i)
	p.multiply(s, p.block(s, task), p.after(i, task), args, shared, worker)
}

// block is the part of C one task computes; columns count from the group.
type block struct{ i0, i1, j0, j1 int }

// block returns the part of C of a task that multiplies by s. Consecutive tasks share
// columns of B, the operand that a task reads most of.
func (p *Plan) block(s panelGroup, task int) block {
	bi, bj := task%p.grid.rows, task/p.grid.rows
	return block{
		i0: bi * p.grid.mb, i1: min(p.rows, (bi+1)*p.grid.mb),
		j0: bj * p.grid.nb, j1: min(s.cols, (bj+1)*p.grid.nb),
	}
}

// turn is a worker's next unit of work: a block of C by a block of K.
type turn struct {
	block
	kb     int
	ok     bool // otherwise nothing follows
	packed bool // A is already packed for the same group
}

// after returns the likely next turn of a task that multiplies by group i, as the workers
// take turns.
func (p *Plan) after(i, task int) turn {
	task += p.workers
	same := task < p.mulTasks(i)
	if !same {
		task -= p.mulTasks(i)
		i++
	}
	if i == p.groups.count() || task >= p.mulTasks(i) {
		return turn{}
	}
	s := p.group(i)
	return turn{p.block(s, task), s.kb0, true, same}
}

// multiply adds a group's contribution to one block of C; then is the next turn.
func (p *Plan) multiply(s panelGroup, b block, then turn, args *Args, shared, worker []byte) {
	m := p.m
	c, ldc := (*byte)(args.C.at(b.i0, s.j0+b.j0)), args.C.pitch()
	rows, cols := b.i1-b.i0, b.j1-b.j0
	out, outPitch := c, ldc
	if p.c != F32 {
		c, ldc = &worker[p.scratchC], p.pitchC()
		if p.accumulate {
			m.toF32[p.c](rows, cols, out, outPitch, c, ldc)
		}
	}
	var streams []Stream
	if args.Epilogue != nil && s.kb1 == p.packing.blocks {
		streams = args.Epilogue.Streams()
	}
	for kb := s.kb0; kb < s.kb1; kb++ {
		words := p.packing.blockWords(kb)
		k0 := kb * p.packing.kc * m.elems()
		kn := min(words*m.elems(), p.k-k0)
		a := p.blockA(&args.A, b.i0, rows, k0, kn, worker)
		if args.SeeA != nil && s.j0+b.j0 == 0 {
			args.SeeA(kb, k0, k0+kn, b.i0, b.i1)
		}
		next := turn{b, kb + 1, true, true}
		if next.kb == s.kb1 {
			next = then
		}
		q := panel{words: words, ldc: ldc, acc: btoi(p.accumulate || kb > 0)}
		for j := 0; j < cols; j += m.nr {
			q.n, q.c = min(m.nr, cols-j), add(c, 4*j)
			p.point(&q, s, kb, b.j0+j, args, shared)
			if j+m.nr < cols {
				p.wantB(&q, s, kb, b.j0+j+m.nr, shared)
			} else if next.packed {
				p.wantB(&q, s, next.kb, next.j0, shared)
			}
			if kb == p.packing.blocks-1 {
				if args.Bias != nil {
					q.bias = (*byte)(unsafe.Add(args.Bias, 4*(s.j0+b.j0+j)))
				}
				for k := range streams {
					q.stream(&streams[k], b.i0, rows, s.j0+b.j0+j)
				}
			}
			if next.ok && p.source != directA {
				p.wantA(&q, &args.A, next, j, cols)
			}
			m.multiply(rows, &a, &q)
		}
	}
	if s.kb1 < p.packing.blocks {
		return
	}
	stored := args.Epilogue != nil &&
		args.Epilogue.Tile(b.i0, b.i1, s.j0+b.j0, s.j0+b.j1, (*float32)(unsafe.Pointer(c)), ldc/4)
	if p.c != F32 && !stored {
		m.fromF32[p.c](rows, cols, c, ldc, out, outPitch)
	}
}

// blockA returns rows rows of op(A) from row i0, kn elements from k0.
func (p *Plan) blockA(a *Matrix, i0, rows, k0, kn int, worker []byte) Block {
	if p.mapA != nil {
		return p.mappedA(a, i0, rows, k0, kn, worker)
	}
	return p.m.blockA(p.source, a, i0, rows, k0, kn, worker)
}

// point makes q multiply by the panel of block kb at column j of the group.
func (p *Plan) point(q *panel, s panelGroup, kb, j int, args *Args, shared []byte) {
	q.nfetch = 0
	if p.direct {
		q.b, q.bs = (*byte)(args.B.at(kb*p.packing.kc, s.j0+j)), args.B.pitch()
		return
	}
	q.b, q.bs = p.packedB(s, kb, j, shared), p.m.nr*p.m.bytes()
}

// packedB is the packed panel of block kb at column j of the group.
func (p *Plan) packedB(s panelGroup, kb, j int, shared []byte) *byte {
	return &shared[p.groupOffset(s, kb, j/p.m.nr)]
}

// wantB prefetches a packed panel.
func (p *Plan) wantB(q *panel, s panelGroup, kb, j int, shared []byte) {
	if !p.direct {
		q.want(p.packedB(s, kb, j, shared), cacheLine, p.packing.blockWords(kb)*p.m.nr*p.m.bytes()/cacheLine)
	}
}

// wantA prefetches the part of A of the next turn, which is packed or converted
// before it is multiplied: the share of its cache lines for the panel at column j
// of cols.
func (p *Plan) wantA(q *panel, a *Matrix, next turn, j, cols int) {
	k0 := next.kb * p.packing.kc * p.m.elems()
	kn := min(p.packing.kc*p.m.elems(), p.k-k0)
	at, lines, width := a.at(next.i0, k0), next.i1-next.i0, kn
	if a.Trans {
		at, lines, width = a.at(k0, next.i0), kn, next.i1-next.i0
	}
	n := ceil(width*a.Type.Size(), cacheLine)
	for l := n * j / cols; l < n*min(cols, j+p.m.nr)/cols; l++ {
		q.want((*byte)(unsafe.Add(at, l*cacheLine)), a.pitch(), lines)
	}
}
