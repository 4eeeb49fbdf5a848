//go:build amd64 || arm64

package gemm

import "unsafe"

// wholePanels uses whole for panels of 16 columns and rest for narrower ones.
func wholePanels(whole, rest panelFunc) panelFunc {
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		if cols == 16 {
			whole(k, cols, src, stride, dst, dstStride)
		} else {
			rest(k, cols, src, stride, dst, dstStride)
		}
	}
}

// wholeRows uses whole for the multiple of 8 columns and Go for the rest.
func wholeRows(from, to DType, whole rowsFunc) rowsFunc {
	rest := rowsGo(from, to)
	return func(rows, cols int, src *byte, stride int, dst *byte, dstStride int) {
		n := cols &^ 7
		if n > 0 {
			whole(rows, n, src, stride, dst, dstStride)
		}
		if n < cols {
			rest(rows, cols-n, add(src, n*from.Size()), stride, add(dst, n*to.Size()), dstStride)
		}
	}
}

// wholeTranspose uses whole for the multiple of step words of 8 rows, Go for the rest.
func wholeTranspose[W uint32 | uint64](whole panelFunc, step int) panelFunc {
	rest, size := transposeGo[W](8), int(unsafe.Sizeof(W(0)))
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		n := k / step * step
		if cols < 8 {
			n = 0
		}
		if n > 0 {
			whole(n, cols, src, stride, dst, dstStride)
		}
		if n < k {
			rest(k-n, cols, add(src, size*n), stride, add(dst, n*dstStride), dstStride)
		}
	}
}
