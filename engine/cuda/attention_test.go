package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// Attention has no bank conflicts in shared memory, in float32 or on tensor cores, with every head size that
// has kernels.
func TestAttentionHasNoBankConflicts(t *testing.T) {
	for _, card := range []driver.Card{fakegpu.T4, fakegpu.A10} {
		types := []graph.Type{graph.T(graph.F32, 1, 100, 72)}
		for _, size := range []int{16, 32, 64, 80, 96, 128} {
			types = append(types, graph.T(graph.F16, 1, 100, size))
		}
		for _, typ := range types {
			t.Run(fmt.Sprintf("sm_%d/%v", card.Capability(), typ), func(t *testing.T) {
				b := graph.NewBuilder("attention")
				in := map[string][]float64{}
				var operands []*graph.Value
				for _, name := range []string{"q", "k", "v", "do"} {
					operands = append(operands, b.Input(name, typ))
					in[name] = make([]float64, typ.Shape.Elems())
				}
				op := graph.Attention{Heads: 1, Causal: true, Scale: 1}
				forward := b.Emit(op, operands[:3]...)
				for i, g := range b.Emit(graph.AttentionGrad(op), append([]*graph.Value{operands[3], forward[0], forward[1]}, operands[:3]...)...) {
					b.Output(fmt.Sprint("grad", i), g)
				}
				var count ptxsim.Counters
				if _, err := conformance.On(open(t, card, ptxsim.Options{Counters: &count})).Run(b.F, in); err != nil {
					t.Fatal(err)
				}
				for name, c := range count.Kernels {
					if !strings.HasPrefix(name, "attention") {
						continue
					}
					if c.SharedRequests == 0 || c.SharedWavefronts != c.SharedIdeal {
						t.Errorf("%s: %d wavefronts of shared memory, %d without conflicts", name, c.SharedWavefronts, c.SharedIdeal)
						for _, l := range c.Lines {
							if l.Wavefronts != l.Ideal {
								t.Logf("%d for %d: %s", l.Wavefronts, l.Ideal, l.Where)
							}
						}
					}
				}
				if len(count.Kernels) < 3 {
					t.Errorf("only %d kernels ran", len(count.Kernels))
				}
			})
		}
	}
}
