package attention

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
)

// sums are the float32 rows in which a result is added up: the result itself or rows of
// the scratch.
type sums struct {
	gemm.Matrix
	size int // elements of a row
}

// fewSums is how many sums go straight into a result: its rows are far apart and
// share cache sets, so that after some more it is cheaper to copy them.
const fewSums = 2

// sums returns rows for the result dst, to each of which count matmuls will add, in the
// scratch from byte at on if dst itself does not suit.
func (p *Plan) sums(dst gemm.Matrix, rows, count int, worker []byte, at int) sums {
	if dst.Type != gemm.F32 || count > fewSums {
		dst = f32(floats(worker, at, rows*p.outPitch), p.outPitch, false)
	}
	return sums{dst, p.Size}
}

// store rounds the first rows to dst, unless they are dst's own.
func (p *Plan) store(s sums, rows int, dst gemm.Matrix) {
	if dst.Data != s.Data {
		p.u.Store(rows, s.size, s.row(0), s.Stride, &dst)
	}
}

func (s sums) row(i int) *float32 {
	return (*float32)(unsafe.Add(s.Data, 4*i*s.Stride))
}

// rest returns s without its first rows.
func (s sums) rest(rows int) sums {
	s.Data = unsafe.Pointer(s.row(rows))
	return s
}

// clear zeroes rows from up to to.
func (s sums) clear(from, to int) {
	for i := from; i < to; i++ {
		clear(unsafe.Slice(s.row(i), s.size))
	}
}
