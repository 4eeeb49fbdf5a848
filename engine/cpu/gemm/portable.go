package gemm

import (
	"unsafe"

	"github.com/snug-ml/snug/internal/float16"
)

// machinePortable is the reference that every other machine is compared with.
var machinePortable = machine{
	word: F32, mr: 4, nr: 4, exact: 4,
	kern:   []kernelFunc{nil, kernGo(1), kernGo(2), kernGo(3), kern4x4Go},
	tilesA: [3]tilesFunc{tilesGo(F32, 4), tilesGo(BF16, 4), tilesGo(F16, 4)},
	panelA: [3]panelFunc{panelGo(F32, 4), panelGo(BF16, 4), panelGo(F16, 4)},
	shared: packPortable, own: packPortable, lanes: 4,
	toWord:  [3]rowsFunc{copyRows(4), rowsGo(BF16, F32), rowsGo(F16, F32)},
	toF32:   [3]rowsFunc{copyRows(4), rowsGo(BF16, F32), rowsGo(F16, F32)},
	fromF32: [3]rowsFunc{copyRows(4), rowsGo(F32, BF16), rowsGo(F32, F16)},
}

var packPortable = packer{
	panel:     [3]panelFunc{panelGo(F32, 4), panelGo(BF16, 4), panelGo(F16, 4)},
	transpose: transposeGo[uint32](4),
}

// add returns the address off bytes after p, which must lie in the same object.
func add(p *byte, off int) *byte { return (*byte)(unsafe.Add(unsafe.Pointer(p), off)) }

// float returns the float32 off bytes after p, to be read or written.
func float(p *byte, off int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), off)) }

// kernGo returns the kernel for any number of rows.
func kernGo(mr int) kernelFunc {
	return func(tiles, k int, a *byte, ta, rsa, csa int, b *byte, bs int, c *byte, ldc, n, acc int, bias, _ *byte, _ int) {
		for t := range tiles {
			for i := range mr {
				for j := range n {
					var s float32
					for x := range k {
						s += *float(a, t*ta+i*rsa+x*csa) * *float(b, x*bs+4*j)
					}
					to := float(c, (t*mr+i)*ldc+4*j)
					if acc != 0 {
						s += *to
					}
					if bias != nil {
						s += *float(bias, 4*j)
					}
					*to = s
				}
			}
		}
	}
}

// kern4x4Go keeps a 4x4 tile of C in registers.
func kern4x4Go(tiles, k int, a *byte, ta, rsa, csa int, b *byte, bs int, c *byte, ldc, n, acc int, bias, _ *byte, _ int) {
	if n < 4 {
		kernGo(4)(tiles, k, a, ta, rsa, csa, b, bs, c, ldc, n, acc, bias, nil, 0)
		return
	}
	for t := range tiles {
		a, c := add(a, t*ta), add(c, 4*t*ldc)
		var s [4][4]float32
		var s00, s01, s02, s03, s10, s11, s12, s13 float32
		var s20, s21, s22, s23, s30, s31, s32, s33 float32
		for x := range k {
			v := (*[4]float32)(unsafe.Add(unsafe.Pointer(b), x*bs))
			b0, b1, b2, b3 := v[0], v[1], v[2], v[3]
			u := *float(a, x*csa)
			s00, s01, s02, s03 = s00+u*b0, s01+u*b1, s02+u*b2, s03+u*b3
			u = *float(a, x*csa+rsa)
			s10, s11, s12, s13 = s10+u*b0, s11+u*b1, s12+u*b2, s13+u*b3
			u = *float(a, x*csa+2*rsa)
			s20, s21, s22, s23 = s20+u*b0, s21+u*b1, s22+u*b2, s23+u*b3
			u = *float(a, x*csa+3*rsa)
			s30, s31, s32, s33 = s30+u*b0, s31+u*b1, s32+u*b2, s33+u*b3
		}
		s[0] = [4]float32{s00, s01, s02, s03}
		s[1] = [4]float32{s10, s11, s12, s13}
		s[2] = [4]float32{s20, s21, s22, s23}
		s[3] = [4]float32{s30, s31, s32, s33}
		for i := range s {
			for j, v := range s[i] {
				if acc != 0 {
					v += *float(c, i*ldc+4*j)
				}
				if bias != nil {
					v += *float(bias, 4*j)
				}
				*float(c, i*ldc+4*j) = v
			}
		}
	}
}

// load reads one element as float32.
func load(p *byte, t DType, off int) float32 {
	q := unsafe.Add(unsafe.Pointer(p), off)
	switch t {
	case BF16:
		return float16.FromBF16(*(*uint16)(q))
	case F16:
		return float16.FromF16(*(*uint16)(q))
	}
	return *(*float32)(q)
}

// store rounds v to one element.
func store(p *byte, t DType, off int, v float32) {
	q := unsafe.Add(unsafe.Pointer(p), off)
	switch t {
	case BF16:
		*(*uint16)(q) = float16.ToBF16(v)
	case F16:
		*(*uint16)(q) = float16.ToF16(v)
	default:
		*(*float32)(q) = v
	}
}

// panelGo returns the panelFunc of rows of width float32, zero beyond cols.
func panelGo(from DType, width int) panelFunc {
	size := from.Size()
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		for x := range k {
			for j := range width {
				v := float32(0)
				if j < cols {
					v = load(src, from, x*stride+j*size)
				}
				*float(dst, x*dstStride+4*j) = v
			}
		}
	}
}

// tilesGo returns the tilesFunc of tiles of mr rows.
func tilesGo(from DType, mr int) tilesFunc {
	panel := panelGo(from, mr)
	return func(k, tiles int, src *byte, stride int, dst *byte, tileStride int) {
		for t := range tiles {
			panel(k, mr, add(src, t*mr*from.Size()), stride, add(dst, t*tileStride), mr*4)
		}
	}
}

// transposeGo returns the transposing panelFunc for rows of width words, zero beyond cols.
func transposeGo[W uint32 | uint64](width int) panelFunc {
	size := int(unsafe.Sizeof(W(0)))
	at := func(p *byte, off int) *W { return (*W)(unsafe.Add(unsafe.Pointer(p), off)) }
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		for x := range k {
			for j := range width {
				v := W(0)
				if j < cols {
					v = *at(src, j*stride+size*x)
				}
				*at(dst, x*dstStride+size*j) = v
			}
		}
	}
}

// rowsGo returns the rowsFunc between two types.
func rowsGo(from, to DType) rowsFunc {
	fs, ts := from.Size(), to.Size()
	return func(rows, cols int, src *byte, stride int, dst *byte, dstStride int) {
		for i := range rows {
			for j := range cols {
				store(dst, to, i*dstStride+j*ts, load(src, from, i*stride+j*fs))
			}
		}
	}
}

// copyRows returns the rowsFunc that copies elements of size bytes.
func copyRows(size int) rowsFunc {
	return func(rows, cols int, src *byte, stride int, dst *byte, dstStride int) {
		for i := range rows {
			copy(unsafe.Slice(add(dst, i*dstStride), cols*size), unsafe.Slice(add(src, i*stride), cols*size))
		}
	}
}
