package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// OffloadActivations checks that a device that keeps activations in the host's memory until the
// backward half reads them computes the same bits as with them in its own memory, over three
// updates: with as many as possible there, and with some. With optimizer, its states are there
// too.
func OffloadActivations(on engine.Backend, accumulation int, low graph.DType, optimizer bool) error {
	o := engine.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1}
	training := engine.Training{Accumulation: accumulation, Optimizer: o, Model: layered}
	whole, err := updated(on, training, engine.CompileOptions{ComputeDType: low})
	if err != nil {
		return err
	}
	defer func() { _ = whole.Close() }()
	training.Optimizer.Offload = optimizer
	temps := whole.Program().Layout.Temps.Bytes
	for _, budget := range []int64{0, temps * 9 / 10} {
		if err := awayWithin(on, training, whole, engine.CompileOptions{ComputeDType: low, OffloadActivations: true, Budget: budget}); err != nil {
			return fmt.Errorf("with %d bytes for temporaries: %w", budget, err)
		}
		if err := whole.Initialize(1); err != nil {
			return err
		}
		if err := threeUpdates(whole, accumulation); err != nil {
			return err
		}
	}
	return nil
}

func awayWithin(on engine.Backend, training engine.Training, whole *engine.Executable, o engine.CompileOptions) error {
	x, err := updated(on, training, o)
	if err != nil {
		return err
	}
	defer func() { _ = x.Close() }()
	l := &x.Program().Layout
	if used := x.ArenaUsed(); used != l.Bytes {
		return fmt.Errorf("%d bytes of the arena are used, the plan has %d", used, l.Bytes)
	}
	// With one micro-batch per update, all gradients are live at the peak.
	if temps := whole.Program().Layout.Temps.Bytes; l.Activations == 0 || training.Accumulation > 1 && l.Temps.Bytes >= temps {
		return fmt.Errorf("%d bytes of activations are in the host's memory, temporaries take %d, %d before", l.Activations, l.Temps.Bytes, temps)
	}
	if err := sameStates(whole, x); err != nil {
		return err
	}
	if err := guarded(whole, x); err != nil {
		return err
	}
	if err := followed(whole, x); err != nil {
		return fmt.Errorf("followed: %w", err)
	}
	return nil
}

// layered is a model with activations that are idle for long, some of them views, some made by
// several launches of a device.
func layered(b *graph.Builder, _ engine.Mode) engine.Objective {
	init := graph.Init{Kind: graph.InitNormal, B: .3}
	h := b.Mul(b.Param("first", init, 24, 64), b.Input("x", graph.T(graph.F32)))
	for i := range 3 {
		b.Scope(fmt.Sprint("layer", i), func() {
			y := b.Linear(h, b.Param("in", init, 256, 64), b.Param("bias", init, 256))
			y = b.Apply(graph.FnGELU, b.Reshape(y, 12, 2, 256))
			y = b.Linear(b.Reshape(y, 24, 256), b.Param("out", init, 64, 256), nil)
			h = b.Add(h, b.LayerNorm(y, b.Param("gain", graph.Const(1), 64), b.Param("shift", init, 64), 1e-5))
		})
	}
	return engine.Objective{Sum: b.Sum(b.Square(h))}
}
