package cuda_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/graph"
)

// A card assembles only the kernels that a program launches, each once.
func TestModuleFollowsProgram(t *testing.T) {
	b := graph.NewBuilder("f")
	x := b.Input("x", graph.T(graph.F32, 8, 256))
	gain := b.Input("gain", graph.T(graph.F32, 256))
	y := b.RMSNorm(x, gain, 1e-5)
	b.Output("y", b.RMSNorm(y, gain, 1e-5))
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	for _, capability := range []int{75, 86} {
		text, err := cuda.PTX(p, capability, 40)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text, ".visible .entry "); n != 1 {
			t.Errorf("sm_%d: two norms of one kind have %d kernels, want 1", capability, n)
		}
	}
}
