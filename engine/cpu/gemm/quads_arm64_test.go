package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/isa"
)

// TestQuads: by the architecture manual BFMMLA adds two dot products of pairs as two
// BFDOT do, so both levels give the same bits, also of what underflows or overflows.
func TestQuads(t *testing.T) {
	if !isa.Runs(isa.NEONBFMMLA) {
		t.Skip("this processor does not multiply bf16")
	}
	f := func(dst, x []float32) {
		for i, v := range x {
			dst[i] = 1.7*v*v - 0.3
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 200))
		m, n, k := size.Draw(t, "m"), size.Draw(t, "n"), 4*rapid.OneOf(rapid.IntRange(1, 60), rapid.IntRange(500, 800)).Draw(t, "quads")
		typ := rapid.SampledFrom([]DType{F32, BF16})
		ta, tb, tc := typ.Draw(t, "A"), typ.Draw(t, "B"), typ.Draw(t, "C")
		transA, transB := rapid.Bool().Draw(t, "transA"), rapid.Bool().Draw(t, "transB")
		opts := Options{
			Compute: BF16, Accumulate: rapid.Bool().Draw(t, "accumulate"),
			Workers: rapid.IntRange(1, 8).Draw(t, "workers"),
			KC:      rapid.SampledFrom([]int{0, 16, 64}).Draw(t, "kc"),
		}
		if !transB && rapid.Bool().Draw(t, "mapped") {
			opts.MapB = f
		}
		if !transA && rapid.Bool().Draw(t, "mapped A") {
			opts.MapA = f
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		spread := rapid.SampledFrom([]int{0, 20, 90}).Draw(t, "spread")
		fill := func(int, int) float64 { return math.Ldexp(2*rng.Float64()-1, rng.IntN(2*spread+1)-spread) }
		a, b := newOperand(m, k, 1, ta, transA, fill), newOperand(k, n, 1, tb, transB, fill)
		bias := newOperand(1, n, 0, F32, false, fill)
		if opts.MapB == nil && rapid.Bool().Draw(t, "read") {
			opts.ReadB = func(dst []float32, data unsafe.Pointer, i, j int) {
				for x := range dst {
					dst[x] = load((*byte)(data), tb, (i*b.Stride+j+x)*tb.Size())
				}
			}
		}
		seed := rng.Uint64()
		product := func(level isa.Level) []byte {
			rng := rand.New(rand.NewPCG(seed, 2))
			c := newOperand(m, n, 1, tc, false, uniform(rng))
			opts.ISA = level
			p := NewPlan(m, n, k, ta, tb, tc, transA, transB, opts)
			if p.m.quads != (level == isa.NEONBFMMLA) {
				t.Fatalf("%v multiplies quads: %v", level, p.m.quads)
			}
			sequential(t, p, &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix, Bias: bias.Data}, rng)
			return c.bits()
		}
		want := product(isa.NEONBF16)
		if !slices.Equal(product(isa.NEONBFMMLA), want) {
			t.Fatalf("BFDOT and BFMMLA give other bits")
		}
		if opts.ReadB != nil {
			opts.ReadB = nil
			if !slices.Equal(product(isa.NEONBFMMLA), want) {
				t.Fatalf("B has other bits when a reader gives it")
			}
		}
	})
}

// TestQuadsMicro: the same holds in a Micro, whose A is read in rows, packed or not, and in
// parts.
func TestQuadsMicro(t *testing.T) {
	if !isa.Runs(isa.NEONBFMMLA) {
		t.Skip("this processor does not multiply bf16")
	}
	rapid.Check(t, func(t *rapid.T) {
		size, quads := rapid.IntRange(1, 60), rapid.IntRange(1, 40)
		m, n, head, rest := size.Draw(t, "m"), size.Draw(t, "n"), 4*quads.Draw(t, "head"), 4*quads.Draw(t, "rest")
		typ := rapid.SampledFrom([]DType{F32, BF16})
		ta, tb := typ.Draw(t, "A"), typ.Draw(t, "B")
		transA, transB := rapid.Bool().Draw(t, "transA"), rapid.Bool().Draw(t, "transB")
		parts := false
		if transA && !transB { // packed by columns, and padded
			parts = rapid.Bool().Draw(t, "parts")
			rest -= rapid.IntRange(0, 3).Draw(t, "lacking")
		}
		k := head + rest
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		spread := rapid.SampledFrom([]int{0, 20, 90}).Draw(t, "spread")
		fill := func(int, int) float64 { return math.Ldexp(2*rng.Float64()-1, rng.IntN(2*spread+1)-spread) }
		a, b := newOperand(m, k, 1, ta, transA, fill), newOperand(k, n, 1, tb, transB, fill)
		product := func(level isa.Level) []byte {
			u := NewMicro(level, BF16)
			if u.m.quads != (level == isa.NEONBFMMLA) || u.Unit() != 4 {
				t.Fatalf("%v multiplies quads: %v, unit %d", level, u.m.quads, u.Unit())
			}
			c := newOperand(m, n, 1, F32, false, func(i, j int) float64 { return float64(i - j) })
			packedA, packedB := newGuarded(u.BlockBytes(m, k, ta, transA)), newGuarded(u.PackedBytes(k, n))
			var left Block
			var right Panels
			if parts {
				for _, part := range [][2]int{{0, head}, {head, rest}} {
					pa := Matrix{Data: a.Matrix.at(part[0], 0), Type: ta, Stride: a.Stride, Trans: true}
					pb := Matrix{Data: b.Matrix.at(part[0], 0), Type: tb, Stride: b.Stride}
					left = u.PackPartA(m, part[1], &pa, u.Words(part[0]), u.Words(k), packedA.data)
					right = u.PackPartB(part[1], n, &pb, u.Words(part[0]), u.Words(k), packedB.data)
				}
			} else {
				left = u.PackA(m, k, &a.Matrix, packedA.data)
				right = u.PackB(k, n, &b.Matrix, packedB.data, newGuarded(u.ScratchBytes(k)).data)
			}
			packedA.check(t, "packed A")
			packedB.check(t, "packed B")
			at := (*float32)(c.at(0, 0))
			u.Mul(m, n, head, &left, right, at, c.Stride, true)
			left = left.Rest(u, 0, head)
			u.Mul(m, n, rest, &left, right.Rest(u, head, 0), at, c.Stride, true)
			c.mem.check(t, "C")
			return c.bits()
		}
		if !slices.Equal(product(isa.NEONBFMMLA), product(isa.NEONBF16)) {
			t.Fatalf("BFDOT and BFMMLA give other bits")
		}
	})
}
