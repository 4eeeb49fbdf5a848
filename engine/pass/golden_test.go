package pass_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/nn/hf"
)

var update = flag.Bool("update", false, "write the golden dumps anew")

// block is one layer of a language model with dropout, in mixed precision, with
// activations rebuilt and gradients accumulated: every pass has something to do.
func block() *pass.Unit {
	b := graph.NewBuilder("block")
	const batch, t = 2, 4
	m := hf.NeoX{Vocab: 11, D: 8, Layers: 1, Heads: 2, FF: 16, MaxPositions: t, RotaryPct: .5, RotaryBase: 10000,
		Activation: "gelu", Eps: 1e-5, InitStd: .02, Dropout: .1, Tied: true}
	h := m.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, batch, t)), Train: true})
	loss := b.LinearCrossEntropy(b.Reshape(h, batch*t, m.D), m.Output(b),
		b.Input("labels", graph.T(graph.I32, batch*t)), b.Input("weights", graph.T(graph.F32, batch*t)), batch*t)
	b.Output("loss", b.MulC(loss, 1./(batch*t)))
	return &pass.Unit{F: b.F, Loss: "loss", ComputeDType: graph.BF16, Recompute: pass.RecomputeSelective,
		Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
			for i, p := range params {
				g := b.State(&graph.State{Name: "gradient." + p.Name, Type: p.Type, Role: graph.Gradient})
				b.Accumulate(g, grads[i])
			}
		}}
}

// The program before the passes and after each is unchanged; go test -update writes the
// current one.
func TestGoldenDumps(t *testing.T) {
	check := func(name string, f *graph.Func) {
		t.Helper()
		path := filepath.Join("testdata", "block", name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(f.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), f.String()); diff != "" {
			t.Errorf("%s has changed (-want +got; go test -update accepts it):\n%s", path, diff)
		}
	}
	check("0-written", block().F)
	for i, name := range pass.Names() {
		u := block()
		if err := pass.Run(u, pass.Options{Stop: name, Verify: true}); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("%d-%s", i+1, name), u.F)
	}
}
