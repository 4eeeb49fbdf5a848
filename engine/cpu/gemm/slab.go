package gemm

// slab is the part of op(B) that is packed at one time: blocks of K by columns.
// While one slab is multiplied the next is packed into the other half of the
// shared buffer, so that reading B from memory is hidden behind arithmetic.
type slab struct {
	kb0, kb1 int // blocks of K
	j0, cols int
}

// slabs is how op(B) is cut: along N within a range of K, and along K first
// when C is float32 and can take several partial sums.
type slabs struct {
	blocks int // of K in one slab
	cols   int
	alongK int // slabs along K
	alongN int
}

func (s slabs) count() int { return s.alongK * s.alongN }

// slabLimit is the size of a slab: a share of the last-level cache for each
// worker, as a packed slab is read again for every block of rows.
func slabLimit(workers int) int { return min(max(2*workers, 4), 32) << 20 }

// cut chooses the slabs of at most limit bytes, but at least one block by one panel.
func (p *Packing) cut(limit int, splitK bool) slabs {
	nr := p.m.nr
	blockCols := max(1, limit/(p.kc*nr*4)) // panels of one block within the limit
	s := slabs{blocks: p.blocks}
	if splitK && p.blocks > 1 {
		s.blocks = min(p.blocks, max(1, blockCols/p.panels))
	}
	s.alongK = ceil(p.blocks, s.blocks)
	s.blocks = ceil(p.blocks, s.alongK)
	s.alongN = ceil(p.panels, max(1, blockCols/s.blocks))
	s.cols = roundUp(ceil(p.n, s.alongN), nr)
	s.alongN = ceil(p.n, s.cols)
	return s
}

// slab returns slab i; slabs along K follow one another, so that a part of C
// is finished before the next is begun.
func (p *Plan) slab(i int) slab {
	kb, j := i%p.slabs.alongK*p.slabs.blocks, i/p.slabs.alongK*p.slabs.cols
	return slab{
		kb0: kb, kb1: min(p.packing.blocks, kb+p.slabs.blocks),
		j0: j, cols: min(p.slabs.cols, p.cols-j),
	}
}

// slabBytes returns the size of the largest slab.
func (p *Plan) slabBytes() int {
	return min(p.slabs.blocks*p.packing.kc, p.m.words(p.k)) * p.slabs.cols * 4
}

// half returns the part of the shared buffer that holds slab i.
func (p *Plan) half(i int, shared []byte) []byte { return shared[i%2*p.slabBytes():] }

// slabOffset returns where a panel of a block lies within its slab.
func (p *Plan) slabOffset(s slab, kb, panel int) int {
	nr := p.m.nr
	return ((kb-s.kb0)*p.packing.kc*ceil(s.cols, nr) + panel*p.packing.blockWords(kb)) * nr * 4
}

// packSlab runs task of the packTasks of slab i.
func (p *Plan) packSlab(i, task int, b *Matrix, shared, worker []byte) {
	s := p.slab(i)
	kb, panel := s.kb0+task%(s.kb1-s.kb0), task/(s.kb1-s.kb0)
	j := panel * p.m.nr
	out := &p.half(i, shared)[p.slabOffset(s, kb, panel)]
	p.packing.packBlock(p.how, kb, s.j0+j, min(p.m.nr, s.cols-j), b, out, worker)
}

// packTasks returns the tasks that pack slab i, 0 if there is none.
func (p *Plan) packTasks(i int) int {
	if !p.packs() || i >= p.slabs.count() {
		return 0
	}
	s := p.slab(i)
	return ceil(s.cols, p.m.nr) * (s.kb1 - s.kb0)
}

// mulTasks returns the tasks that multiply by slab i.
func (p *Plan) mulTasks(i int) int {
	if i < 0 {
		return 0
	}
	return p.grid.rows * ceil(p.slab(i).cols, p.grid.nb)
}
