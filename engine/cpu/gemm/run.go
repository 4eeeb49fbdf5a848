package gemm

import "unsafe"

// Run computes one task of a phase. Every task of a phase must run exactly
// once, on any worker; shared is common to all, worker is the caller's own.
func (p *Plan) Run(phase, task int, args *Args, shared, worker []byte) {
	n := p.phasesPerSlab()
	slab := phase / n
	width := p.slabWidth(slab)
	if n == 2 && phase%2 == 0 {
		p.packing.run(task, &args.B, slab*p.slabCols, width, shared, worker)
		return
	}
	// Tasks in a row share columns of B, the operand a task reads most of.
	bi, bj := task%p.grid.rows, task/p.grid.rows
	p.multiply(block{
		i0: bi * p.grid.mb, i1: min(p.rows, (bi+1)*p.grid.mb),
		j0: bj * p.grid.nb, j1: min(width, (bj+1)*p.grid.nb),
		slab: slab * p.slabCols,
	}, args, shared, worker)
}

// block is the part of C one task computes; columns count from the slab.
type block struct{ i0, i1, j0, j1, slab int }

// multiply computes one block of C.
func (p *Plan) multiply(b block, args *Args, shared, worker []byte) {
	m := p.m
	c, ldc := (*byte)(args.C.at(b.i0, b.slab+b.j0)), args.C.pitch()
	rows, cols := b.i1-b.i0, b.j1-b.j0
	out, outPitch := c, ldc
	if p.c != F32 {
		c, ldc = &worker[p.scratchC], p.pitchC()
		if p.accumulate {
			m.toF32[p.c](rows, cols, out, outPitch, c, ldc)
		}
	}
	for kb := range p.packing.blocks {
		words := p.packing.blockWords(kb)
		k0 := kb * p.packing.kc * m.elems()
		a := m.blockA(p.source, &args.A, b.i0, rows, k0, min(words*m.elems(), p.k-k0), worker)
		q := panel{words: words, ldc: ldc, acc: btoi(p.accumulate || kb > 0)}
		for j := 0; j < cols; j += m.nr {
			q.n, q.c = min(m.nr, cols-j), add(c, 4*j)
			switch {
			case p.direct:
				q.b, q.bs = (*byte)(args.B.at(k0, b.j0+j)), args.B.pitch()
				q.ahead = q.b
			case p.prepacked:
				p.packing.point(&q, (*byte)(args.B.Data), kb, (b.j0+j)/m.nr)
			default:
				p.packing.point(&q, &shared[0], kb, (b.j0+j)/m.nr)
			}
			m.multiply(rows, &a, &q)
		}
	}
	if args.Epilogue != nil {
		args.Epilogue.Tile(b.i0, b.i1, b.slab+b.j0, b.slab+b.j1, (*float32)(unsafe.Pointer(c)), ldc/4)
	}
	if p.c != F32 {
		m.fromF32[p.c](rows, cols, c, ldc, out, outPitch)
	}
}
