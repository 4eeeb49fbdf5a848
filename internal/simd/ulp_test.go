package simd

import (
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// ulpStride returns the distance, in bit patterns, between the arguments of the
// ulp tests: odd, so that all low bits occur. SNUG_SIMD_STRIDE=1 tries every
// float32 (an hour).
func ulpStride(t *testing.T) uint64 {
	text := os.Getenv("SNUG_SIMD_STRIDE")
	if text == "" {
		return 8209
	}
	stride, err := strconv.ParseUint(text, 10, 32)
	if err != nil || stride == 0 {
		t.Fatalf("SNUG_SIMD_STRIDE=%q, want a positive number", text)
	}
	return stride
}

// ulp is the distance between float32 numbers of the size of x.
func ulp(x float64) float64 {
	x = math.Abs(x)
	if x < 0x1p-126 {
		return 0x1p-149
	}
	return math.Ldexp(1, max(math.Ilogb(x), -126)-23)
}

// TestUlps compares the transcendental functions with float64 over arguments spread
// evenly over all float32 bit patterns, and so over every binary order of magnitude,
// including NaN and Inf. Sin and Cos are tested within the range that they are made for
// and, by TestTrigLarge, beyond.
func TestUlps(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	for _, e := range elementwiseTable {
		if e.exact() {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			const block = 1 << 14
			x, one, dst := make([]float32, 0, block), make([]float32, block), make([]float32, block)
			Fill(one, 1)
			worst := map[isa.Level]float64{}
			at := map[isa.Level]float32{}
			flush := func() {
				in := [][]float32{x, one[:len(x)]}[:e.inputs]
				refs := make([]float64, len(x))
				for i, v := range x {
					refs[i] = e.f64([]float64{float64(v), 1})
				}
				for _, l := range Levels() {
					level = l
					e.run(dst[:len(x)], in)
					for i, v := range x {
						if d := e.distance(v, dst[i], refs[i]); !(d <= worst[l]) {
							worst[l], at[l] = d, v
						}
					}
				}
				x = x[:0]
			}
			for _, v := range special {
				if !trigBeyond(e, v) {
					x = append(x, v)
				}
			}
			stride := ulpStride(t)
			for bits := uint64(0); bits < 1<<32; bits += stride {
				v := math.Float32frombits(uint32(bits))
				if trigBeyond(e, v) {
					continue
				}
				if x = append(x, v); len(x) == block {
					flush()
				}
			}
			flush()
			for _, l := range Levels() {
				t.Logf("%v: at most %.3f ulp, at %g", l, worst[l], at[l])
				bound := e.ulps
				if l != isa.Portable && e.assembly != 0 {
					bound = e.assembly
				}
				if !(worst[l] <= bound) {
					t.Errorf("%v: %s(%g) is off by %.3f ulp, want at most %g", l, e.name, at[l], worst[l], bound)
				}
			}
		})
	}
}

// distance returns the error of got for the argument x, in units.
func (e elementwise) distance(x, got float32, want float64) float64 {
	if want != want || got != got {
		if want != want && got != got {
			return 0
		}
		return math.Inf(1)
	}
	unit := ulp(want)
	if e.unit != nil {
		unit = max(unit, e.unit(float64(x)))
	}
	// An overflow counts as the first number beyond the range.
	const beyond = 0x1p128
	return math.Abs(max(min(float64(got), beyond), -beyond)-max(min(want, beyond), -beyond)) / unit
}

// trigBeyond reports whether v is an argument that TestTrigLarge tests.
func trigBeyond(e elementwise, v float32) bool {
	return (e.name == "Sin" || e.name == "Cos") && math.Abs(float64(v)) > 1e5
}

// TestTrigLarge checks arguments beyond the assembly's limit, in place and among
// others.
func TestTrigLarge(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, v := range []float32{1e5, -1e5, 100000.01, 1e6, -3e7, 1e20, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
			for at := range 40 {
				x := make([]float32, 40)
				x[at] = v
				Sin(x, x)
				want := math.Sin(float64(v))
				for i, got := range x {
					if i != at && got != 0 || i == at && !(math.Abs(float64(got)-want) <= 1e-7) && (got == got || want == want) {
						t.Fatalf("Sin of %g at %d: element %d is %g, want %g", v, at, i, got, want)
					}
				}
				x[at] = v
				Cos(x, x)
				want = math.Cos(float64(v))
				for i, got := range x {
					if i != at && got != 1 || i == at && !(math.Abs(float64(got)-want) <= 1e-7) && (got == got || want == want) {
						t.Fatalf("Cos of %g at %d: element %d is %g, want %g", v, at, i, got, want)
					}
				}
			}
		}
	})
}

// TestLimits checks the values at infinity, at 0 and outside the domains.
func TestLimits(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	byName := map[string]elementwise{}
	for _, e := range elementwiseTable {
		byName[e.name] = e
	}
	eachLevel(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			// the values at -Inf, -1e30, 0, 1e30 and Inf
			want [5]float32
		}{
			{"Exp", [5]float32{0, 0, 1, inf, inf}},
			{"Log", [5]float32{nan, nan, -inf, 69.0775527898, inf}},
			{"Tanh", [5]float32{-1, -1, 0, 1, 1}},
			{"Sigmoid", [5]float32{0, 0, 0.5, 1, 1}},
			{"Softplus", [5]float32{0, 0, math.Ln2, 1e30, inf}},
			{"GELU", [5]float32{0, 0, 0, 1e30, inf}},
			{"GELUTanh", [5]float32{0, 0, 0, 1e30, inf}},
			{"SiLU", [5]float32{0, 0, 0, 1e30, inf}},
			{"ELU", [5]float32{-1, -1, 0, 1e30, inf}},
			{"GELUGrad", [5]float32{0, 0, 0.5, 1, 1}},
			{"GELUTanhGrad", [5]float32{0, 0, 0.5, 1, 1}},
			{"SiLUGrad", [5]float32{0, 0, 0.5, 1, 1}},
			{"ELUGrad", [5]float32{0, 0, 1, 1, 1}},
			{"Sqrt", [5]float32{nan, nan, 0, 1e15, inf}},
			{"Relu", [5]float32{0, 0, 0, 1e30, inf}},
		} {
			x, one, got := []float32{-inf, -1e30, 0, 1e30, inf}, []float32{1, 1, 1, 1, 1}, make([]float32, 5)
			e := byName[c.name]
			e.run(got, [][]float32{x, one}[:e.inputs])
			for i, v := range got {
				if v != c.want[i] && !near(float64(v), float64(c.want[i]), 1e-6) && (v == v || c.want[i] == c.want[i]) {
					t.Errorf("%s(%g) is %g, want %g", c.name, x[i], v, c.want[i])
				}
			}
			x[0] = nan
			e.run(got[:1], [][]float32{x[:1], one[:1]}[:e.inputs])
			if got[0] == got[0] {
				t.Errorf("%s(NaN) is %g", c.name, got[0])
			}
		}
	})
}
