package pass_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// cards are a T4 and an A10, whose kernels are interpreted.
func cards(t *testing.T) (list []engine.Backend) {
	t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4, fakegpu.A10}}))
	for _, device := range []string{"cuda:0", "cuda:1"} {
		b, err := backend.Open(backend.Options{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

// Fusing and ordering change no bit on a card either.
func TestFuseAndOrderOnACard(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long with the race detector, and shares nothing that other tests do not")
	}
	both, formats := cards(t), []graph.DType{graph.F32, graph.F16, graph.BF16}
	rapid.Check(t, func(t *rapid.T) {
		m, i := drawModel(t), rapid.IntRange(0, 1).Draw(t, "card")
		low := rapid.SampledFrom(formats[:2+i]).Draw(t, "low") // a T4 has no bf16
		fuseAndOrder(t, both[i], m, 1, engine.CompileOptions{Traits: &engine.CUDA, ComputeDType: low})
	})
}

// Gradients on a card are those on the processor.
func TestGradientsOnACard(t *testing.T) {
	both := cards(t)
	rapid.Check(t, func(t *rapid.T) {
		u, i := differentiated(t, drawModel(t).unit(false)), rapid.IntRange(0, 1).Draw(t, "card")
		got := forwardOn(t, both[i], engine.CompileOptions{Traits: &engine.CUDA}, u.F)
		got.near(t, forward(t, u.F), 1e-4, "on the card")
	})
}
