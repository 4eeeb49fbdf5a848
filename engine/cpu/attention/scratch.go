package attention

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
)

// scratch are the offsets of the parts of a worker's scratch, in bytes.
type scratch struct {
	bytes int

	keysT, valuesT, keysN, valuesN int // packed blocks of K^T, V^T, K and V
	wideK, wideV                   int // float32 rows of K and V, if the plan is narrow
	queries, grads                 int // packed tiles of Q and dO, as right operands
	left, left2                    int // packed left operands
	scores, gradScores             int // [tileRows, pitch] float32
	temp                           int // for packing
	out                            int // [chunk or Tq, outPitch] float32: O, or dQ of each head
	gradK, gradV                   int // [block, outPitch] float32
	rowsA, rowsB                   int // [tileRows, outPitch] float32
	m, l, alpha, delta             int // a float32 for each row
	valid                          int // an int32 for each row of a tile
	keep                           int // dropout multipliers
}

func (s *scratch) place(at *int, bytes int) {
	*at = s.bytes
	s.bytes += roundUp(bytes, 64)
}

func (p *Plan) layoutForward() scratch {
	var s scratch
	u, k := p.u, p.Size
	s.place(&s.valuesN, u.PackedBytes(p.block, k))
	if p.narrow {
		s.place(&s.wideK, p.block*p.outPitch*4)
		s.place(&s.wideV, p.block*p.outPitch*4)
		s.place(&s.left, tileRows*p.outPitch*4)
	} else {
		s.place(&s.keysT, u.PackedBytes(k, p.block))
		s.place(&s.left, p.leftBytes(k))
	}
	s.place(&s.left2, p.leftBytes(p.block))
	s.place(&s.temp, u.ScratchBytes(k))
	s.place(&s.scores, tileRows*p.pitch*4)
	s.place(&s.out, p.chunk*p.outPitch*4)
	s.place(&s.m, p.chunk*4)
	s.place(&s.l, p.chunk*4)
	s.place(&s.alpha, tileRows*4)
	s.place(&s.valid, tileRows*4)
	s.place(&s.keep, p.multipliers()*4)
	return s
}

func (p *Plan) layoutBackward() scratch {
	var s scratch
	u, k := p.u, p.Size
	s.place(&s.keysT, u.PackedBytes(k, p.block))
	s.place(&s.valuesT, u.PackedBytes(k, p.block))
	s.place(&s.keysN, u.PackedBytes(p.block, k))
	s.place(&s.queries, u.PackedBytes(tileRows, k))
	s.place(&s.grads, u.PackedBytes(tileRows, k))
	left := max(p.leftBytes(k), p.leftBytes(p.block))
	if u.Word() == gemm.BF16 {
		left = max(left, u.BlockBytes(p.block, tileRows, gemm.F32, true))
	}
	s.place(&s.left, left)
	s.place(&s.temp, u.ScratchBytes(k))
	s.place(&s.scores, tileRows*p.pitch*4)
	s.place(&s.gradScores, tileRows*p.pitch*4)
	s.place(&s.out, p.group*p.Tq*p.outPitch*4)
	s.place(&s.gradK, p.block*p.outPitch*4)
	s.place(&s.gradV, p.block*p.outPitch*4)
	s.place(&s.rowsA, tileRows*p.outPitch*4)
	s.place(&s.rowsB, tileRows*p.outPitch*4)
	s.place(&s.delta, p.group*roundUp(p.Tq*4, 64))
	s.place(&s.valid, tileRows*4)
	s.place(&s.keep, p.multipliers()*4)
	return s
}

// multipliers is how many dropout multipliers are drawn at a time.
func (p *Plan) multipliers() int { return max(p.pitch, 1024) }

// leftBytes returns the scratch for a tile of queries by k of any type.
func (p *Plan) leftBytes(k int) int {
	n := 0
	for _, t := range []gemm.DType{gemm.F32, gemm.BF16, gemm.F16} {
		if t != gemm.F16 || p.u.Word() == gemm.F32 {
			n = max(n, p.u.BlockBytes(tileRows, k, t, false))
		}
	}
	return n
}

// floats returns n float32 of the scratch from byte at on.
func floats(worker []byte, at, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&worker[at])), n)
}

func ints(worker []byte, at, n int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(&worker[at])), n)
}

// f32 describes rows of the scratch as a stored matrix.
func f32(x []float32, pitch int, trans bool) gemm.Matrix {
	return gemm.Matrix{Data: unsafe.Pointer(&x[0]), Type: gemm.F32, Stride: pitch, Trans: trans}
}
