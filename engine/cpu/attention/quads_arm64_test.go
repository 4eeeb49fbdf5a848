package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/isa"
)

// TestQuads: with BFMMLA and with BFDOT, attention and its gradients have the same bits,
// whether or not the sizes are whole quads, for which BFMMLA is used.
func TestQuads(t *testing.T) {
	if !isa.Runs(isa.NEONBFMMLA) {
		t.Skip("this processor does not multiply bf16")
	}
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.SampledFrom([]int{4, 4, 4, 2, 1}).Draw(t, "step")
		length := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 140))
		c := Config{
			Batch: 1, Heads: 2, Tq: step * length.Draw(t, "Tq"), Tk: step * length.Draw(t, "Tk"),
			Size:   step * rapid.IntRange(1, 20).Draw(t, "size"),
			Causal: rapid.Bool().Draw(t, "causal"), Compute: gemm.BF16,
			Type: rapid.SampledFrom([]gemm.DType{gemm.F32, gemm.BF16}).Draw(t, "type"),
		}
		c.KVHeads = rapid.IntRange(1, 2).Draw(t, "heads of keys")
		// Large scores leave probabilities that underflow.
		c.Scale = rapid.SampledFrom([]float32{1, 8}).Draw(t, "scale") / float32(math.Sqrt(float64(c.Size)))
		kind := maskKind{
			lengths:  rapid.Bool().Draw(t, "lengths"),
			segments: rapid.Bool().Draw(t, "segments"),
			dropout:  rapid.Bool().Draw(t, "dropout"),
		}
		seed := rapid.Uint64().Draw(t, "seed")
		results := func(level isa.Level) [][]byte {
			c.ISA = level
			rng := rand.New(rand.NewPCG(seed, 1))
			p := newProblem(c, gemm.F32, 1, kind, rng)
			p.run(t, NewPlan(c), rng)
			return [][]byte{p.o.all, p.dq.all, p.dk.all, p.dv.all}
		}
		want := results(isa.NEONBF16)
		for i, got := range results(isa.NEONBFMMLA) {
			if !slices.Equal(got, want[i]) {
				t.Fatalf("result %d has other bits with BFMMLA", i)
			}
		}
	})
}
