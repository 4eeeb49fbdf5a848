package pass_test

import (
	"fmt"
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
	both, formats := cards(t), []graph.DType{graph.F32, graph.F16, graph.BF16}
	rapid.Check(t, func(t *rapid.T) {
		m, i := drawModel(t), rapid.IntRange(0, 1).Draw(t, "card")
		o := engine.CompileOptions{Traits: &engine.CUDA, Verify: true}
		o.ComputeDType = rapid.SampledFrom(formats[:2+i]).Draw(t, "low") // a T4 has no bf16
		trained := func(skip ...string) *run {
			o.Skip = without(append(skip, "accumulate")...)
			p, err := engine.CompileTraining(m.training(1), o)
			if err != nil {
				t.Fatal(err)
			}
			r, err := executeOn(both[i], p, engine.FuncStep)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		want := trained("fuse", "order")
		for _, skip := range [][]string{{"fuse"}, {"order"}, {}} {
			trained(skip...).equal(t, want, fmt.Sprint("without ", skip))
		}
	})
}

// Gradients on a card are those of the processor.
func TestGradientsOnACard(t *testing.T) {
	both := cards(t)
	rapid.Check(t, func(t *rapid.T) {
		u := differentiated(t, drawModel(t).unit(false))
		p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA, Verify: true}, u.F)
		if err != nil {
			t.Fatal(err)
		}
		got, err := executeOn(both[rapid.IntRange(0, 1).Draw(t, "card")], p, u.F.Name)
		if err != nil {
			t.Fatal(err)
		}
		got.near(t, forward(t, u.F), 1e-4, "on the card")
	})
}
