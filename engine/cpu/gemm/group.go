package gemm

// panelGroup is the part of op(B) that is packed at one time: blocks of K by columns.
// While one group is multiplied, the next is packed into the other half of the shared
// buffer, so that reading B from memory overlaps with arithmetic.
type panelGroup struct {
	kb0, kb1 int // blocks of K
	j0, cols int
}

// panelGroups says how op(B) is cut: along N within a range of K, and along K first when
// C is float32 and can take several partial sums.
type panelGroups struct {
	blocks int // of K in one group
	cols   int
	alongK int // groups along K
	alongN int
}

func (s panelGroups) count() int { return s.alongK * s.alongN }

// groupLimit is the size of a group: a share of the last-level cache for each
// worker, as a packed group is read again for every block of rows.
func groupLimit(workers int) int { return min(max(2*workers, 4), 32) << 20 }

// cut chooses the groups of at most limit bytes, but at least one block by one
// panel, that move the fewest bytes: each group along N reads A again, each
// group along K reads and writes C again.
func (p *Plan) cut(limit int) panelGroups {
	nr := p.m.nr
	blockPanels := max(1, limit/(p.packing.kc*nr*p.m.bytes())) // panels of one block within the limit
	bytesA := p.rows * p.k * p.a.Size()
	if p.source != directA {
		bytesA *= 3 // it is packed again, too
	}
	bytesC := p.rows * p.cols * 4
	var best panelGroups
	least, small := 0, false
	for along := 1; along <= p.packing.blocks; along++ {
		s := panelGroups{blocks: ceil(p.packing.blocks, along)}
		s.alongK = ceil(p.packing.blocks, s.blocks)
		s.cols = roundUp(ceil(p.cols, ceil(p.packing.panels, max(1, blockPanels/s.blocks))), nr)
		s.alongN = ceil(p.cols, s.cols)
		moved := (s.alongN-1)*bytesA + (s.alongK-1)*2*bytesC
		fits := s.groupBytes(p) <= limit
		if along == 1 || fits && (!small || moved < least) {
			best, least, small = s, moved, fits
		}
		if p.c != F32 {
			break // its sums stay in a worker's scratch
		}
	}
	return best
}

// groupBytes returns the size of the largest group.
func (s panelGroups) groupBytes(p *Plan) int {
	return min(s.blocks*p.packing.kc, p.m.words(p.k)) * min(s.cols, roundUp(p.cols, p.m.nr)) * p.m.bytes()
}

// group returns group i; groups along K follow one another, so that a part of C is
// finished before the next begins.
func (p *Plan) group(i int) panelGroup {
	kb, j := i%p.groups.alongK*p.groups.blocks, i/p.groups.alongK*p.groups.cols
	return panelGroup{
		kb0: kb, kb1: min(p.packing.blocks, kb+p.groups.blocks),
		j0: j, cols: min(p.groups.cols, p.cols-j),
	}
}

// half returns the part of the shared buffer for group i.
func (p *Plan) half(i int, shared []byte) []byte { return shared[i%2*p.groups.groupBytes(p):] }

// groupOffset returns the offset of a panel of a block within its group.
func (p *Plan) groupOffset(s panelGroup, kb, panel int) int {
	nr := p.m.nr
	return ((kb-s.kb0)*p.packing.kc*ceil(s.cols, nr) + panel*p.packing.blockWords(kb)) * nr * p.m.bytes()
}

// packGroup runs task of the packTasks of group i.
func (p *Plan) packGroup(i, task int, b *Matrix, shared, worker []byte) {
	s := p.group(i)
	kb, panel := s.kb0+task%(s.kb1-s.kb0), task/(s.kb1-s.kb0)
	j := panel * p.m.nr
	out, cols := &p.half(i, shared)[p.groupOffset(s, kb, panel)], min(p.m.nr, s.cols-j)
	if p.readB != nil {
		p.packRead(kb, s.j0+j, cols, b, out, worker)
		return
	}
	if p.mapB != nil {
		p.packMapped(kb, s.j0+j, cols, b, out, worker)
		return
	}
	p.packing.packBlock(p.packer, kb, s.j0+j, cols, b, out, worker)
}

// packTasks returns the tasks that pack group i, 0 if there is none.
func (p *Plan) packTasks(i int) int {
	if !p.packs() || i >= p.groups.count() {
		return 0
	}
	s := p.group(i)
	return ceil(s.cols, p.m.nr) * (s.kb1 - s.kb0)
}

// mulTasks returns the tasks that multiply by group i.
func (p *Plan) mulTasks(i int) int {
	if i < 0 {
		return 0
	}
	return p.grid.rows * ceil(p.group(i).cols, p.grid.nb)
}
