package attention

import (
	"math"
	"unsafe"

	"github.com/snug-ml/snug/internal/isa"
)

// rowKernels are the passes over rows of float32 between the matmuls. Pitches are in
// bytes. Rows of scores are padded to width, a multiple of 16 floats; elements from valid
// on are masked.
type rowKernels struct {
	// softmax is one step of the online softmax. With mx the larger of m and
	// the largest scale*s[j], j < valid: s[j] = exp(scale*s[j]-mx), 0 from
	// valid to width; alpha = exp(m-mx); l = l*alpha + sum of s; m = mx. While
	// mx is -Inf, 0 is subtracted in its place.
	softmax func(rows int, s *float32, pitch int, valid *int32, width int, scale float32, m, l, alpha *float32)
	// grad turns scores s and gradients d of probabilities into probabilities
	// s[j] = exp(scale*s[j]-lse) and gradients of the scores
	// d[j] = s[j]*(d[j]-delta)*scale; both are 0 from valid to width.
	grad func(rows int, s, d *float32, pitch int, valid *int32, width int, scale float32, lse, delta *float32)
	// dot sets out[r] to the product of row r of a and row r of b.
	dot func(rows, n int, a *float32, aPitch int, b *float32, bPitch int, out *float32)
	// scale multiplies row r by factor[r].
	scale func(rows, n int, x *float32, pitch int, factor *float32)
	// mul multiplies x by y.
	mul func(n int, x, y *float32)
	// mask sets s[j] to -Inf where segment[j] is not want.
	mask func(n int, s *float32, segment *int32, want int32)
}

var rowsPortable = rowKernels{softmaxGo, gradGo, dotGo, scaleGo, mulGo, maskGo}

// rowsFor returns the row kernels of a level, or of the one that it extends.
func rowsFor(level isa.Level) *rowKernels {
	for l := level.Resolve(); l != isa.Auto; l = l.Extends() {
		if k := rows[l]; k != nil {
			return k
		}
	}
	return &rowsPortable
}

// row returns n floats from byte off after p.
func row(p *float32, off, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(p), off)), n)
}

func each[T any](p *T, n int) []T { return unsafe.Slice(p, n) }

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

func softmaxGo(rows int, s *float32, pitch int, valid *int32, width int, scale float32, m, l, alpha *float32) {
	ms, ls, alphas := each(m, rows), each(l, rows), each(alpha, rows)
	for r, n := range each(valid, rows) {
		x := row(s, r*pitch, width)
		mx := ms[r]
		for _, v := range x[:n] {
			mx = max(mx, scale*v)
		}
		base := mx
		if math.IsInf(float64(base), -1) {
			base = 0
		}
		sum := float32(0)
		for j, v := range x[:n] {
			x[j] = exp(scale*v - base)
			sum += x[j]
		}
		clear(x[n:])
		alphas[r] = exp(ms[r] - base)
		ls[r] = ls[r]*alphas[r] + sum
		ms[r] = mx
	}
}

func gradGo(rows int, s, d *float32, pitch int, valid *int32, width int, scale float32, lse, delta *float32) {
	lses, deltas := each(lse, rows), each(delta, rows)
	for r, n := range each(valid, rows) {
		x, g := row(s, r*pitch, width), row(d, r*pitch, width)
		for j, v := range x[:n] {
			x[j] = exp(scale*v - lses[r])
			g[j] = x[j] * ((g[j] - deltas[r]) * scale)
		}
		clear(x[n:])
		clear(g[n:])
	}
}

func dotGo(rows, n int, a *float32, aPitch int, b *float32, bPitch int, out *float32) {
	for r := range rows {
		x, y := row(a, r*aPitch, n), row(b, r*bPitch, n)
		sum := float32(0)
		for j, v := range x {
			sum += v * y[j]
		}
		each(out, rows)[r] = sum
	}
}

func scaleGo(rows, n int, x *float32, pitch int, factor *float32) {
	for r, f := range each(factor, rows) {
		for j := range n {
			row(x, r*pitch, n)[j] *= f
		}
	}
}

func mulGo(n int, x, y *float32) {
	for j, v := range each(y, n) {
		each(x, n)[j] *= v
	}
}

func maskGo(n int, s *float32, segment *int32, want int32) {
	for j, id := range each(segment, n) {
		if id != want {
			each(s, n)[j] = float32(math.Inf(-1))
		}
	}
}
