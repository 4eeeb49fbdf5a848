package gemm

import (
	"slices"
	"unsafe"

	"github.com/snug-ml/snug/internal/isa"
)

// Micro multiplies small blocks on the calling goroutine, for kernels built on matmuls of
// cache-sized tiles (attention, convolution). The caller packs B once, reads A in place
// or packs it, and owns all memory.
type Micro struct {
	m    *machine
	unit int
}

// NewMicro returns the multiplier of an instruction set for operands in words of float32
// or, for BF16 where the hardware multiplies it (otherwise float32), of bfloat16 pairs or
// quads: quads if each of terms is a multiple of four. terms are the lengths along K of
// the operands that are not packed by columns: a B that is stored transposed and an A
// that is not. Other operands are padded with zeros.
func NewMicro(level isa.Level, word DType, terms ...int) Micro {
	m := machineFor(level.Resolve(), word)
	if slices.ContainsFunc(terms, func(k int) bool { return k%4 != 0 }) {
		return Micro{m, m.elems()}
	}
	if m.byQuads != nil {
		m = m.byQuads
	}
	return Micro{m, max(m.unit, m.elems())}
}

// Unit returns the unit that lengths along K are rounded up to and K is cut at: the
// elements of a word, or four where another level multiplies quads, so that both sum the
// same terms.
func (u Micro) Unit() int { return u.unit }

// Word returns the type operands are multiplied in, F32 or BF16.
func (u Micro) Word() DType { return u.m.word }

// Rows and Cols return the size of the register tile: blocks of A in multiples
// of Rows and of B in multiples of Cols waste nothing.
func (u Micro) Rows() int { return u.m.mr }

// Cols returns the columns of one packed panel of B; see Rows.
func (u Micro) Cols() int { return u.m.nr }

// Panels is op(B) as the kernels read it; see [Micro.PackB].
type Panels struct {
	data      *byte
	bs, pitch int // bytes from word to word, from panel to panel
}

// PackedBytes returns the size of op(B) [k, n] packed.
func (u Micro) PackedBytes(k, n int) int {
	return ceil(n, u.m.nr) * u.m.nr * u.Words(k) * u.m.bytes()
}

// ScratchBytes returns the scratch that PackB needs for k.
func (u Micro) ScratchBytes(k int) int { return u.m.lanes * u.m.rowPitch(u.m.words(k)) }

// PackB packs op(B) [k, n] into dst, 64-byte aligned.
func (u Micro) PackB(k, n int, b *Matrix, dst, scratch []byte) Panels {
	p := layout(u.m, k, n, b.Type, b.Trans, k)
	pitch := u.m.nr * u.Words(k) * u.m.bytes()
	for panel := range p.panels {
		j := panel * u.m.nr
		p.packBlock(&u.m.own, 0, j, min(u.m.nr, n-j), b, &dst[panel*pitch], scratch)
		clear(dst[panel*pitch+u.m.words(k)*u.m.nr*u.m.bytes() : (panel+1)*pitch])
	}
	return Panels{&dst[0], u.m.nr * u.m.bytes(), pitch}
}

// ViewB returns a float32 op(B) of n columns, stored untransposed, as panels without
// packing; ok is false if the kernels cannot read it in place.
func (u Micro) ViewB(n int, b *Matrix) (p Panels, ok bool) {
	ok = u.m.word == F32 && b.Type == F32 && !b.Trans && n%u.m.nr <= u.m.exact
	return Panels{(*byte)(b.Data), b.pitch(), u.m.nr * 4}, ok
}

// ViewOrPackB returns op(B) [k, n], stored untransposed, as panels: in place if the kernels
// can read it so, otherwise packed into dst.
func (u Micro) ViewOrPackB(k, n int, b *Matrix, dst []byte) Panels {
	if p, ok := u.ViewB(n, b); ok {
		return p
	}
	return u.PackB(k, n, b, dst, nil)
}

// Rest returns the panels without their first k elements along K, a multiple
// of Unit, and their first n columns, a multiple of Cols.
func (p Panels) Rest(u Micro, k, n int) Panels {
	p.data = add(p.data, n/u.m.nr*p.pitch+k/u.m.elems()*p.bs)
	return p
}

// Rest returns the block without its first m rows, a multiple of Rows, and its
// first k elements along K, a multiple of Unit.
func (b Block) Rest(u Micro, m, k int) Block {
	w := k / u.m.elems()
	if b.tilePitch > 0 {
		b.data = add(b.data, m/u.m.mr*b.tilePitch+w*u.m.mr*u.m.bytes())
		return b
	}
	b.data = add(b.data, m*b.rsa+w*b.csa)
	return b
}

// BlockBytes returns the size of op(A) [m, k], stored as type a, packed.
func (u Micro) BlockBytes(m, k int, a DType, trans bool) int {
	return u.m.blockBytes(u.m.sourceOf(a, trans, k), m, u.Words(k))
}

// PackA returns op(A) [m, k] as a block: in place when it is stored as words already,
// otherwise packed into dst.
func (u Micro) PackA(m, k int, a *Matrix, dst []byte) Block {
	if a.Trans {
		return u.PackPartA(m, k, a, 0, u.Words(k), dst)
	}
	return u.m.blockA(u.m.sourceOf(a.Type, a.Trans, k), a, 0, m, 0, k, dst)
}

// Elems returns how many elements along K a word holds.
func (u Micro) Elems() int { return u.m.elems() }

// Words returns the words that hold k elements.
func (u Micro) Words(k int) int { return u.m.words(roundUp(k, u.unit)) }

// PackPartA packs k elements of op(A) [m, k], stored transposed, as words at.. of a block
// of words words along K: a block of several parts, each of which starts a new word.
// Parts are packed in order.
func (u Micro) PackPartA(m, k int, a *Matrix, at, words int, dst []byte) Block {
	block := u.m.packTiles(m, k, a, 0, 0, at, words, dst)
	if pad := u.Words(k) - u.m.words(k); pad > 0 {
		row, last := u.m.mr*u.m.bytes(), at+u.m.words(k)
		full, r1, r2 := u.m.tiles(m)
		for tile := range full + btoi(r1 > 0) + btoi(r2 > 0) {
			clear(dst[tile*block.tilePitch+last*row:][:pad*row])
		}
	}
	return block
}

// PackPartB does the same for op(B) [k, n], stored untransposed.
func (u Micro) PackPartB(k, n int, b *Matrix, at, words int, dst []byte) Panels {
	row := u.m.nr * u.m.bytes()
	pitch := row * words
	for j := 0; j < n; j += u.m.nr {
		u.m.own.panel[b.Type](k, min(u.m.nr, n-j), (*byte)(b.at(0, j)), b.pitch(), &dst[j/u.m.nr*pitch+at*row], row)
		clear(dst[j/u.m.nr*pitch+(at+u.m.words(k))*row:][:(u.Words(k)-u.m.words(k))*row])
	}
	return Panels{&dst[0], row, pitch}
}

// ViewA returns op(A) as a block without packing if the kernels read it in place: stored
// as words, and transposed only if these are float32. K must be a whole number of words.
func (u Micro) ViewA(a *Matrix) Block {
	if a.Trans {
		return Block{data: (*byte)(a.Data), rsa: 4, csa: a.pitch()}
	}
	return Block{data: (*byte)(a.Data), rsa: a.pitch(), csa: u.m.bytes()}
}

// Mul computes C[m,n] = (accumulate ? C : 0) + A[m,k]*B[k,n] for a float32 C of ldc
// floats per row.
func (u Micro) Mul(m, n, k int, a *Block, b Panels, c *float32, ldc int, accumulate bool) {
	nr := u.m.nr
	q := panel{words: u.Words(k), bs: b.bs, ldc: ldc * 4, acc: btoi(accumulate)}
	for j := 0; j < n; j += nr {
		q.n, q.b, q.c = min(nr, n-j), add(b.data, j/nr*b.pitch), add((*byte)(unsafe.Pointer(c)), 4*j)
		u.m.multiply(m, a, &q)
	}
}

// Load widens a stored [rows, cols] matrix to float32 rows of ld floats.
func (u Micro) Load(rows, cols int, src *Matrix, dst *float32, ld int) {
	u.m.toF32[src.Type](rows, cols, (*byte)(src.Data), src.pitch(), (*byte)(unsafe.Pointer(dst)), ld*4)
}

// Store rounds float32 rows of ld floats to a stored [rows, cols] matrix.
func (u Micro) Store(rows, cols int, src *float32, ld int, dst *Matrix) {
	u.m.fromF32[dst.Type](rows, cols, (*byte)(unsafe.Pointer(src)), ld*4, (*byte)(dst.Data), dst.pitch())
}
