package cuda_test

import (
	"math/rand/v2"
	"slices"
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
		var want [][]byte
		for _, sms := range []int{1, card.SMs} {
			card.SMs = sms
			e, err := p.Load(open(t, card, ptxsim.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for _, v := range p.Inputs {
				elems := make([]float64, v.Type.Shape.Elems())
				for i := range elems {
					elems[i] = rng.NormFloat64()
				}
				to, _ := e.Input(0, v.Name)
				to.SetFloat64s(elems)
			}
			if err := e.Run("f", 0); err != nil {
				t.Fatal(err)
			}
			if err := e.Sync(); err != nil {
				t.Fatal(err)
			}
			var got [][]byte
			for _, name := range []string{"y", "sum", "plain"} {
				out, err := e.Output("f", name)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, slices.Clone(out.Data))
			}
			if want == nil {
				want = got
			}
			for i := range got {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s: result %d differs", card.Name, i)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
