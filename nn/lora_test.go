package nn_test

import (
	"math"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// A layer with its update merged computes the same as the adapted layer.
func TestMergedEqualsAdapted(t *testing.T) {
	const rows, steps, in, out = 3, 5, 48, 40
	l := nn.LoRA{Name: "lora", Rank: 6, Alpha: 12}
	b := graph.NewBuilder("f")
	err := graph.Catch(func() {
		x := b.Input("x", graph.T(graph.F32, rows, steps, in))
		b.Output("plain", nn.Linear(b, "layer", x, out, true, graph.Normal(.1)))
		b.Scope("layer", func() {
			y := b.Linear(x, b.F.StateValue("layer.weight"), b.F.StateValue("layer.bias"))
			b.Output("adapted", nn.Adapt(b, x, y, false, nn.Gated{LoRA: l}))
			gate := b.Input("gate", graph.T(graph.F32, rows, 1, 1))
			b.Output("gated", nn.Adapt(b, x, y, false, nn.Gated{LoRA: l, Gate: gate}))
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.Initialize(7); err != nil {
		t.Fatal(err)
	}
	x, _ := r.Input(0, "x")
	for i := range x.F32() {
		x.F32()[i] = float32(math.Sin(float64(i)))
	}
	gate, _ := r.Input(0, "gate")
	copy(gate.F32(), []float32{0, 1, .5})
	result := func(name string) []float32 {
		v, _ := r.Output("f", name)
		return append([]float32(nil), v.F32()...)
	}
	run := func() {
		if err := r.Run("f", 0); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if plain, adapted := result("plain"), result("adapted"); far(plain, adapted) != 0 {
		t.Error("a new adapter changes the layer: B does not start at zero")
	}
	downName, upName := l.Weights("layer")
	down, _ := r.State(downName)
	up, _ := r.State(upName)
	for i := range up.F32() {
		up.F32()[i] = float32(math.Cos(float64(3 * i)))
	}
	set := func(t2 engine.Tensor) {
		t.Helper()
		if err := r.SetState(t2); err != nil {
			t.Fatal(err)
		}
	}
	set(up)
	run()
	plain, adapted, gated := result("plain"), result("adapted"), result("gated")
	if far(plain, adapted) < .1 {
		t.Error("the adapter changes nothing")
	}
	for i := range gated {
		g := gate.F32()[i/(steps*out)]
		if want := plain[i] + g*(adapted[i]-plain[i]); math.Abs(float64(gated[i]-want)) > 1e-5 {
			t.Fatalf("element %d with gate %v is %v, want %v", i, g, gated[i], want)
		}
	}
	w, _ := r.State("layer.weight")
	if err := l.Merge(w.F32(), down.F32(), up.F32()); err != nil {
		t.Fatal(err)
	}
	set(w)
	run()
	if d := far(result("plain"), adapted); d > 1e-5 {
		t.Errorf("merged and adapted differ by %g", d)
	}
}

func TestMergeRefuses(t *testing.T) {
	err := nn.LoRA{Rank: 2, Alpha: 1}.Merge(make([]float32, 12), make([]float32, 6), make([]float32, 6))
	if err == nil || !strings.Contains(err.Error(), "does not fit a weight of 12") {
		t.Errorf("got %v", err)
	}
}

func far(a, b []float32) float64 {
	worst := 0.0
	for i := range a {
		worst = max(worst, math.Abs(float64(a[i]-b[i])))
	}
	return worst
}
