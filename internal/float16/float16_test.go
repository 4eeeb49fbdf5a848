package float16

import (
	"math"
	"testing"
)

// exact returns the value of a number in a 16-bit format with the given bits of exponent,
// in float64.
func exact(h uint16, exponent int) float64 {
	places := 15 - exponent
	sign, e, m := 1.0, int(h>>places)&(1<<exponent-1), float64(h&(1<<places-1))
	if h>>15 == 1 {
		sign = -1
	}
	bias := 1<<(exponent-1) - 1
	switch {
	case e == 1<<exponent-1 && m == 0:
		return sign * math.Inf(1)
	case e == 1<<exponent-1:
		return math.NaN()
	case e == 0:
		return sign * math.Ldexp(m, 1-bias-places)
	}
	return sign * math.Ldexp(m+float64(int(1)<<places), e-bias-places)
}

// Every 16-bit number has its value and survives the round trip; numbers between two of
// them round to the nearer one, and midpoints to the even one.
func TestEveryNumber(t *testing.T) {
	for name, f := range map[string]struct {
		exponent int
		from     func(uint16) float32
		to       func(float32) uint16
	}{"bf16": {8, FromBF16, ToBF16}, "f16": {5, FromF16, ToF16}} {
		for i := range 1 << 16 {
			h := uint16(i)
			want, got := exact(h, f.exponent), f.from(h)
			if want != want {
				if back := f.from(f.to(got)); got == got || back == back {
					t.Errorf("%s %#x is NaN, became %v and %v", name, h, got, back)
				}
				continue
			}
			if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) || f.to(got) != h {
				t.Errorf("%s %#x is %v, became %v and %#x", name, h, want, got, f.to(got))
			}
			next := exact(h+1, f.exponent)
			if math.IsInf(want, 0) || math.IsInf(next, 0) || next != next || h == 0x7fff {
				continue
			}
			middle := float32((want + next) / 2)
			if even := h + h&1; f.to(middle) != even {
				t.Errorf("%s: the middle of %#x and the next became %#x", name, h, f.to(middle))
			}
			if toward := math.Nextafter32(middle, float32(next)); f.to(toward) != h+1 {
				t.Errorf("%s: above the middle of %#x and the next it became %#x", name, h, f.to(toward))
			}
			if toward := math.Nextafter32(middle, got); f.to(toward) != h {
				t.Errorf("%s: below the middle of %#x and the next it became %#x", name, h, f.to(toward))
			}
		}
	}
	for x, want := range map[float32]uint16{65519.99: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, -65520: 0xfc00} {
		if got := ToF16(x); got != want {
			t.Errorf("%v became %#x, want %#x", x, got, want)
		}
	}
}
