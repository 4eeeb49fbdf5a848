package gemm

import "unsafe"

// Map is a function of one argument applied to the elements of an operand as they are
// read. It is called with n elements at a time; dst may be x.
type Map func(dst, x []float32)

// mapRows is how many rows of B are mapped at a time: they stay in the
// first-level cache on their way into a panel.
const mapRows = 64

// mapBytes is the scratch for mapping n elements: as float32, and rounded to the 16 bits
// of their operand where words are wider.
func mapBytes(n int) int { return roundUp(4*n, 64) + roundUp(2*n, 64) }

// mapper applies a function to elements.
type mapper struct {
	f     Map
	m     *machine
	wide  *machine // of float32 words and panels as wide
	t     DType    // type of the operand
	x, lo *byte    // float32 and 16-bit scratch
}

func (p *Plan) mapper(f Map, t DType, n int, scratch []byte) mapper {
	return mapper{f, p.m, p.wide, t, &scratch[0], &scratch[roundUp(4*n, 64)]}
}

// apply maps the n elements in x, and returns where they are then and in which type:
// converting them to words gives the same words as if the operand had been stored mapped.
func (r *mapper) apply(n int) (*byte, DType) {
	if x := r.floats(n); r.f != nil {
		r.f(x, x)
	}
	if r.t == F32 || r.t == r.m.word {
		return r.x, F32
	}
	r.m.fromF32[r.t](1, n, r.x, 0, r.lo, 0)
	return r.lo, r.t
}

// floats is the float32 scratch.
func (r *mapper) floats(n int) []float32 { return unsafe.Slice((*float32)(unsafe.Pointer(r.x)), n) }

// mappedA is blockA for an operand with a Map.
func (p *Plan) mappedA(a *Matrix, i0, rows, k0, kn int, worker []byte) Block {
	m, pitch := p.m, p.m.rowPitch(p.m.words(kn))
	r := p.mapper(p.mapA, a.Type, kn, worker[p.m.blockBytes(rowsA, p.grid.mb, p.packing.kc):])
	for i := range rows {
		src, dst := (*byte)(a.at(i0+i, k0)), &worker[i*pitch]
		if a.Type == F32 && m.word == F32 {
			p.mapA(unsafe.Slice((*float32)(unsafe.Pointer(dst)), kn), unsafe.Slice((*float32)(unsafe.Pointer(src)), kn))
			continue
		}
		m.toF32[a.Type](1, kn, src, 0, r.x, 0)
		from, t := r.apply(kn)
		m.toWord[t](1, kn, from, 0, dst, 0)
	}
	m.padRows(rows, kn, worker, pitch)
	return Block{data: &worker[0], rsa: pitch, csa: m.bytes()}
}

// packMapped packs one block of the panel of cols columns of B from j to out,
// mapped.
func (p *Plan) packMapped(block, j, cols int, b *Matrix, out *byte, worker []byte) {
	m, words := p.m, p.packing.blockWords(block)
	k0 := block * p.packing.kc * m.elems()
	kn := min(words*m.elems(), p.k-k0)
	r := p.mapper(p.mapB, b.Type, mapRows*m.nr, worker)
	for k := 0; k < kn; k += mapRows {
		rows := min(mapRows, kn-k)
		p.wide.own.panel[b.Type](rows, cols, (*byte)(b.at(k0+k, j)), b.pitch(), r.x, 4*m.nr)
		from, t := r.apply(rows * m.nr)
		p.packer.panel[t](rows, cols, from, t.Size()*m.nr, add(out, k/m.elems()*m.nr*m.bytes()), m.nr*m.bytes())
	}
}
