package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/internal/float16"
	"github.com/snug-ml/snug/internal/isa"
)

// TestHalfExhaustive checks every 16-bit pattern: that widening gives its
// value, and narrowing gives it back.
func TestHalfExhaustive(t *testing.T) {
	src, back := make([]uint16, 1<<16), make([]uint16, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	wide := make([]float32, 1<<16)
	for _, c := range []struct {
		name      string
		exp, frac int // bits
		widen     func(dst []float32, src []uint16)
		narrow    func(dst []uint16, src []float32)
		largest   float64
	}{
		{name: "bf16", exp: 8, frac: 7, widen: BF16ToF32, narrow: F32ToBF16, largest: 0x1.fep127},
		{name: "f16", exp: 5, frac: 10, widen: F16ToF32, narrow: F32ToF16, largest: 65504},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachLevel(t, func(t *testing.T) {
				c.widen(wide, src)
				c.narrow(back, wide)
				bias, top := 1<<(c.exp-1)-1, 1<<c.exp-1
				for i, got := range wide {
					e, f := i>>c.frac&top, i&(1<<c.frac-1)
					want := math.Ldexp(float64(1<<c.frac+f), e-bias-c.frac)
					switch {
					case e == top && f != 0:
						want = math.NaN()
					case e == top:
						want = math.Inf(1)
					case e == 0:
						want = math.Ldexp(float64(f), 1-bias-c.frac)
					}
					if i>>15 != 0 {
						want = -want
					}
					if float64(got) != want && (got == got || want == want) {
						t.Fatalf("%04x widens to %g, want %g", i, got, want)
					}
					if got != got {
						if back[i]&uint16(top<<c.frac) != uint16(top<<c.frac) || back[i]>>(c.frac-1)&1 == 0 {
							t.Fatalf("NaN %04x narrows to %04x, want a quiet NaN", i, back[i])
						}
					} else if back[i] != uint16(i) {
						t.Fatalf("%04x comes back as %04x", i, back[i])
					}
				}
				if got := c.largest; float64(wide[top<<c.frac-1]) != got {
					t.Fatalf("the largest number is %g, want %g", wide[top<<c.frac-1], got)
				}
			})
		})
	}
}

// TestHalfRounding checks narrowing against the definition of rounding to
// nearest even, for random numbers and for the ties between neighbors.
func TestHalfRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	const n = 1 << 14
	x := make([]float32, n)
	narrow, rounded := make([]uint16, n), make([]float32, n)
	for name, c := range map[string]struct {
		widen  func(uint16) float32
		narrow func([]uint16, []float32)
		round  func(dst, src []float32)
	}{
		"bf16": {float16.FromBF16, F32ToBF16, RoundBF16},
		"f16":  {float16.FromF16, F32ToF16, RoundF16},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range x {
				low := uint16(r.IntN(0x7bff)) // neighbors low and low+1 of either format, both finite
				a, b := float64(c.widen(low)), float64(c.widen(low+1))
				mid := float32((a + b) / 2)
				switch i % 4 {
				case 0:
					x[i] = mid
				case 1:
					x[i] = math.Nextafter32(mid, 0)
				case 2:
					x[i] = -math.Nextafter32(mid, 3e38)
				case 3:
					x[i] = float32(a + (b-a)*r.Float64())
				}
			}
			eachLevel(t, func(t *testing.T) {
				c.narrow(narrow, x)
				c.round(rounded, x)
				for i, v := range x {
					h := narrow[i]
					got := float64(c.widen(h))
					if float64(rounded[i]) != got {
						t.Fatalf("%g: rounded to %g, narrowed to %g", v, rounded[i], got)
					}
					for _, other := range []uint16{h - 1, h + 1} {
						if other&0x7fff == 0x7fff || h&0x7fff == 0 && other == h-1 {
							continue
						}
						d, e := math.Abs(got-float64(v)), math.Abs(float64(c.widen(other))-float64(v))
						if e < d || e == d && h&1 != 0 {
							t.Fatalf("%g narrows to %04x (%g), but %04x (%g) is nearer or even", v, h, got, other, c.widen(other))
						}
					}
				}
			})
		})
	}
}

// TestConvertLevels runs the conversions at every length and level.
func TestConvertLevels(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(21, 22))
	for _, n := range lengths() {
		x, ints, halves := make([]float32, n), make([]int32, n), make([]uint16, n)
		sample(r, x)
		for i := range n {
			ints[i], halves[i] = int32(r.Uint32()), uint16(r.Uint32())
		}
		widening := map[string]func(dst []float32){
			"BF16ToF32": func(dst []float32) { BF16ToF32(dst, halves) },
			"F16ToF32":  func(dst []float32) { F16ToF32(dst, halves) },
			"I32ToF32":  func(dst []float32) { I32ToF32(dst, ints) },
		}
		for name, f := range widening {
			want := make([]float32, n)
			level = isa.Portable
			f(want)
			for _, level = range Levels() {
				got, check := guarded(t, n)
				f(got)
				check()
				if i := differ(got, want); i >= 0 {
					t.Fatalf("%v, %s, n=%d: element %d is %g, want %g", level, name, n, i, got[i], want[i])
				}
			}
		}
		for name, f := range map[string]func(dst []uint16, src []float32){"F32ToBF16": F32ToBF16, "F32ToF16": F32ToF16} {
			want := make([]uint16, n)
			level = isa.Portable
			f(want, x)
			for _, level = range Levels() {
				got := make([]uint16, n+40)
				f(got[:n], x)
				for i, h := range got {
					if i < n && h != want[i] || i >= n && h != 0 {
						t.Fatalf("%v, %s, n=%d: element %d is %04x, want %04x", level, name, n, i, h, append(want, make([]uint16, 40)...)[i])
					}
				}
			}
		}
	}
}
