package gemm

import "unsafe"

// Run computes one task of a phase. Every task of a phase must run exactly
// once, on any worker; shared is common to all, worker is the caller's own.
func (p *Plan) Run(phase, task int, args *Args, shared, worker []byte) {
	i := p.slabOf(phase)
	mul, pack := p.mulTasks(i), p.packTasks(i+1)
	// Packing is spread evenly among the products, so that memory and
	// arithmetic are busy at the same time.
	packed := task * pack / (mul + pack)
	if (task+1)*pack/(mul+pack) > packed {
		p.packSlab(i+1, packed, &args.B, shared, worker)
		return
	}
	task -= packed
	// Tasks in a row share columns of B, the operand a task reads most of.
	s := p.slab(i)
	bi, bj := task%p.grid.rows, task/p.grid.rows
	b := block{
		i0: bi * p.grid.mb, i1: min(p.rows, (bi+1)*p.grid.mb),
		j0: bj * p.grid.nb, j1: min(s.cols, (bj+1)*p.grid.nb),
	}
	if p.packs() {
		shared = p.half(i, shared)
	}
	p.multiply(s, b, args, shared, worker)
}

// block is the part of C one task computes; columns count from the slab.
type block struct{ i0, i1, j0, j1 int }

// multiply adds what a slab gives to one block of C.
func (p *Plan) multiply(s slab, b block, args *Args, shared, worker []byte) {
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
		a := m.blockA(p.source, &args.A, b.i0, rows, k0, min(words*m.elems(), p.k-k0), worker)
		q := panel{words: words, ldc: ldc, acc: btoi(p.accumulate || kb > 0)}
		for j := 0; j < cols; j += m.nr {
			q.n, q.c = min(m.nr, cols-j), add(c, 4*j)
			p.point(&q, s, kb, b.j0+j, args, shared)
			if kb == p.packing.blocks-1 {
				if args.Bias != nil {
					q.bias = (*byte)(unsafe.Add(args.Bias, 4*(s.j0+b.j0+j)))
				}
				for k := range streams {
					q.stream(&streams[k], b.i0, rows, s.j0+b.j0+j)
				}
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

// point makes q multiply by the panel of block kb at column j of the slab.
func (p *Plan) point(q *panel, s slab, kb, j int, args *Args, shared []byte) {
	nr := p.m.nr
	q.nfetch = 0
	if p.direct {
		q.b, q.bs = (*byte)(args.B.at(kb*p.packing.kc, s.j0+j)), args.B.pitch()
		return
	}
	q.bs = nr * 4
	size := q.words * nr * 4
	if p.prepacked {
		q.b = add((*byte)(args.B.Data), p.packing.offset(kb, j/nr))
	} else {
		q.b = &shared[p.slabOffset(s, kb, j/nr)]
	}
	if j+nr < s.cols { // the next panel follows
		q.want(add(q.b, size), cacheLine, size/cacheLine)
	}
}
