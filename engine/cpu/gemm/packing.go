package gemm

// Packing is the layout of a packed op(B) [K, N]: panels of nr columns, cut
// along K into blocks. It depends on K, N, the word type and the instruction
// set only, so that weights packed once serve every product that reads them
// as op(B) with the same transpose.
type Packing struct {
	m       *machine
	k, n    int
	b       DType
	trans   bool
	kc      int // words in one block of K
	blocks  int
	panels  int
	private int // bytes of scratch a packing task needs
}

// NewPacking lays out op(B) [k, n], stored as type b, for products that are
// computed in words of the given type (see [Plan.Compute]); compute may be
// lowered to F32 by an instruction set without bfloat16 products.
func NewPacking(k, n int, b DType, trans bool, compute DType, opts Options) *Packing {
	p := layout(machineFor(opts.ISA.Resolve(), compute), k, n, b, trans, opts.KC)
	return &p
}

func layout(m *machine, k, n int, b DType, trans bool, kc int) Packing {
	if kc <= 0 {
		kc = defaultKC
	}
	words := m.words(k)
	p := Packing{m: m, k: k, n: n, b: b, trans: trans}
	p.blocks = max(1, ceil(words, kc))
	p.kc = min(words, roundUp(ceil(words, p.blocks), 4))
	p.panels = ceil(n, m.nr)
	if trans && !p.natural() {
		p.private = m.lanes * p.tempPitch()
	}
	return p
}

// Bytes returns the size of the packed buffer, which must be 64-byte aligned.
func (p *Packing) Bytes() int { return p.panels * p.m.nr * p.m.words(p.k) * 4 }

// WorkerBytes returns the scratch, 64-byte aligned, each worker needs.
func (p *Packing) WorkerBytes() int { return p.private }

// Tasks returns the number of independent tasks of one packing.
func (p *Packing) Tasks() int { return p.panels * p.blocks }

// Run packs one task's share of b into dst.
func (p *Packing) Run(task int, b *Matrix, dst, worker []byte) {
	block, panel := task%p.blocks, task/p.blocks
	j := panel * p.m.nr
	p.packBlock(&p.m.shared, block, j, min(p.m.nr, p.n-j), b, &dst[p.offset(block, panel)], worker)
}

// natural reports whether stored elements are words already when read along k.
func (p *Packing) natural() bool { return p.b == p.m.word && p.k%p.m.elems() == 0 }

// tempPitch is the bytes of a row of words before transposition.
func (p *Packing) tempPitch() int { return rowPitch(p.kc) }

// blockWords returns the words of one block of K.
func (p *Packing) blockWords(block int) int {
	return min(p.kc, p.m.words(p.k)-block*p.kc)
}

// offset returns where a panel's block starts in the packed buffer; its words
// are nr*4 bytes apart.
func (p *Packing) offset(block, panel int) int {
	nr := p.m.nr * 4
	return block*p.kc*p.panels*nr + panel*p.blockWords(block)*nr
}

// packBlock packs one block of the panel of cols columns from j to out.
func (p *Packing) packBlock(how *packB, block, j, cols int, b *Matrix, out *byte, worker []byte) {
	m, words := p.m, p.blockWords(block)
	k0 := block * p.kc * m.elems()
	kn := min(words*m.elems(), p.k-k0)
	if !p.trans {
		how.panel[p.b](kn, cols, (*byte)(b.at(k0, j)), b.pitch(), out, m.nr*4)
		return
	}
	for h := 0; h < cols; h += m.lanes {
		c := min(m.lanes, cols-h)
		src, pitch := (*byte)(b.at(j+h, k0)), b.pitch()
		if !p.natural() {
			src, pitch = p.widen(c, kn, src, pitch, worker), p.tempPitch()
		}
		how.transpose(words, c, src, pitch, add(out, 4*h), m.nr*4)
	}
}

// widen converts rows of kn elements to words in the worker's scratch.
func (p *Packing) widen(rows, kn int, src *byte, pitch int, worker []byte) *byte {
	p.m.toWord[p.b](rows, kn, src, pitch, &worker[0], p.tempPitch())
	p.m.padRows(rows, kn, worker, p.tempPitch())
	return &worker[0]
}

func ceil(a, b int) int { return (a + b - 1) / b }

func roundUp(a, b int) int { return ceil(a, b) * b }
