package engine_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/refdevice"
)

// A guard is called for every state before it changes, and until then a state can be read
// as it was when the guard was set; an error of the guard ends the run, and the states it
// was called for are unchanged.
func TestGuardIsAskedBeforeStatesChange(t *testing.T) {
	for _, on := range []engine.Backend{backend.CPU(2), refdevice.Backend{}} {
		for _, fns := range [][]string{{engine.FuncStep}, {engine.FuncMicro, engine.FuncMicro, engine.FuncUpdate}} {
			r := load(t, small(len(fns)-len(fns)/3), graph.F32, 1)
			x := copyTo(t, r, on)
			run(t, x, fns...)
			before := states(t, x)
			asked := map[string]bool{}
			guard := func(names []string) error {
				for _, name := range names {
					at := slices.IndexFunc(before, func(s engine.Tensor) bool { return s.Name == name })
					now := make([]byte, len(before[at].Data))
					if err := x.Peek(name, 0, now); err != nil {
						return err
					}
					if !asked[name] && !bytes.Equal(now, before[at].Data) {
						t.Errorf("%s on %s: %s has changed before the guard was asked", fns, on.Name(), name)
					}
					asked[name] = true
				}
				return nil
			}
			x.Guard(guard)
			run(t, x, fns...)
			for i, s := range states(t, x) {
				if !asked[s.Name] && !bytes.Equal(s.Data, before[i].Data) {
					t.Errorf("%s on %s: %s has changed, and nobody was asked", fns, on.Name(), s.Name)
				}
			}
			if !asked[engine.StateStep] {
				t.Errorf("%s on %s: the guard was asked for %v", fns, on.Name(), asked)
			}

			clear(asked)
			before = states(t, x)
			s := before[0]
			if err := x.WriteState(s.Name, s.Data); err != nil || !asked[s.Name] {
				t.Errorf("writing to %s asks for %v (%v)", s.Name, asked, err)
			}

			no := errors.New("not yet")
			x.Guard(func(names []string) error {
				if slices.Contains(names, engine.StateStep) {
					return no
				}
				return nil
			})
			for _, fn := range fns {
				_ = x.Run(fn, 0)
			}
			if err := x.Sync(); err != nil && !errors.Is(err, no) {
				t.Errorf("the run ended with %v", err)
			}
			if got, want := peek(t, x, engine.StateStep), before[slices.IndexFunc(before, func(s engine.Tensor) bool { return s.Name == engine.StateStep })].Data; !bytes.Equal(got, want) {
				t.Errorf("%s on %s: the counter changed though the guard refused", fns, on.Name())
			}
			x.Guard(nil)
		}
	}
}

// copyTo loads the program of r on a device, with the states and inputs of r.
func copyTo(t *testing.T, r *engine.Executable, on engine.Backend) *engine.Executable {
	t.Helper()
	traits := on.Traits()
	p, err := engine.CompileTraining(small(accumulationOf(r)), engine.CompileOptions{Traits: &traits})
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.Load(on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := x.Initialize(1); err != nil {
		t.Fatal(err)
	}
	for slot := range engine.Slots {
		for _, in := range p.Inputs {
			to, _ := x.Input(slot, in.Name)
			if from, ok := r.Input(slot, in.Name); ok {
				copy(to.Data, from.Data)
			}
		}
	}
	return x
}

func accumulationOf(r *engine.Executable) int {
	if r.Program().Func(engine.FuncUpdate) != nil {
		return 2
	}
	return 1
}

// states returns copies of all states.
func states(t *testing.T, x *engine.Executable) (all []engine.Tensor) {
	t.Helper()
	for _, s := range x.Program().States {
		c, err := x.State(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func peek(t *testing.T, x *engine.Executable, name string) []byte {
	t.Helper()
	data := make([]byte, x.Program().State(name).Type.Bytes())
	if err := x.Peek(name, 0, data); err != nil {
		t.Fatal(err)
	}
	return data
}
