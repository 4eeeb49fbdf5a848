package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// The gradients of a row are added in the order of their positions, so that the sum has the same bits each time,
// however often the ids are sorted and over however many tiles.
func TestEmbeddingGradAddsInOrder(t *testing.T) {
	const n, width = 4500, 2
	for _, card := range cards(t) {
		for _, vocab := range []int{5, 600, 70000} {
			t.Run(fmt.Sprintf("sm_%d/%d", card.Capability(), vocab), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				ids, dy := make([]float64, n), make([]float64, n*width)
				want := make([]float32, vocab*width)
				for i := range ids {
					id := rng.IntN(vocab) % 300 // many of one, none of others
					ids[i] = float64(id)
					for j := range width {
						x := float32(rng.NormFloat64())
						dy[i*width+j] = float64(x)
						want[id*width+j] += x
					}
				}
				b := graph.NewBuilder("f")
				b.Output("table", b.Emit(graph.EmbeddingGrad{Vocab: vocab}, b.Input("dy", graph.T(graph.F32, n, width)), b.Input("ids", graph.T(graph.I32, n)))[0])
				got, err := conformance.On(open(t, card, ptxsim.Options{})).Run(b.F, map[string][]float64{"dy": dy, "ids": ids})
				if err != nil {
					t.Fatal(err)
				}
				for i, w := range want {
					if float32(got["table"][i]) != w {
						t.Fatalf("row %d, column %d: %v, want %v", i/width, i%width, got["table"][i], w)
					}
				}
			})
		}
	}
}
