package gemm

import "unsafe"

// sourceA says where the kernels read A from.
type sourceA uint8

const (
	directA sourceA = iota // the operand itself
	rowsA                  // rows converted to words in scratch
	panelsA                // tiles of mr columns of a transposed operand, packed in scratch
)

func sourceOf(m *machine, a DType, trans bool, k int) sourceA {
	switch {
	case trans:
		return panelsA
	case a == m.word && k%m.elems() == 0:
		return directA
	}
	return rowsA
}

// pitchA is the bytes of a converted row; the 64 extra bytes keep the rows of
// a tile from sharing cache sets.
func pitchA(kc int) int { return roundUp(kc*4, 64) + 64 }

// bytes returns the scratch for a block of mb rows.
func (s sourceA) bytes(m *machine, mb, kc int) int {
	switch s {
	case rowsA:
		return mb * pitchA(kc)
	case panelsA:
		return roundUp(mb, m.mr)*kc*4 + 64 // packing writes whole vectors past the last row
	}
	return 0
}

// Run computes one task of a phase. Every task of a phase must run exactly
// once, on any worker; shared is common to all, worker is the caller's own.
func (p *Plan) Run(phase, task int, args *Args, shared, worker []byte) {
	n := p.phasesPerSlab()
	slab := phase / n
	j0 := slab * p.slabCols
	width := p.slabWidth(slab)
	if n == 2 && phase%2 == 0 {
		p.packing.run(task, &args.B, j0, width, shared, worker)
		return
	}
	// Neighbouring tasks share columns of B, the larger operand of a task.
	bi, bj := task%p.grid.rows, task/p.grid.rows
	b := block{
		i0: bi * p.grid.mb, i1: min(p.rows, (bi+1)*p.grid.mb),
		j0: bj * p.grid.nb, j1: min(width, (bj+1)*p.grid.nb),
		slab: j0,
	}
	p.multiply(b, args, shared, worker)
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
	for block := range p.packing.blocks {
		words := p.packing.blockWords(block)
		k0 := block * p.packing.kc * m.elems()
		a := p.blockA(b, args, k0, words, worker)
		acc := btoi(p.accumulate || block > 0)
		for j := 0; j < cols; j += m.nr {
			q := product{words: words, n: min(m.nr, cols-j), c: add(c, 4*j), ldc: ldc, acc: acc}
			switch {
			case p.direct:
				q.b, q.bs = (*byte)(args.B.at(k0, b.j0+j)), args.B.pitch()
			case p.prepacked:
				q.b = add((*byte)(args.B.Data), p.packing.offset(block, (b.j0+j)/m.nr))
				q.bs = m.nr * 4
			default:
				q.b, q.bs = &shared[p.packing.offset(block, (b.j0+j)/m.nr)], m.nr*4
			}
			p.column(rows, a, q, worker)
		}
	}
	if args.Epilogue != nil {
		args.Epilogue.Tile(b.i0, b.i1, b.slab+b.j0, b.slab+b.j1, (*float32)(unsafe.Pointer(c)), ldc/4)
	}
	if p.c != F32 {
		m.fromF32[p.c](rows, cols, c, ldc, out, outPitch)
	}
}

// operandA is a block of A as the kernels read it.
type operandA struct {
	data     *byte
	rsa, csa int
	panels   bool // tiles are packed one after the other
}

// blockA returns the words of rows [i0,i1) from element k0, converting and
// packing them into the worker's scratch where needed.
func (p *Plan) blockA(b block, args *Args, k0, words int, worker []byte) operandA {
	m := p.m
	kn := min(words*m.elems(), p.k-k0)
	switch p.source {
	case directA:
		return operandA{data: (*byte)(args.A.at(b.i0, k0)), rsa: args.A.pitch(), csa: 4}
	case rowsA:
		dst, pitch := &worker[p.scratchA], pitchA(p.packing.kc)
		m.toWord[p.a](b.i1-b.i0, kn, (*byte)(args.A.at(b.i0, k0)), args.A.pitch(), dst, pitch)
		if kn%m.elems() != 0 {
			for i := range b.i1 - b.i0 {
				*(*uint16)(unsafe.Pointer(add(dst, i*pitch+2*kn))) = 0
			}
		}
		return operandA{data: dst, rsa: pitch, csa: 4}
	}
	full, r1, r2 := m.tiles(b.i1 - b.i0)
	i, at := b.i0, p.scratchA
	for t := range full + 2 {
		mr := m.mr
		if t >= full {
			mr, r1, r2 = r1, r2, 0
		}
		if mr > 0 {
			m.panelA[p.a](kn, mr, (*byte)(args.A.at(k0, i)), args.A.pitch(), &worker[at], mr*4)
		}
		i, at = i+mr, at+mr*words*4
	}
	return operandA{data: &worker[p.scratchA], panels: true}
}

// product is one panel's worth of work: up to nr columns of C.
type product struct {
	words, n int
	b        *byte
	bs       int
	c        *byte
	ldc, acc int
}

// column runs the kernels down the rows of one panel.
func (p *Plan) column(rows int, a operandA, q product, worker []byte) {
	full, r1, r2 := p.m.tiles(rows)
	if a.panels {
		for t := range full {
			p.tile(1, p.m.mr, t*p.m.mr, &a, &q, worker)
		}
	} else if full > 0 {
		p.tile(full, p.m.mr, 0, &a, &q, worker)
	}
	if r1 > 0 {
		p.tile(1, r1, full*p.m.mr, &a, &q, worker)
	}
	if r2 > 0 {
		p.tile(1, r2, full*p.m.mr+r1, &a, &q, worker)
	}
}

// tile runs one kernel over tiles of mr rows from row i of the block. Addresses
// are formed only for rows that exist: a Go pointer past its object is not allowed.
func (p *Plan) tile(tiles, mr, i int, a *operandA, q *product, worker []byte) {
	m := p.m
	data, rsa, csa := add(a.data, i*a.rsa), a.rsa, a.csa
	if a.panels {
		data, rsa, csa = add(a.data, i*q.words*4), 4, mr*4
	}
	c := add(q.c, i*q.ldc)
	if q.n == m.nr || m.masked {
		m.kern[mr](tiles, q.words, data, rsa, csa, q.b, q.bs, c, q.ldc, q.n, q.acc)
		return
	}
	edge := &worker[p.edge]
	for t := range tiles {
		m.kern[mr](1, q.words, add(data, t*mr*rsa), rsa, csa, q.b, q.bs, edge, m.nr*4, m.nr, 0)
		addEdge(mr, q.n, edge, m.nr*4, add(c, t*mr*q.ldc), q.ldc, q.acc)
	}
}

// addEdge moves the n columns of a tile that exist into C.
func addEdge(mr, n int, edge *byte, pitch int, c *byte, ldc, acc int) {
	for i := range mr {
		for j := range n {
			v := *float(edge, i*pitch+4*j)
			if acc != 0 {
				v += *float(c, i*ldc+4*j)
			}
			*float(c, i*ldc+4*j) = v
		}
	}
}
