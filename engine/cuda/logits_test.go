package cuda_test

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// A loss that cannot be computed is not a number, which ends a run; this includes a label without a class. After an
// overflow the gradients are none either, so that loss scaling skips the update. Rows without weight do no harm.
func TestLossThatIsNotANumber(t *testing.T) {
	const rows, classes, width, bad = 5, 150, 8, 3
	inf := math.Inf(1)
	for _, c := range []struct {
		name   string
		d      graph.DType
		hidden float64 // of row bad
		label  float64 // of row bad
		number bool    // whether the loss is one
	}{
		{"sound", graph.F16, 1, 149, true},
		{"overflow", graph.F16, inf, 149, false},
		{"overflow", graph.F32, inf, 149, false},
		{"not a number", graph.F16, math.NaN(), 149, false},
		{"no class", graph.F16, 1, 150, false},
		{"no class", graph.F32, 1, 150, false},
		{"ignored", graph.F16, 1, -100, true},
		{"ignored overflow", graph.F16, inf, -1, true},
	} {
		t.Run(c.name+" "+c.d.String(), func(t *testing.T) {
			for _, card := range cards(t) {
				b := graph.NewBuilder("f")
				h, w := b.Input("h", graph.T(c.d, rows, width)), b.Input("w", graph.T(c.d, classes, width))
				in := []*graph.Value{h, w, b.Input("labels", graph.T(graph.I32, rows)), b.Input("weights", graph.T(graph.F32, rows))}
				g := b.Emit(graph.LinearCrossEntropyGrad{Chunk: rows}, append(in, b.Input("dloss", graph.T(graph.F32)))...)
				b.Output("loss", g[0])
				b.Output("dh", g[1])
				p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
				if err != nil {
					t.Fatal(err)
				}
				out, _, err := tryOutputs(open(t, card, ptxsim.Options{Checks: ptxsim.CheckAll}), p, func(input string, i int) float64 {
					switch {
					case input == "w":
						return float64(i%7) / 8
					case input == "h" && i/width == bad:
						return c.hidden
					case input == "labels" && i == bad:
						return c.label
					}
					return 1
				})
				if err != nil {
					t.Fatal(err)
				}
				loss := engine.Tensor{Data: out["f/loss"]}.F32()[0]
				if ok := !math.IsNaN(float64(loss)); ok != c.number {
					t.Errorf("%s: the loss is %v", card.Name, loss)
				}
				for i, v := range (engine.Tensor{Type: graph.T(c.d, rows, width), Data: out["f/dh"]}).Float64s() {
					if ok := !math.IsNaN(v); ok != (c.number || i/width != bad) && c.label != classes {
						t.Errorf("%s: the gradient of row %d is %v", card.Name, i/width, v)
					}
				}
			}
		})
	}
}

// The loss of given logits is no number either where a label has no class, and nothing outside of its row is read.
func TestLabelWithoutClass(t *testing.T) {
	const rows, classes = 3, 5
	for _, card := range cards(t) {
		b := graph.NewBuilder("f")
		logits, labels := b.Input("logits", graph.T(graph.F32, rows, classes)), b.Input("labels", graph.T(graph.I32, rows))
		b.Output("loss", b.CrossEntropy(logits, labels, b.Input("weights", graph.T(graph.F32, rows))))
		p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
		if err != nil {
			t.Fatal(err)
		}
		for _, last := range []float64{classes - 1, classes, math.MaxInt32} {
			in := map[string][]float64{"logits": make([]float64, rows*classes), "labels": {0, -1, last}, "weights": {1, 1, 1}}
			out, _, err := tryOutputs(open(t, card, ptxsim.Options{Checks: ptxsim.CheckAll}), p, func(input string, i int) float64 { return in[input][i] })
			if err != nil {
				t.Fatal(err)
			}
			if loss := (engine.Tensor{Data: out["f/loss"]}).F32()[0]; math.IsNaN(float64(loss)) != (last >= classes) {
				t.Errorf("%s: with label %v of %d classes the loss is %v", card.Name, last, classes, loss)
			}
		}
	}
}
