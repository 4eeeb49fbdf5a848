package cpu_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/cpu/blas"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// withLibrary is the processor with the system's BLAS; without one the test is skipped.
func withLibrary(t *testing.T, threads int) cpu.Backend {
	t.Helper()
	l, err := blas.Open("")
	if absent := (*blas.Absent)(nil); errors.As(err, &absent) {
		t.Skip("no BLAS library is installed (Debian: apt-get install libopenblas0):", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cpu.Backend{Threads: threads}.UseLibrary(l)
}

// With the library computing every plain matmul, matmuls and losses match their
// definitions. Operands that go through a function stay with the kernels, so fused forms
// may round differently from plain ones: each is compared only with its definition.
func TestLibraryConformance(t *testing.T) {
	b := withLibrary(t, 2)
	cpu.Gain(t, 0)
	dev := conformance.On(b)
	for _, c := range conformance.Cases() {
		if name := strings.ToLower(c.Name); !strings.Contains(name, "matmul") && !strings.Contains(name, "linear") {
			continue
		}
		c.Twin = nil
		t.Run(c.Name, func(t *testing.T) {
			if err := conformance.Check(dev, c); err != nil {
				t.Errorf("%v\n%v", err, c.Func)
			}
		})
	}
}

// A choice is kept, whatever a later measurement would say, and the bits do not depend on
// the number of workers.
func TestLibraryChoice(t *testing.T) {
	b := withLibrary(t, 1)
	model := hf.NeoX{Vocab: 300, D: 96, Layers: 2, Heads: 3, FF: 384, MaxPositions: 64, RotaryPct: .5,
		RotaryBase: 10000, Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .05}
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: 1, Optimizer: engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			const batch, length = 8, 64
			h := model.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, batch, length)), Train: mode.Train})
			return engine.Objective{Sum: b.LinearCrossEntropy(b.Reshape(h, batch*length, model.D), model.Output(b),
				b.Input("labels", graph.T(graph.I32, batch*length)), b.Input("weights", graph.T(graph.F32, batch*length)), 128)}
		},
	}, engine.CompileOptions{ComputeDType: graph.F32, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	load := func(b cpu.Backend) (*engine.Executable, string, []byte) {
		t.Helper()
		x, err := p.Load(b)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.Close() })
		record, text := x.Matmuls()
		return x, text, record
	}
	// train returns all weights after three updates.
	train := func(x *engine.Executable) (all []float32) {
		t.Helper()
		if err := x.Initialize(3); err != nil {
			t.Fatal(err)
		}
		for _, in := range p.Inputs {
			v, _ := x.Input(0, in.Name)
			switch in.Name {
			case engine.InputLR:
				v.F32()[0] = 1e-3
			case engine.InputInvWeight:
				v.F32()[0] = 1. / 512
			case "weights":
				for i := range v.F32() {
					v.F32()[i] = 1
				}
			default:
				for i := range v.I32() {
					v.I32()[i] = int32(i * 7919 % 300)
				}
			}
		}
		for range 3 {
			if err := x.Run(engine.FuncStep, 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, st := range p.States {
			if st.Type.DType != graph.F32 {
				continue
			}
			v, err := x.State(st.Name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v.F32()...)
		}
		return all
	}

	cpu.Gain(t, 0)
	x, text, record := load(b)
	if !strings.Contains(text, "shapes of matmuls by ") || !strings.Contains(text, "measured now") || !strings.Contains(x.Arithmetic(), " shapes of matmuls by ") {
		t.Errorf("%q, arithmetic %q", text, x.Arithmetic())
	}
	byLibrary := train(x)
	cpu.Gain(t, 1e9)
	again := withLibrary(t, 2)
	if err := again.Begin(record); err != nil {
		t.Fatal(err)
	}
	y, text, kept := load(again)
	if strings.Contains(text, "measured") || !bytes.Equal(kept, record) || y.Arithmetic() != x.Arithmetic() {
		t.Errorf("a run with a record chose anew: %q, %q, want %q", text, y.Arithmetic(), x.Arithmetic())
	}
	if !slices.Equal(train(y), byLibrary) {
		t.Error("two workers give other bits than one")
	}

	own, err := p.Load(cpu.Backend{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	byKernels := train(own)
	if slices.Equal(byKernels, byLibrary) {
		t.Error("the library's bits are those of the kernels: it cannot have computed")
	}
	for i := range byKernels {
		if d := math.Abs(float64(byKernels[i] - byLibrary[i])); d > 1e-3 {
			t.Fatalf("weight %d: %v by the library, %v by the kernels", i, byLibrary[i], byKernels[i])
		}
	}
	// A run that began without the library continues without it.
	cpu.Gain(t, 0)
	if err := again.Begin([]byte{}); err != nil {
		t.Fatal(err)
	}
	z, text, _ := load(again)
	if text != "matmuls: snug's kernels, with which this run began" || z.Arithmetic() != own.Arithmetic() || !slices.Equal(train(z), byKernels) {
		t.Errorf("%q, %q, want %q and its bits", text, z.Arithmetic(), own.Arithmetic())
	}
	// The workspace is planned before anything is chosen.
	plain, err := cpu.Backend{Threads: 2}.Workspace(p)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := again.Workspace(p); err != nil || n < plain || n > plain+4096*2 {
		t.Errorf("a workspace of %d bytes, %v, and %d without the library", n, err, plain)
	}
	for _, wrong := range []string{"{", `{"library":"x","products":[{"product":"b","by_library":true},{"product":"a","by_library":true}]}`} {
		if err := again.Begin([]byte(wrong)); err == nil {
			t.Errorf("%s was taken for a record", wrong)
		}
	}
}
