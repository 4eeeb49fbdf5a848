package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// small is a training step of a GPT with every kind of kernel that a language
// model needs: dropout, attention, chunked loss, clipping, accumulation.
func small(accumulation int) engine.Training {
	model := hf.NeoX{Vocab: 50, D: 24, Layers: 2, Heads: 3, FF: 48, MaxPositions: 16, RotaryPct: .5,
		RotaryBase: 10000, Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .05, Dropout: .1, AttentionDropout: .1}
	return engine.Training{
		Accumulation: accumulation,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
		Eval:         true,
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			const batch, t = 3, 16
			h := model.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, batch, t)), Train: mode.Train})
			loss := b.LinearCrossEntropy(b.Reshape(h, batch*t, model.D), model.Output(b),
				b.Input("labels", graph.T(graph.I32, batch*t)), b.Input("weights", graph.T(graph.F32, batch*t)), 20)
			return engine.Objective{Sum: loss}
		},
	}
}

// load compiles a training step and gives it weights and inputs.
func load(t *testing.T, tr engine.Training, low graph.DType, workers int) *engine.Executable {
	t.Helper()
	return loadFor(t, engine.CPU, tr, low, workers)
}

func loadFor(t *testing.T, traits engine.Traits, tr engine.Training, low graph.DType, workers int) *engine.Executable {
	t.Helper()
	p, err := engine.CompileTraining(tr, engine.CompileOptions{Traits: &traits, ComputeDType: low, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(backend.CPU(workers))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Initialize(1); err != nil {
		t.Fatal(err)
	}
	for slot := range engine.Slots {
		for _, in := range p.Inputs {
			x, _ := r.Input(slot, in.Name)
			switch in.Name {
			case engine.InputLR:
				x.F32()[0] = 1e-3
			case engine.InputInvWeight:
				x.F32()[0] = 1. / 48
			case "weights":
				for i := range x.F32() {
					x.F32()[i] = 1
				}
			default:
				for i := range x.I32() {
					x.I32()[i] = int32((i*7919 + slot) % 50)
				}
			}
		}
	}
	return r
}

func run(t *testing.T, r *engine.Executable, fns ...string) {
	t.Helper()
	for i, fn := range fns {
		if err := r.Run(fn, i%engine.Slots); err != nil {
			t.Fatal(err)
		}
	}
}

// allocations returns how many objects each call of f allocates. The minimum of a few
// counts excludes what the Go runtime allocates now and then on a busy machine, such as
// threads for workers that wake up; what f itself allocates is in every count.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(5, f)
	for range 9 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(5, f))
	}
	return least
}

func TestRunAllocatesNothing(t *testing.T) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		for workers := range 3 {
			r := load(t, small(1), low, workers+1)
			if n := allocations(func() { run(t, r, engine.FuncStep) }); n != 0 {
				t.Errorf("%v, %d workers: %v allocations an update", low, workers+1, n)
			}
			r = load(t, small(2), low, workers+1)
			fns := []string{engine.FuncMicro, engine.FuncMicro, engine.FuncUpdate, engine.FuncEval}
			if n := allocations(func() { run(t, r, fns...) }); n != 0 {
				t.Errorf("%v, %d workers, accumulating: %v allocations an update", low, workers+1, n)
			}
		}
	}
}

// The bits of all states after several updates do not depend on the workers.
func TestWorkersDoNotChangeResults(t *testing.T) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		var want [][]byte
		for workers := 1; workers <= 4; workers++ {
			r := load(t, small(2), low, workers)
			for range 3 {
				run(t, r, engine.FuncMicro, engine.FuncMicro, engine.FuncUpdate)
			}
			var got [][]byte
			for _, s := range r.Program().States {
				x, _ := r.State(s.Name)
				got = append(got, slices.Clone(x.Data))
			}
			if want == nil {
				want = got
			}
			for i, s := range r.Program().States {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%v: state %s differs with %d workers", low, s.Name, workers)
				}
			}
		}
	}
}

// The planned arena covers what kernels are given, to the byte.
func TestArenaIsWhatWasPlanned(t *testing.T) {
	for _, accumulation := range []int{1, 2} {
		r := load(t, small(accumulation), graph.F32, 1)
		if used, planned := r.ArenaUsed(), r.Program().Layout.Bytes; used != planned {
			t.Errorf("accumulation %d: kernels reach byte %d of an arena of %d", accumulation, used, planned)
		}
	}
}

// A kernel's complaint about the data names the layer and reaches the caller, and the
// next run starts afresh.
func TestRunReportsBadData(t *testing.T) {
	r := load(t, small(1), graph.F32, 2)
	ids, _ := r.Input(0, "ids")
	was := ids.I32()[7]
	for _, bad := range []int32{-1, 50} {
		ids.I32()[7] = bad
		err := r.Run(engine.FuncStep, 0)
		if want := fmt.Sprintf("id %d at position 7 is outside the table's 50 rows", bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("id %d: error %v, want one with %q", bad, err, want)
		}
	}
	ids.I32()[7] = was
	run(t, r, engine.FuncStep)
	if err := r.Run("nonsense", 0); err == nil {
		t.Error("a function that does not exist was run")
	}
}
