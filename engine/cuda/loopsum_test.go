package cuda_test

import (
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// Sums that a loop computes on its way have the bits of those computed after it, as a card with more multiprocessors
// computes them from so few rows.
func TestSumsOfALoop(t *testing.T) {
	const rows, cols = 1100, 200
	sum := graph.Reduce{Axes: 1}
	body := &graph.Body{Inputs: 2, Results: []int{2, 2, 0}, Instrs: []graph.Instr{
		{Op: graph.Elementwise{Fn: graph.FnMul}, Arg: []int{0, 1}, DType: graph.F16},
	}}
	b := graph.NewBuilder("f")
	x, scale := b.Input("x", graph.T(graph.F16, rows, cols)), b.Input("scale", graph.T(graph.F16, cols))
	for i, v := range b.Emit(graph.Fused{Body: body, Reductions: []graph.Reduce{sum, sum}}, x, scale) {
		b.Output([]string{"y", "sum", "plain"}[i], v)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	for _, card := range cards(t) {
		var want map[string][]byte
		for _, sms := range []int{1, card.SMs} {
			card.SMs = sms
			rng := rand.New(rand.NewPCG(1, 2))
			got, _, err := tryOutputs(open(t, card, ptxsim.Options{}), p, func(string, int) float64 { return rng.NormFloat64() })
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if !equal(got, want) {
				t.Errorf("%s: the bits with %d multiprocessors are not those with one", card.Name, sms)
			}
		}
	}
}
