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

// pitchA is the bytes of a converted row, and tileA those of a packed tile; the
// 64 extra bytes keep rows and tiles from sharing cache sets.
func pitchA(kc int) int             { return roundUp(kc*4, 64) + 64 }
func (m *machine) tileA(kc int) int { return roundUp(kc*m.mr*4, 128) + 64 }

// bytes returns the scratch for a block of mb rows.
func (s sourceA) bytes(m *machine, mb, kc int) int {
	switch s {
	case rowsA:
		return mb * pitchA(kc)
	case panelsA:
		full, r1, r2 := m.tiles(mb)
		// Short tiles are packed in whole vectors, up to 64 bytes past their last row.
		return (full+btoi(r1 > 0)+btoi(r2 > 0))*m.tileA(kc) + 64
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
				q.ahead = q.b
			case p.prepacked:
				p.packedPanel(&q, (*byte)(args.B.Data), block, (b.j0+j)/m.nr)
			default:
				p.packedPanel(&q, &shared[0], block, (b.j0+j)/m.nr)
			}
			p.column(rows, a, &q, worker)
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
	data      *byte
	rsa, csa  int
	tileBytes int // not 0: tiles are packed, tileBytes from one to the next
}

// blockA returns the words of rows [i0,i1) from element k0, converting and
// packing them into the worker's scratch where needed.
func (p *Plan) blockA(b block, args *Args, k0, words int, worker []byte) operandA {
	m := p.m
	rows, kn := b.i1-b.i0, min(words*m.elems(), p.k-k0)
	pitch := args.A.pitch()
	switch p.source {
	case directA:
		return operandA{data: (*byte)(args.A.at(b.i0, k0)), rsa: pitch, csa: 4}
	case rowsA:
		dst, rowBytes := &worker[p.scratchA], pitchA(p.packing.kc)
		m.toWord[p.a](rows, kn, (*byte)(args.A.at(b.i0, k0)), pitch, dst, rowBytes)
		if kn%m.elems() != 0 {
			for i := range rows {
				*(*uint16)(unsafe.Pointer(add(dst, i*rowBytes+2*kn))) = 0
			}
		}
		return operandA{data: dst, rsa: rowBytes, csa: 4}
	}
	tileBytes := m.tileA(p.packing.kc)
	full, r1, r2 := m.tiles(rows)
	if full > 0 {
		m.tilesA[p.a](kn, full, (*byte)(args.A.at(k0, b.i0)), pitch, &worker[p.scratchA], tileBytes)
	}
	short := p.scratchA + full*tileBytes
	if i := b.i0 + full*m.mr; r1 > 0 {
		m.panelA[p.a](kn, r1, (*byte)(args.A.at(k0, i)), pitch, &worker[short], r1*4)
	}
	if i := b.i0 + full*m.mr + r1; r2 > 0 {
		m.panelA[p.a](kn, r2, (*byte)(args.A.at(k0, i)), pitch, &worker[short+tileBytes], r2*4)
	}
	return operandA{data: &worker[p.scratchA], tileBytes: tileBytes}
}

// product is one panel's worth of work: up to nr columns of C.
type product struct {
	words, n   int
	b          *byte
	bs         int
	c          *byte
	ldc, acc   int
	ahead      *byte // the next panel
	aheadBytes int
}

// packedPanel points q at a panel of the packed B at base.
func (p *Plan) packedPanel(q *product, base *byte, block, panel int) {
	q.b, q.bs = add(base, p.packing.offset(block, panel)), p.m.nr*4
	q.ahead, q.aheadBytes = q.b, 0
	if panel+1 < p.packing.panels {
		q.ahead, q.aheadBytes = add(base, p.packing.offset(block, panel+1)), q.words*p.m.nr*4
	}
}

// column runs the kernels down the rows of one panel.
func (p *Plan) column(rows int, a operandA, q *product, worker []byte) {
	full, r1, r2 := p.m.tiles(rows)
	if full > 0 {
		p.tile(full, p.m.mr, 0, 0, &a, q, worker)
	}
	if r1 > 0 {
		p.tile(1, r1, full*p.m.mr, full, &a, q, worker)
	}
	if r2 > 0 {
		p.tile(1, r2, full*p.m.mr+r1, full+1, &a, q, worker)
	}
}

// tile runs one kernel over tiles of mr rows, from row i, tile t of the block.
// Addresses are formed only for rows that exist, as a Go pointer must not
// point past its object.
func (p *Plan) tile(tiles, mr, i, t int, a *operandA, q *product, worker []byte) {
	m := p.m
	data, ta, rsa, csa := add(a.data, i*a.rsa), mr*a.rsa, a.rsa, a.csa
	if a.tileBytes > 0 {
		data, ta, rsa, csa = add(a.data, t*a.tileBytes), a.tileBytes, 4, mr*4
	}
	c := add(q.c, i*q.ldc)
	if q.n == m.nr || m.masked {
		step := q.aheadBytes / max(1, tiles*(q.words/4))
		m.kern[mr](tiles, q.words, data, ta, rsa, csa, q.b, q.bs, c, q.ldc, q.n, q.acc, q.ahead, step)
		return
	}
	edge := &worker[p.edge]
	for x := range tiles {
		m.kern[mr](1, q.words, add(data, x*ta), ta, rsa, csa, q.b, q.bs, edge, m.nr*4, m.nr, 0, q.b, 0)
		addEdge(mr, q.n, edge, m.nr*4, add(c, x*mr*q.ldc), q.ldc, q.acc)
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
