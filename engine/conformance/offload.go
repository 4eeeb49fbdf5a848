package conformance

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Offload checks that a device that keeps an optimizer's states in the host's memory computes the
// same bits as with the states in its own memory: over three updates of weights that are cut into
// several windows, of a part of a window, of one, and of none. Updates are clipped, or each
// weight is updated as its gradient becomes known.
func Offload(on engine.Backend, o engine.Optimizer, accumulation int) error {
	training := engine.Training{Accumulation: accumulation, Optimizer: o, Model: quadratic}
	whole, err := update(on, training)
	if err != nil {
		return err
	}
	defer func() { _ = whole.Close() }()
	training.Optimizer.Offload = true
	x, err := update(on, training)
	if err != nil {
		return fmt.Errorf("offloaded: %w", err)
	}
	defer func() { _ = x.Close() }()
	p := x.Program()
	if used := x.ArenaUsed(); used != p.Layout.Bytes {
		return fmt.Errorf("%d bytes of the arena are used, the plan has %d", used, p.Layout.Bytes)
	}
	var host int64
	for _, s := range p.States {
		if s.Offloaded {
			host += p.Align(s.Type.Bytes())
		}
	}
	if saved := whole.Program().Layout.States.Bytes - p.Layout.States.Bytes; host == 0 || saved != host || p.Layout.Host.Bytes != host {
		return fmt.Errorf("states take %d bytes less on the device, those offloaded %d, the host's memory has %d", saved, host, p.Layout.Host.Bytes)
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

// quadratic is a model whose gradients are simple to derive.
func quadratic(b *graph.Builder, _ engine.Mode) engine.Objective {
	var sum *graph.Value
	for _, w := range []struct {
		name string
		dims []int
	}{{"several", []int{5, 4100}}, {"one", []int{4, 4096}}, {"none", []int{9, 30}}, {"vector", []int{engine.LeastOffloaded + 3}}} {
		x := b.Param(w.name, graph.Init{Kind: graph.InitNormal, B: 1}, w.dims...)
		y := b.Sum(b.Mul(b.Square(x), b.Input("x", graph.T(graph.F32))))
		if sum == nil {
			sum = y
		} else {
			sum = b.Add(sum, y)
		}
	}
	return engine.Objective{Sum: sum}
}

// fns are the functions of an update.
func fns(accumulation int) []string {
	if accumulation == 1 {
		return []string{engine.FuncStep}
	}
	return append(slices.Repeat([]string{engine.FuncMicro}, accumulation), engine.FuncUpdate)
}

// update compiles a training, loads it and runs three updates, one of which is skipped.
func update(on engine.Backend, tr engine.Training) (*engine.Executable, error) {
	return updated(on, tr, engine.CompileOptions{})
}

func updated(on engine.Backend, tr engine.Training, o engine.CompileOptions) (*engine.Executable, error) {
	traits := on.Traits()
	o.Traits, o.Verify, o.Staging, o.Watched = &traits, true, 1<<15, true
	p, err := engine.CompileTraining(tr, o)
	if err != nil {
		return nil, err
	}
	x, err := p.Load(on)
	if err != nil {
		return nil, err
	}
	if err := x.Initialize(1); err != nil {
		return x, err
	}
	return x, threeUpdates(x, tr.Accumulation)
}

func threeUpdates(x *engine.Executable, accumulation int) error {
	for u, scale := range []float32{.5, float32(math.Inf(1)), -.25} {
		if err := once(x, accumulation, scale, 1e-2/float32(u+1)); err != nil {
			return err
		}
	}
	return nil
}

// once runs one update.
func once(x *engine.Executable, accumulation int, scale, lr float32) error {
	return onceBy(x, accumulation, scale, lr, x.Run)
}

// onceBy has run run the functions.
func onceBy(x *engine.Executable, accumulation int, scale, lr float32, run func(fn string, slot int) error) error {
	for slot := range engine.Slots {
		for name, v := range map[string]float32{"x": scale, engine.InputInvWeight: 1, engine.InputLR: lr} {
			if t, ok := x.Input(slot, name); ok {
				t.F32()[0] = v
			}
		}
		if t, ok := x.Input(slot, engine.InputMicro); ok {
			clear(t.F32())
			t.F32()[slot] = 1
		}
	}
	for i, fn := range fns(accumulation) {
		if err := run(fn, i%engine.Slots); err != nil {
			return err
		}
	}
	return x.Sync()
}

// followed runs another update whose micro-batches are watched: every gradient begins and then
// ends, once, and when it ends it has its final value.
func followed(whole, x *engine.Executable) error {
	if x.Program().Func(engine.FuncUpdate) == nil {
		return nil // one function, whose gradients are not exchanged
	}
	const accumulation = 2
	read := func(name string) ([]byte, error) {
		s := x.Program().State(name)
		b := make([]byte, s.Type.Bytes())
		return b, x.ReadPart(engine.Part{State: s, Elems: s.Type.Shape.Elems()}, b)
	}
	var mu sync.Mutex
	err := onceBy(x, accumulation, .3, 1e-2, func(fn string, slot int) error {
		if fn == engine.FuncUpdate {
			return x.Run(fn, slot)
		}
		begun, ended := map[string]int{}, map[string][]byte{}
		err := x.RunWatched(fn, slot, &engine.Watch{
			Begins: func(gradients []string) error {
				mu.Lock()
				defer mu.Unlock()
				for _, name := range gradients {
					begun[name]++
				}
				return nil
			},
			Ends: func(gradients []string) error {
				mu.Lock()
				defer mu.Unlock()
				for _, name := range gradients {
					if begun[name] != 1 || ended[name] != nil {
						return fmt.Errorf("%s ends, and began %d times; ended before: %v", name, begun[name], ended[name] != nil)
					}
					var err error
					if ended[name], err = read(name); err != nil {
						return err
					}
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		for _, states := range x.Program().Buckets() {
			for _, s := range states {
				now, err := read(s.Name)
				switch {
				case err != nil:
					return err
				case ended[s.Name] == nil:
					return fmt.Errorf("%s does not end", s.Name)
				case !bytes.Equal(now, ended[s.Name]):
					return fmt.Errorf("%s changes after it ended", s.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, scale := range []float32{.2, .3} { // guarded has run the first on x only
		if err := once(whole, accumulation, scale, 1e-2); err != nil {
			return err
		}
	}
	return sameStates(whole, x)
}

// sameStates reports the first state that differs.
func sameStates(a, b *engine.Executable) error {
	for _, s := range a.Program().States {
		if s.Role == graph.Rounded {
			continue // it follows from its weight, and only programs without offloaded states have it
		}
		x, err := a.State(s.Name)
		if err != nil {
			return err
		}
		y, err := b.State(s.Name)
		if err != nil {
			return err
		}
		if !bytes.Equal(x.Data, y.Data) {
			return fmt.Errorf("state %s differs where states are offloaded", s.Name)
		}
	}
	return nil
}

// guarded runs another update node by node, and one whose states are read as they were before
// it, like a checkpoint does.
func guarded(whole, x *engine.Executable) error {
	accumulation := 1
	if x.Program().Func(engine.FuncUpdate) != nil {
		accumulation = 2
	}
	for _, r := range []*engine.Executable{whole, x} {
		r.Observe(&engine.Observer{})
		err := once(r, accumulation, .1, 1e-2)
		r.Observe(nil)
		if err != nil {
			return err
		}
	}
	if err := sameStates(whole, x); err != nil {
		return fmt.Errorf("node by node: %w", err)
	}
	before, read := map[string]engine.Tensor{}, map[string][]byte{}
	for _, s := range x.Program().States {
		t, err := x.State(s.Name)
		if err != nil {
			return err
		}
		before[s.Name] = t
	}
	x.Guard(func(states []string) error {
		for _, name := range states {
			if read[name] == nil {
				read[name] = make([]byte, len(before[name].Data))
				if err := x.Peek(name, 0, read[name]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	err := once(x, accumulation, .2, 1e-2)
	x.Guard(nil)
	if err != nil {
		return err
	}
	for _, s := range x.Program().States {
		t, err := x.State(s.Name)
		if err != nil {
			return err
		}
		was := before[s.Name].Data
		switch {
		case read[s.Name] != nil && !bytes.Equal(read[s.Name], was):
			return fmt.Errorf("state %s had changed when the guard was asked", s.Name)
		case read[s.Name] == nil && !bytes.Equal(t.Data, was):
			return fmt.Errorf("state %s changed, and nobody was asked", s.Name)
		case s.Offloaded && bytes.Equal(t.Data, was):
			return fmt.Errorf("state %s did not change", s.Name)
		}
	}
	return nil
}

// Offloadable returns optimizers whose states can be offloaded, in all formats.
func Offloadable() (list []engine.Optimizer) {
	for _, rule := range []engine.Rule{engine.AdamW, engine.AdamW8bit, engine.Lion} {
		for _, mode := range []graph.RoundingMode{graph.Exact, graph.Stochastic, graph.Compensated} {
			o := engine.Optimizer{Rule: rule, Beta1: .9, Beta2: .99, Eps: 1e-8, WeightDecay: .1, Round: graph.Rounding{Mode: mode, Seed: 3}}
			if mode == graph.Exact {
				o.MaxGradNorm = 1
			}
			list = append(list, o)
		}
	}
	return list
}
