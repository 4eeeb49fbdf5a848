package ptxsim

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
)

func TestConvertIntegers(t *testing.T) {
	triple(t, "cvt.u32.u16 %r5, %h3;", 2, 4, edges, func(a, _, _ uint64) uint64 { return a })
	triple(t, "cvt.s32.s16 %r5, %h3;", 2, 4, edges, func(a, _, _ uint64) uint64 { return uint64(extend(a, 2)) })
	triple(t, "cvt.s64.s32 %rd5, %r3;", 4, 8, edges, func(a, _, _ uint64) uint64 { return uint64(extend(a, 4)) })
	triple(t, "cvt.u64.u32 %rd5, %r3;", 4, 8, edges, func(a, _, _ uint64) uint64 { return a })
	triple(t, "cvt.u32.u64 %r5, %rd3;", 8, 4, edges, func(a, _, _ uint64) uint64 { return a })
	triple(t, "cvt.u16.u32 %h5, %r3;", 4, 2, edges, func(a, _, _ uint64) uint64 { return a })
	triple(t, "cvt.s32.s8 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(extend(a, 1)) })
	triple(t, "cvt.u32.u8 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return a & 255 })
	triple(t, "cvt.s8.s32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(extend(a, 1)) }) // into a wider register
	triple(t, "cvt.sat.u8.s32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(min(max(extend(a, 4), 0), 255)) })
	triple(t, "cvt.sat.s16.s32 %r5, %r3;", 4, 4, edges, func(a, _, _ uint64) uint64 { return uint64(min(max(extend(a, 4), -32768), 32767)) })
}

// TestConvertFloats checks conversions between formats, and from and to integers, in every rounding mode,
// against math/big.
func TestConvertFloats(t *testing.T) {
	type kind struct {
		name, reg string
		f         format
		size      int
	}
	kinds := []kind{{"f16", "h", half, 2}, {"bf16", "h", brain, 2}, {"f32", "r", single, 4}, {"f64", "rd", double, 8}}
	for _, from := range kinds {
		for _, to := range kinds {
			if from.size <= to.size && !(from.size == to.size && to.name == "f16") || from.name == "bf16" || to.name == "bf16" && from.name != "f32" {
				continue
			}
			modes := []string{"rn", "rz", "rm", "rp"}
			if to.size == 2 {
				modes = []string{"rn", "rz"}
			}
			if from.name == to.name {
				continue
			}
			for _, mode := range modes {
				triple(t, fmt.Sprintf("cvt.%s.%s.%s %%%s5, %%%s3;", mode, to.name, from.name, to.reg, from.reg), from.size, to.size, specimens(from.f), func(a, _, _ uint64) uint64 {
					return convertBig(from.f, to.f, a, roundingNames[mode])
				})
			}
		}
	}
	triple(t, "cvt.f32.f16 %r5, %h3;", 2, 4, specimens(half), func(a, _, _ uint64) uint64 { return convertBig(half, single, a, toNearest) })
	triple(t, "cvt.f32.bf16 %r5, %h3;", 2, 4, specimens(brain), func(a, _, _ uint64) uint64 { return convertBig(brain, single, a, toNearest) })
	triple(t, "cvt.f64.f32 %rd5, %r3;", 4, 8, specimens(single), func(a, _, _ uint64) uint64 { return convertBig(single, double, a, toNearest) })
	triple(t, "cvt.rna.tf32.f32 %r5, %r3;", 4, 4, specimens(single), func(a, _, _ uint64) uint64 { return convertBig(single, tensor32, a, tiesAway) << 13 })
	triple(t, "cvt.rn.f16x2.f32 %r5, %r3, %r4;", 4, 4, specimens(single), func(a, b, _ uint64) uint64 {
		return convertBig(single, half, a, toNearest)<<16 | convertBig(single, half, b, toNearest)
	})
	triple(t, "cvt.rn.bf16x2.f32 %r5, %r3, %r4;", 4, 4, specimens(single), func(a, b, _ uint64) uint64 {
		return convertBig(single, brain, a, toNearest)<<16 | convertBig(single, brain, b, toNearest)
	})
	triple(t, "cvt.rn.relu.bf16x2.f32 %r5, %r3, 0f3F800000;", 4, 4, []uint64{0x40000000, 0xc0000000, nan32, 1 << 31}, func(a, _, _ uint64) uint64 {
		v := uint64(0)
		switch a {
		case 0x40000000:
			v = 0x4000
		case nan32:
			v = 0x7fff
		}
		return v<<16 | 0x3f80
	})
}

func convertBig(from, to format, a uint64, mode rounding) uint64 {
	v := from.value(a)
	switch {
	case v != v:
		return to.nan()
	case math.IsInf(v, 0):
		return to.round(v, mode)
	}
	return rounded(to, new(big.Float).SetFloat64(v), mode)
}

func TestConvertBetween(t *testing.T) {
	for _, mode := range []string{"rn", "rz", "rm", "rp"} {
		triple(t, fmt.Sprintf("cvt.%s.f32.s32 %%r5, %%r3;", mode), 4, 4, edges, func(a, _, _ uint64) uint64 {
			return rounded(single, new(big.Float).SetInt64(extend(a, 4)), roundingNames[mode])
		})
		triple(t, fmt.Sprintf("cvt.%s.f32.u64 %%r5, %%rd3;", mode), 8, 4, edges, func(a, _, _ uint64) uint64 {
			return rounded(single, new(big.Float).SetUint64(a), roundingNames[mode])
		})
		triple(t, fmt.Sprintf("cvt.%s.f64.s64 %%rd5, %%rd3;", mode), 8, 8, edges, func(a, _, _ uint64) uint64 {
			return rounded(double, new(big.Float).SetInt64(int64(a)), roundingNames[mode])
		})
	}
	triple(t, "cvt.rn.f16.s32 %h5, %r3;", 4, 2, edges, func(a, _, _ uint64) uint64 { return rounded(half, new(big.Float).SetInt64(extend(a, 4)), toNearest) })
	for mode, f := range map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil} {
		values := append(specimens(single), 0x3f000000, 0x3fc00000, 0xbf000000, 0x4effffff, 0x4f000000, 0xcf000000, 0x5f000000)
		for _, to := range []string{"s32", "u32", "s64", "u64", "s16", "u8"} {
			size := map[string]int{"s32": 4, "u32": 4, "s64": 8, "u64": 8, "s16": 4, "u8": 4}[to]
			reg := map[int]string{4: "r", 8: "rd"}[size]
			triple(t, fmt.Sprintf("cvt.%s.%s.f32 %%%s5, %%r3;", mode, to, reg), 4, size, values, func(a, _, _ uint64) uint64 {
				v := float64(f32(uint32(a)))
				if v != v {
					if size == 8 {
						return 1 << 63
					}
					return 0
				}
				return clampBig(to, f(v))
			})
		}
		triple(t, fmt.Sprintf("cvt.%s.f32.f32 %%r5, %%r3;", mode), 4, 4, values, func(a, _, _ uint64) uint64 {
			return uint64(bits32(float32(f(float64(f32(uint32(a)))))))
		})
	}
}

// clampBig clamps an integral number to the range of a type.
func clampBig(to string, v float64) uint64 {
	if math.IsInf(v, 0) {
		v = math.Copysign(1e300, v)
	}
	i, _ := big.NewFloat(v).Int(nil)
	n := uint(typeNames[to].size() * 8)
	low, top := new(big.Int), new(big.Int).Lsh(big.NewInt(1), n)
	if strings.HasPrefix(to, "s") {
		low.Neg(new(big.Int).Lsh(big.NewInt(1), n-1))
		top.Lsh(big.NewInt(1), n-1)
	}
	top.Sub(top, big.NewInt(1))
	if i.Cmp(low) < 0 {
		i = low
	}
	if i.Cmp(top) > 0 {
		i = top
	}
	return lowBits(i)
}

// TestRoundingTables checks every half and a range of float32 against the definition.
func TestRoundingTables(t *testing.T) {
	for i := range 1 << 16 {
		v := halfTable[i]
		if v != v {
			continue
		}
		if got := toHalf(math.Float32bits(v)); got != uint32(i) {
			t.Fatalf("half %#x is %g and comes back as %#x", i, v, got)
		}
	}
	for i := uint64(0); i < 1<<32; i += 0x3fff1 {
		v := f32(uint32(i))
		if v != v || math.IsInf(float64(v), 0) {
			continue
		}
		x := new(big.Float).SetFloat64(float64(v))
		if got, want := toHalf(uint32(i)), rounded(half, x, toNearest); uint64(got) != want {
			t.Fatalf("%g as half: %#x, want %#x", v, got, want)
		}
		if got, want := toBrain(uint32(i)), rounded(brain, x, toNearest); uint64(got) != want {
			t.Fatalf("%g as bfloat16: %#x, want %#x", v, got, want)
		}
	}
}
