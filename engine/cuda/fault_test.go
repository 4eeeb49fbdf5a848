package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// regression is a training step with few kernels, for a weight with the given number of rows.
func regression(t *testing.T, rows int, offload bool) *engine.Program {
	t.Helper()
	traits := engine.CUDA
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: 2,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, MaxGradNorm: 1, Offload: offload},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			w := b.Param("w", graph.Init{Kind: graph.InitNormal, B: .1}, rows, 8)
			x, y := b.Input("x", graph.T(graph.F32, 4, rows)), b.Input("y", graph.T(graph.F32, 4, 8))
			return engine.Objective{Sum: b.Sum(b.Square(b.Sub(b.MatMul(x, w, false, false), y)), 0, 1)}
		},
	}, engine.CompileOptions{Traits: &traits})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// twoUpdates loads the program and trains a little, doing everything that a run does on a card: filling
// inputs, writing and reading states.
func twoUpdates(ctx driver.Context, p *engine.Program) (err error) {
	b, err := cuda.New(ctx)
	if err != nil {
		return err
	}
	x, err := p.Load(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.Initialize(1); err != nil {
		return err
	}
	for range 2 {
		for slot := range engine.Slots {
			for _, in := range p.Inputs {
				v, _ := x.Input(slot, in.Name)
				for i := range v.F32() {
					v.F32()[i] = .01 * float32(i+1)
				}
			}
			if err := x.Run(engine.FuncMicro, slot); err != nil {
				return err
			}
		}
		if err := x.Run(engine.FuncUpdate, 1); err != nil {
			return err
		}
		if _, err := x.OutputF32(engine.FuncMicro, engine.OutputLoss); err != nil {
			return err
		}
	}
	return x.ScanState("w", func(engine.Tensor) bool { return true })
}

// Each call of the driver fails in turn, in a way that the card survives and in one that it does not: the
// error names the call, and everything is freed.
func TestEveryCallMayFail(t *testing.T) { everyCallMayFail(t, regression(t, 8, false), 7) }

// The same holds for states in the host's memory.
func TestEveryCallMayFailOffloaded(t *testing.T) {
	everyCallMayFail(t, regression(t, engine.LeastOffloaded/8, true), 31)
}

func everyCallMayFail(t *testing.T, p *engine.Program, short int) {
	var calls []string
	attempt := func(fail func(call string) driver.Code) (*fakegpu.Driver, error) {
		d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: fail}
		ctx, err := d.Open(0)
		if err != nil {
			return d, err
		}
		err = twoUpdates(ctx, p)
		return d, errors.Join(err, ctx.Close())
	}
	if _, err := attempt(func(call string) driver.Code { calls = append(calls, call); return 0 }); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d calls", len(calls))
	step := 1
	if testing.Short() {
		step = short
	}
	for _, code := range []driver.Code{driver.OutOfMemory, driver.ECCUncorrectable} {
		for i := 0; i < len(calls); i += step {
			n := 0
			d, err := attempt(func(string) driver.Code {
				if n++; n == i+1 {
					return code
				}
				return 0
			})
			var e *driver.Error
			switch {
			case !errors.As(err, &e):
				t.Errorf("call %d, %s: %v", i, calls[i], err)
			case e.Call != calls[i] || e.Code != code || !strings.Contains(err.Error(), calls[i]):
				t.Errorf("call %d, %s: %v", i, calls[i], err)
			}
			if err := d.Left(); err != nil {
				t.Errorf("call %d, %s: %v", i, calls[i], err)
			}
		}
	}
}
