package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/refdevice"
)

// A device whose memory is out of the host's reach trains the same with the states of the
// optimizer in the host's memory, in every format of states and weights.
func TestOffloadOnReferenceDevice(t *testing.T) {
	for _, o := range conformance.Offloadable() {
		for _, accumulation := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d/%g/%d", o.Rule, o.Round.Mode, o.MaxGradNorm, accumulation), func(t *testing.T) {
				if err := conformance.Offload(refdevice.Backend{}, o, accumulation); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The same for activations, alone and with the states.
func TestOffloadActivationsOnReferenceDevice(t *testing.T) {
	for accumulation, low := range map[int]graph.DType{1: graph.F32, 2: graph.BF16} {
		if err := conformance.OffloadActivations(refdevice.Backend{}, accumulation, low, accumulation == 1); err != nil {
			t.Errorf("%v, accumulation %d: %v", low, accumulation, err)
		}
	}
}

// Rules that need their states whole are refused, and the processor, whose memory is the
// host's, refuses such a program.
func TestOffloadRefusals(t *testing.T) {
	o := engine.Optimizer{Rule: engine.Adafactor, Offload: true, Round: graph.Rounding{}}
	if err := conformance.Offload(refdevice.Backend{}, o, 2); err == nil || !strings.Contains(err.Error(), "only states of steps that work element by element can be offloaded") {
		t.Errorf("adafactor: %v", err)
	}
	if engine.Adafactor.Offloadable() == nil || engine.Muon.Offloadable() == nil || engine.AdamW.Offloadable() != nil {
		t.Error("what can be offloaded is not adamw, adamw8bit and lion")
	}
	if err := conformance.Offload(backend.CPU(1), engine.Optimizer{Rule: engine.Lion}, 2); err == nil || !strings.Contains(err.Error(), "what the processor computes in") {
		t.Errorf("the processor: %v", err)
	}
}

// offloaded is a program like those that Offload runs.
func offloaded(t *testing.T) *engine.Program {
	t.Helper()
	o := conformance.Offloadable()[0]
	o.Offload = true
	model := func(b *graph.Builder, _ engine.Mode) engine.Objective {
		return engine.Objective{Sum: b.Sum(b.Square(b.Param("w", graph.Init{Kind: graph.InitNormal, B: 1}, engine.LeastOffloaded)))}
	}
	traits := refdevice.Backend{}.Traits()
	p, err := engine.CompileTraining(engine.Training{Accumulation: 1, Optimizer: o, Model: model}, engine.CompileOptions{Traits: &traits, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
