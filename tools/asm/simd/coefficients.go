package main

import (
	"bytes"
	"fmt"
	"go/format"
	"math"
	"os"
	"path/filepath"
)

// The polynomials. Each is fitted to what is left of a function after its
// leading terms, which the code adds exactly; the weights make the error
// relative to the function.
var (
	// (e^r - 1 - r) / r^2 for |r| <= ln2/2.
	expPoly = fit(expRest, math.Abs, -math.Ln2/2, math.Ln2/2, 5)
	// The same with fewer terms, for the error relative to e^r.
	expPoly4 = fit(expRest, func(r float64) float64 { return r * r / math.Exp(r) }, -math.Ln2/2, math.Ln2/2, 4)
	// (log(1+f) - f + f^2/2) / f^3 for 1+f in [0.75, 1.5].
	logPoly = fit(logRest, func(f float64) float64 { return f * f }, -0.25, 0.5, 7)
	// (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4 in z = r^2, |r| <= pi/4.
	sinPoly = fit(sinRest, func(z float64) float64 { return z }, 1e-6, math.Pi*math.Pi/16, 2)
	cosPoly = fit(cosRest, func(z float64) float64 { return z * z }, 1e-3, math.Pi*math.Pi/16, 2)
	// (e^(x^2/2) Phi(-x) / t - 1/2) / u in u = 1-t, t = 1/(1 + normalScale*x), 0 <=
	// x <= normalLimit, Phi the normal distribution function.
	normalPoly = fit(
		func(u float64) float64 { return (mills(u) - 0.5) / u },
		func(u float64) float64 { return u / mills(u) },
		1e-4, 1-1/(1+normalScale*normalLimit), 9)
	// Phi(-t), and Phi(-t) - t phi(t), phi the normal density.
	geluTail     = fitPieces("gelu_tail", normal, func(t float64) float64 { return 1 / normal(t) })
	geluGradTail = fitPieces("gelu_grad_tail", normalGrad, even)
	// The same for sets that pick from few.
	geluTailFew     = fitFewPieces("gelu_tail_few", normal, func(t float64) float64 { return 1 / normal(min(t, 4.5)) }, 9)
	geluGradTailFew = fitFewPieces("gelu_grad_tail_few", normalGrad, even, 8)
)

// normal is Phi(-t), Phi the normal distribution function.
func normal(t float64) float64 { return math.Erfc(t/math.Sqrt2) / 2 }

// normalGrad is the derivative of t Phi(-t).
func normalGrad(t float64) float64 { return normal(t) - t*math.Exp(-t*t/2)/math.Sqrt(2*math.Pi) }

// even is the weight of an error that is absolute.
func even(float64) float64 { return 1 }

const (
	normalScale = 0.6
	normalLimit = 14.5 // the normal distribution below its negative is 0 in float32
)

// fit rounds the coefficients of minimax to float32.
func fit(f, weight func(float64) float64, lo, hi float64, degree int) []float32 {
	c, _ := minimax(f, weight, lo, hi, degree)
	out := make([]float32, len(c))
	for i, v := range c {
		out[i] = float32(v)
	}
	return out
}

// series sums n terms of a power series whose terms have the given ratio.
func series(first float64, n int, ratio func(k int) float64) float64 {
	sum, term := 0.0, first
	for k := range n {
		sum += term
		term *= ratio(k)
	}
	return sum
}

func expRest(r float64) float64 {
	return series(0.5, 20, func(k int) float64 { return r / float64(k+3) })
}

func logRest(f float64) float64 {
	if math.Abs(f) > 0.05 {
		return (math.Log1p(f) - f + f*f/2) / (f * f * f)
	}
	return series(1.0/3, 20, func(k int) float64 { return -f * float64(k+3) / float64(k+4) })
}

func sinRest(z float64) float64 {
	return series(-1.0/6, 12, func(k int) float64 { return -z / float64((2*k+4)*(2*k+5)) })
}

func cosRest(z float64) float64 {
	return series(1.0/24, 12, func(k int) float64 { return -z / float64((2*k+5)*(2*k+6)) })
}

// mills is Mills' ratio Phi(-x) / e^(-x^2/2), divided by t.
func mills(u float64) float64 {
	x := (1/(1-u) - 1) / normalScale
	return 0.5 * math.Erfc(x/math.Sqrt2) * math.Exp(x*x/2) / (1 - u)
}

// writeCoefficients writes the polynomials that portable Go shares.
func writeCoefficients(dir string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\npackage simd\n\n", generated)
	b.WriteString("// The polynomials of boxMuller, lowest power first.\nvar (\n")
	for _, p := range []struct {
		name string
		c    []float32
	}{{"boxMullerLog", logPoly}, {"boxMullerSin", sinPoly}, {"boxMullerCos", cosPoly}} {
		fmt.Fprintf(&b, "%s = [...]float32{", p.name)
		for _, v := range p.c {
			fmt.Fprintf(&b, "%x, ", v)
		}
		b.WriteString("}\n")
	}
	b.WriteString(")\n")
	return writeGo(filepath.Join(dir, "coefficients.go"), b.Bytes())
}

// writeHeader writes the polynomials that the kernels of NVIDIA cards share, as
// C++, lowest power first.
func writeHeader(path string) error {
	var b bytes.Buffer
	b.WriteString("// Made by tools/asm/simd; see coefficients.go there for what each is fitted to.\n#pragma once\n")
	for _, p := range []struct {
		name string
		c    []float32
	}{{"exp_poly", expPoly}, {"log_poly", logPoly}, {"sin_poly", sinPoly}, {"cos_poly", cosPoly}, {"normal_poly", normalPoly}} {
		fmt.Fprintf(&b, "static constexpr float %s[] = {", p.name)
		for i, v := range p.c {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%xf", v)
		}
		b.WriteString("};\n")
	}
	return os.WriteFile(path, b.Bytes(), 0o666)
}

// writeGo formats and writes a Go file.
func writeGo(path string, src []byte) error {
	out, err := format.Source(src)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, out, 0o644)
}
