package plan_test

import (
	"flag"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
)

var compare = flag.Bool("compare", false, "print the predicted time of a small model's step next to the measured one")

// TestPredictedAndMeasured: a profile accounts for every execution of a step, and prices each as the plan
// does. The table of predicted and measured times is only for people, because no bound holds on a shared
// machine.
func TestPredictedAndMeasured(t *testing.T) {
	m := hf.NeoX{Vocab: 1024, D: 128, Layers: 2, Heads: 4, FF: 512, MaxPositions: 64,
		RotaryPct: .25, RotaryBase: 10000, Activation: "gelu", Eps: 1e-5, InitStd: .02}
	s := plan.Settings{MicroBatch: 4, Accumulation: 1, Precision: device.FP32, CEChunk: 128}
	steps, tokens := 2, 64
	if *compare {
		m.Vocab, m.D, m.Layers, m.Heads, m.FF, m.MaxPositions = 8192, 384, 6, 6, 1536, 256
		steps, tokens, s.MicroBatch = 5, 256, 8
	}
	precisions := []device.Precision{device.FP32}
	if *compare {
		precisions = append(precisions, device.BF16)
	}
	rates, err := plan.Calibrate(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, s.Precision = range precisions {
		p, err := compiler(m, tokens, engine.CPU)(s)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Load(backend.CPU(2))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Initialize(1); err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Inputs {
			x, _ := r.Input(0, v.Name)
			if v.Type.DType == graph.F32 {
				for i := range x.F32() {
					x.F32()[i] = 1e-3
				}
				continue
			}
			for i := range x.I32() {
				x.I32()[i] = int32(i * 7 % m.Vocab)
			}
		}
		var profile plan.Profile
		for i := range steps + 1 {
			if i == 1 {
				r.Observe(profile.Observer())
			}
			if err := r.Run(engine.FuncStep, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		speed := rates.In(s.Precision)
		t.Logf("%v: %s\n%s", s, speed.Source, profile.Table(speed))
		nodes := 0
		for _, n := range p.Func(engine.FuncStep).F.Nodes {
			if !graph.IsView(n.Op) {
				nodes++
			}
		}
		runs := 0
		var predicted float64
		for _, row := range profile.Rows(speed) {
			if row.Measured <= 0 {
				t.Errorf("%s took no time", row.Op)
			}
			runs += row.Runs
			predicted += row.Predicted
		}
		if runs != nodes*steps {
			t.Errorf("%d executions observed of %d nodes in %d steps", runs, nodes, steps)
		}
		// The profile prices what it observes as the plan does.
		if want := float64(steps) * plan.Predict(p, speed, plan.Run{Settings: s}).Update; predicted < .999*want || predicted > 1.001*want {
			t.Errorf("the rows predict %g s, the plan %g s", predicted, want)
		}
	}
}
