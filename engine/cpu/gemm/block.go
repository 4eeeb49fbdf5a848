package gemm

import "unsafe"

// sourceA says where the kernels read A from.
type sourceA uint8

const (
	directA   sourceA = iota // the operand itself
	rowsA                    // rows converted to words in scratch
	tilesA                   // tiles of mr columns of a transposed operand, packed in scratch
	rowTilesA                // tiles of mr rows, packed in scratch
)

func (m *machine) sourceOf(a DType, trans bool, k int) sourceA {
	switch {
	case trans:
		return tilesA
	case a == m.word && k%m.elems() == 0:
		return directA
	}
	return rowsA
}

// rowPitch is the bytes of a converted row, tilePitch those of a packed tile;
// the odd 64 bytes keep rows and tiles from sharing cache sets.
func (m *machine) rowPitch(words int) int  { return oddLines(words * m.bytes()) }
func (m *machine) tilePitch(words int) int { return oddLines(words * m.mr * m.bytes()) }
func oddLines(bytes int) int               { return roundUp(bytes, 128) + 64 }

// blockBytes returns the scratch for rows rows of words words of A.
func (m *machine) blockBytes(s sourceA, rows, words int) int {
	switch s {
	case rowsA:
		return rows * m.rowPitch(words)
	case tilesA, rowTilesA:
		full, r1, r2 := m.tiles(rows)
		// Short tiles are packed in whole vectors, up to 64 bytes past their last row.
		return (full+btoi(r1 > 0)+btoi(r2 > 0))*m.tilePitch(words) + 64
	}
	return 0
}

// Block is a part of A as the kernels read it; see [Micro.PackA].
type Block struct {
	data      *byte
	rsa, csa  int // bytes from row to row, from word to word
	tilePitch int // not 0: tiles are packed, one every tilePitch bytes
}

// blockA returns rows rows of op(A) from row i0, kn elements from k0,
// converting and packing them into dst if s requires it.
func (m *machine) blockA(s sourceA, a *Matrix, i0, rows, k0, kn int, dst []byte) Block {
	switch s {
	case directA:
		return Block{data: (*byte)(a.at(i0, k0)), rsa: a.pitch(), csa: m.bytes()}
	case rowsA:
		pitch := m.rowPitch(m.words(kn))
		m.toWord[a.Type](rows, kn, (*byte)(a.at(i0, k0)), a.pitch(), &dst[0], pitch)
		m.padRows(rows, kn, dst, pitch)
		return Block{data: &dst[0], rsa: pitch, csa: m.bytes()}
	case rowTilesA:
		return m.packRowTiles(rows, kn, a, i0, k0, dst)
	}
	return m.packTiles(rows, kn, a, i0, k0, 0, m.words(kn), dst)
}

// packTiles packs the words of kn elements from k0 on of the rows from i0 on of
// a transposed op(A) as words at.. of tiles of words words.
func (m *machine) packTiles(rows, kn int, a *Matrix, i0, k0, at, words int, dst []byte) Block {
	pitch := m.tilePitch(words)
	full, r1, r2 := m.tiles(rows)
	row := m.mr * m.bytes()
	out := func(tile int) *byte { return &dst[tile*pitch+at*row] }
	if full > 0 {
		m.tilesA[a.Type](kn, full, (*byte)(a.at(k0, i0)), a.pitch(), out(0), pitch)
	}
	i0 += full * m.mr
	if r1 > 0 {
		m.panelA[a.Type](kn, r1, (*byte)(a.at(k0, i0)), a.pitch(), out(full), row)
	}
	if r2 > 0 {
		m.panelA[a.Type](kn, r2, (*byte)(a.at(k0, i0+r1)), a.pitch(), out(full+1), row)
	}
	return Block{data: &dst[0], tilePitch: pitch}
}

// packRowTiles packs kn elements from k0 on of the rows from i0 on of op(A).
func (m *machine) packRowTiles(rows, kn int, a *Matrix, i0, k0 int, dst []byte) Block {
	pitch := m.tilePitch(m.words(kn))
	full, r1, r2 := m.tiles(rows)
	for tile, i := 0, 0; i < rows; tile++ {
		n := m.mr
		switch tile {
		case full:
			n = r1
		case full + 1:
			n = r2
		}
		m.rowTile[a.Type](kn, n, (*byte)(a.at(i0+i, k0)), a.pitch(), &dst[tile*pitch])
		i += n
	}
	return Block{data: &dst[0], tilePitch: pitch}
}

// padRows clears the element after rows of an odd number of elements when a word holds
// two. Words of four contain only elements of the rows.
func (m *machine) padRows(rows, kn int, dst []byte, pitch int) {
	if kn%m.elems() == 0 {
		return
	}
	for i := range rows {
		*(*uint16)(unsafe.Pointer(&dst[i*pitch+2*kn])) = 0
	}
}

// tiles cuts rows into full tiles and up to two smaller ones. A remainder of less than
// half a tile is merged with a full tile and split in halves, as short tiles do not fill
// the pipeline.
func (m *machine) tiles(rows int) (full, r1, r2 int) {
	full, r1 = rows/m.mr, rows%m.mr
	if r1 > 0 && 2*r1 < m.mr && full > 0 {
		full--
		r1 += m.mr
		return full, (r1 + 1) / 2, r1 / 2
	}
	return full, r1, 0
}

// panel is up to nr columns of a matmul.
type panel struct {
	words, n int
	b        *byte
	bs       int // bytes from word to word
	c        *byte
	ldc, acc int
	bias     *byte // of the columns, or nil
	// fetch is memory to prefetch.
	fetch  [maxFetches]fetch
	nfetch int
}

// cacheLine is the number of bytes that one prefetch loads.
const cacheLine = 64

// fetch is some cache lines, step bytes apart.
type fetch struct {
	at          *byte
	step, lines int
}

// maxFetches counts the next panel of B, two lines of each row of three streams, and two
// columns of lines of A.
const maxFetches = 1 + 2*3 + 2

// want adds memory to prefetch while the panel is multiplied, if there is room.
func (q *panel) want(at *byte, step, lines int) {
	if q.nfetch < maxFetches {
		q.fetch[q.nfetch] = fetch{at, step, lines}
		q.nfetch++
	}
}

// stream prefetches the part of s that belongs to rows rows of C from row i and the
// columns of the panel, the first of which is j.
func (q *panel) stream(s *Stream, i, rows, j int) {
	at := (*byte)(unsafe.Add(s.Data, i*s.Pitch+j*s.Size))
	for line := 0; line < q.n*s.Size; line += cacheLine {
		q.want(add(at, line), s.Pitch, rows)
	}
}

// multiply runs the kernels down the rows of one panel. Addresses are formed
// only for rows that exist, as a Go pointer must not point past its object.
func (m *machine) multiply(rows int, a *Block, q *panel) {
	full, r1, r2 := m.tiles(rows)
	t := 0
	// A kernel fetches a line for every four words of every tile.
	for _, f := range q.fetch[:q.nfetch] {
		if n := min(full-t, ceil(f.lines, max(1, q.words/4))); n > 0 {
			m.tile(n, m.mr, t*m.mr, t, a, q, f)
			t += n
		}
	}
	if full > t {
		m.tile(full-t, m.mr, t*m.mr, t, a, q, fetch{at: q.b})
	}
	if r1 > 0 {
		m.tile(1, r1, full*m.mr, full, a, q, fetch{at: q.b})
	}
	if r2 > 0 {
		m.tile(1, r2, full*m.mr+r1, full+1, a, q, fetch{at: q.b})
	}
}

// tile runs one kernel over tiles of mr rows, from row i, tile t of the block.
func (m *machine) tile(tiles, mr, i, t int, a *Block, q *panel, f fetch) {
	data, ta, rsa, csa := add(a.data, i*a.rsa), mr*a.rsa, a.rsa, a.csa
	kern := m.kern
	switch {
	case a.tilePitch > 0:
		data, ta, rsa, csa = add(a.data, t*a.tilePitch), a.tilePitch, m.bytes(), m.mr*m.bytes()
	case m.inRows != nil:
		kern = m.inRows
	}
	kern[mr](tiles, q.words, data, ta, rsa, csa, q.b, q.bs, add(q.c, i*q.ldc), q.ldc, q.n, q.acc, q.bias, f.at, f.step)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
