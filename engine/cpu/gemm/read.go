package gemm

import "unsafe"

// Reader writes elements of row i of a stored matrix, from column j on, to dst.
type Reader func(dst []float32, data unsafe.Pointer, i, j int)

// readScratch is a worker's scratch for packing a B that a Reader supplies: rows of words
// if B is transposed, otherwise nothing, and the elements decoded at a time.
func (p *Plan) readScratch() int {
	if p.packing.trans {
		return p.readRows() + mapBytes(p.packing.kc*p.m.elems())
	}
	return mapBytes(mapRows * p.m.nr)
}

// readRows is the size of the rows of words.
func (p *Plan) readRows() int { return roundUp(p.m.lanes*p.packing.tempPitch(), 64) }

// packRead packs one block of the panel of cols columns of B from j to out, as its Reader
// supplies it.
func (p *Plan) packRead(block, j, cols int, b *Matrix, out *byte, worker []byte) {
	m, q := p.m, &p.packing
	words := q.blockWords(block)
	k0 := block * q.kc * m.elems()
	kn := min(words*m.elems(), p.k-k0)
	if !q.trans {
		r := p.mapper(nil, b.Type, mapRows*m.nr, worker)
		x := r.floats(mapRows * m.nr)
		for k := 0; k < kn; k += mapRows {
			rows := min(mapRows, kn-k)
			for i := range rows {
				p.readB(x[i*m.nr:i*m.nr+cols], b.Data, k0+k+i, j)
				clear(x[i*m.nr+cols : (i+1)*m.nr])
			}
			from, t := r.apply(rows * m.nr)
			p.packer.panel[t](rows, cols, from, t.Size()*m.nr, add(out, k/m.elems()*m.nr*m.bytes()), m.nr*m.bytes())
		}
		return
	}
	r := p.mapper(nil, b.Type, kn, worker[p.readRows():])
	for h := 0; h < cols; h += m.lanes {
		c := min(m.lanes, cols-h)
		for i := range c {
			p.readB(r.floats(kn), b.Data, j+h+i, k0)
			from, t := r.apply(kn)
			m.toWord[t](1, kn, from, 0, &worker[i*q.tempPitch()], 0)
		}
		m.padRows(c, kn, worker, q.tempPitch())
		p.packer.transpose(words, c, &worker[0], q.tempPitch(), add(out, h*m.bytes()), m.nr*m.bytes())
	}
}
