package gemm

// packing is the layout of a packed op(B) [K, N]: panels of nr columns, cut
// along K into blocks.
type packing struct {
	m      *machine
	k      int
	b      DType
	trans  bool
	kc     int // words in one block of K
	blocks int
	panels int
}

// layout returns the layout of op(B) [k, n], stored as type b.
func layout(m *machine, k, n int, b DType, trans bool, kc int) packing {
	if kc <= 0 {
		kc = defaultKC
	}
	words := m.words(k)
	p := packing{m: m, k: k, b: b, trans: trans}
	units := 1
	if m.quads { // blocks of as many elements as with pairs, which give the same bits
		units = 2
	}
	p.blocks = max(1, ceil(words*units, kc))
	p.kc = min(words, roundUp(ceil(words*units, p.blocks), 4)/units)
	p.panels = ceil(n, m.nr)
	return p
}

// scratch returns the bytes that a packing task needs.
func (p *packing) scratch() int {
	if p.trans && !p.natural() {
		return p.m.lanes * p.tempPitch()
	}
	return 0
}

// natural reports whether stored elements are words already when read along k.
func (p *packing) natural() bool { return p.b == p.m.word && p.k%p.m.elems() == 0 }

// tempPitch is the bytes of a row of words before transposition.
func (p *packing) tempPitch() int { return p.m.rowPitch(p.kc) }

// blockWords returns the words of one block of K.
func (p *packing) blockWords(block int) int {
	return min(p.kc, p.m.words(p.k)-block*p.kc)
}

// packBlock packs one block of the panel of cols columns from j to out.
func (p *packing) packBlock(by *packer, block, j, cols int, b *Matrix, out *byte, worker []byte) {
	m, words := p.m, p.blockWords(block)
	k0 := block * p.kc * m.elems()
	kn := min(words*m.elems(), p.k-k0)
	if !p.trans {
		by.panel[p.b](kn, cols, (*byte)(b.at(k0, j)), b.pitch(), out, m.nr*m.bytes())
		return
	}
	for h := 0; h < cols; h += m.lanes {
		c := min(m.lanes, cols-h)
		src, pitch := (*byte)(b.at(j+h, k0)), b.pitch()
		if !p.natural() {
			src, pitch = p.widen(c, kn, src, pitch, worker), p.tempPitch()
		}
		by.transpose(words, c, src, pitch, add(out, h*m.bytes()), m.nr*m.bytes())
	}
}

// widen converts rows of kn elements to words in the worker's scratch.
func (p *packing) widen(rows, kn int, src *byte, pitch int, worker []byte) *byte {
	p.m.toWord[p.b](rows, kn, src, pitch, &worker[0], p.tempPitch())
	p.m.padRows(rows, kn, worker, p.tempPitch())
	return &worker[0]
}

func ceil(a, b int) int { return (a + b - 1) / b }

func roundUp(a, b int) int { return ceil(a, b) * b }
