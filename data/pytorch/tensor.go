package pytorch

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/few"
)

// maxRank is the largest number of dimensions that PyTorch allows.
const maxRank = 64

// newView checks that a tensor is inside its storage.
func newView(s *storage, offset int64, shape, strides tuple) (*view, error) {
	if len(shape) != len(strides) || len(shape) > maxRank {
		return nil, fmt.Errorf("a tensor has %d sizes and %d strides: want as many of each, at most %d", len(shape), len(strides), maxRank)
	}
	v := &view{storage: s, offset: offset, shape: make([]int, len(shape)), strides: make([]int64, len(shape))}
	for i := range shape {
		n, ok := shape[i].(int64)
		d, ok2 := strides[i].(int64)
		if !ok || !ok2 || n < 0 || d < 0 || n > math.MaxInt {
			return nil, fmt.Errorf("size %v with stride %v: want whole numbers from 0", shape[i], strides[i])
		}
		v.shape[i], v.strides[i] = int(n), d
	}
	if _, err := s.dtype.ByteSize(v.shape); err != nil {
		return nil, err
	}
	last, ok := v.last()
	if offset < 0 || !ok || last >= s.elems {
		return nil, fmt.Errorf("a tensor of shape %v with strides %v from element %d on does not lie inside storage %q, which has %d elements", v.shape, v.strides, offset, few.Text(s.key, 40), s.elems)
	}
	return v, nil
}

// last returns the highest element of the storage that the tensor has, the offset's
// predecessor if it has none.
func (v *view) last() (last int64, ok bool) {
	last = v.offset
	for i, n := range v.shape {
		if n == 0 {
			return v.offset - 1, true
		}
		hi, lo := bits.Mul64(uint64(n-1), uint64(v.strides[i]))
		if hi != 0 || lo > math.MaxInt64-uint64(max(last, 0)) {
			return 0, false
		}
		last += int64(lo)
	}
	return last, true
}

// size is the number of bytes of the tensor's values, written in order.
func (v *view) size() int64 {
	n, _ := v.storage.dtype.ByteSize(v.shape) // newView has checked it
	return n
}

// inOrder reports whether the values are contiguous in the storage, in order.
func (v *view) inOrder() bool {
	want := int64(1)
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && v.strides[i] != want {
			return v.size() == 0
		}
		want *= int64(v.shape[i])
	}
	return true
}

// bytes returns the tensor's values in order: a part of the storage, or a copy.
func (v *view) bytes() []byte {
	width := int64(v.storage.dtype.Bits() / 8)
	n := v.size()
	if n == 0 {
		return nil
	}
	from := v.storage.data[v.offset*width:]
	if v.inOrder() {
		return from[:n:n]
	}
	out := make([]byte, 0, n)
	at := make([]int, len(v.shape)) // the index of the value
	for element := int64(0); ; {
		out = append(out, from[element*width:(element+1)*width]...)
		d := len(at) - 1
		for ; d >= 0; d-- {
			at[d]++
			element += v.strides[d]
			if at[d] < v.shape[d] {
				break
			}
			element -= int64(at[d]) * v.strides[d]
			at[d] = 0
		}
		if d < 0 {
			return out
		}
	}
}

func (v *view) info(name string) safetensors.Info {
	width := int64(v.storage.dtype.Bits() / 8)
	return safetensors.Info{Name: name, DType: v.storage.dtype, Shape: v.shape, Offset: v.storage.start + v.offset*width, Size: v.size()}
}
