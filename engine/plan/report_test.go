package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
)

func card(t testing.TB, name string) *device.Card {
	t.Helper()
	c, err := device.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onCard returns a card of the table with snug's kernels.
func onCard(t testing.TB, name string) plan.Target {
	t.Helper()
	c := card(t, name)
	return plan.OnCard(c, backend.Lower(c))
}

// TestProductionOnT4 plans the guide's production model in float32 as the guide runs it, with known numbers.
func TestProductionOnT4(t *testing.T) {
	s := plan.Settings{MicroBatch: 4, Accumulation: 8, Precision: device.FP32, CEChunk: 1024}
	p, err := compiler(production(), 1024, engine.CUDA)(s)
	if err != nil {
		t.Fatal(err)
	}
	r := plan.New(p, onCard(t, "T4"), plan.Run{Settings: s, Tokens: 4 * 1024})
	t.Logf("\n%v", r)
	if r.Parameters != 1_414_455_296 || r.Trained != r.Parameters {
		t.Errorf("%d parameters, %d trained, want 1,414,455,296", r.Parameters, r.Trained)
	}
	static := int64(0)
	for _, c := range r.Components {
		switch c.Name {
		case "weights", "gradient accumulators", "optimizer moments":
			static += c.Bytes
		}
	}
	if static != 16*1_414_455_296 {
		t.Errorf("weights, gradients and moments are %d bytes, want 16 a parameter: %d", static, int64(16*1_414_455_296))
	}
	if r.Fits {
		t.Error("it fits a T4")
	}
}

// TestComponentsAddUp: the components of the arena add up to it, for all settings.
func TestComponentsAddUp(t *testing.T) {
	m := production()
	m.Layers, m.Heads, m.D, m.FF, m.Vocab = 3, 4, 64, 192, 1001
	for _, s := range []plan.Settings{
		{MicroBatch: 1, Accumulation: 1, Precision: device.FP32},
		{MicroBatch: 3, Accumulation: 1, Precision: device.BF16, CEChunk: 17},
		{MicroBatch: 2, Accumulation: 4, Precision: device.FP16, CEChunk: 32, Recompute: pass.RecomputeSelective},
		{MicroBatch: 2, Accumulation: 4, Precision: device.BF16, CEChunk: 32, Recompute: pass.RecomputeFull},
		{MicroBatch: 2, Accumulation: 1, Precision: device.FP32, CEChunk: 32, Recompute: pass.RecomputeAuto, Budget: 1 << 20},
	} {
		p, err := compiler(m, 48, engine.CPU)(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range []plan.Target{onCard(t, "L4"), plan.OnHost(device.DetectHost(), plan.Rates{})} {
			r := plan.New(p, target, plan.Run{Settings: s, Tokens: 96, Workspace: 12345, Staging: 678, Data: 90, Heap: 7})
			var arena, all int64
			for _, c := range r.Components {
				if c.Bytes <= 0 {
					t.Errorf("%v: %s is %d bytes", s, c.Name, c.Bytes)
				}
				all += c.Bytes
				if c.Arena {
					arena += c.Bytes
				}
			}
			if arena != p.Layout.Bytes || r.Arena != arena {
				t.Errorf("%v: the components of the arena are %d bytes, the report says %d, the program has %d", s, arena, r.Arena, p.Layout.Bytes)
			}
			if all != r.Total {
				t.Errorf("%v: the components are %d bytes, the total %d", s, all, r.Total)
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestKinds: what the report calls gradients, copies and so on is exactly that.
func TestKinds(t *testing.T) {
	m := production()
	m.Layers, m.Heads, m.D, m.FF, m.Vocab = 2, 4, 64, 256, 5003
	bytes := func(s plan.Settings) map[string]int64 {
		p, err := compiler(m, 32, engine.CPU)(s)
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]int64{}
		for _, c := range plan.New(p, onCard(t, "T4"), plan.Run{Settings: s}).Components {
			by[c.Name] += c.Bytes
		}
		return by
	}
	var weights int64
	p, err := compiler(m, 32, engine.CPU)(plan.Settings{MicroBatch: 1, Accumulation: 2, Precision: device.FP32})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.States {
		if s.Role == graph.Weight {
			weights += (s.Type.Bytes() + engine.CPU.Align - 1) / engine.CPU.Align * engine.CPU.Align
		}
	}
	plain := bytes(plan.Settings{MicroBatch: 1, Accumulation: 2, Precision: device.FP32})
	if plain["weights"] != weights || plain["gradient accumulators"] != weights || plain["optimizer moments"] != 2*weights {
		t.Errorf("weights are %d bytes, the plan has %v", weights, plain)
	}
	// All 32 rows of logits exist at once, or 8 of them.
	whole, chunked := plain["logits and loss"], bytes(plan.Settings{MicroBatch: 1, Accumulation: 2, Precision: device.FP32, CEChunk: 8})["logits and loss"]
	if whole < 32*5003*4 || chunked >= whole {
		t.Errorf("logits take %d bytes, in chunks %d", whole, chunked)
	}
	if low := bytes(plan.Settings{MicroBatch: 1, Accumulation: 2, Precision: device.BF16})["low-precision copies of weights"]; low == 0 || low > weights/2 {
		t.Errorf("16-bit copies of %d bytes of weights are %d bytes", weights, low)
	}
	if one := bytes(plan.Settings{MicroBatch: 1, Accumulation: 1, Precision: device.FP32}); one["gradient accumulators"] != 0 || one["gradients"] == 0 {
		t.Errorf("without accumulation: %v", one)
	}
}
