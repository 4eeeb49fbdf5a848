package conformance

import (
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// On returns a backend as a device of the suite, with programs compiled for it, leaving
// out the named passes.
func On(b engine.Backend, without ...string) Device { return loaded{b, without} }

type loaded struct {
	on      engine.Backend
	without []string
}

// Name implements [Device].
func (d loaded) Name() string { return d.on.Name() }

// Run implements [Device].
func (d loaded) Run(f *graph.Func, in map[string][]float64) (out map[string][]float64, err error) {
	outputs := slices.Clone(f.Outputs) // compiling may rewrite f
	traits := d.on.Traits()
	p, err := engine.CompileForward(engine.CompileOptions{
		Traits: &traits, Verify: true, Skip: func(pass string) bool { return slices.Contains(d.without, pass) },
	}, f)
	if err != nil {
		return nil, err
	}
	x, err := p.Load(d.on)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := x.Close(); err == nil {
			err = cerr
		}
	}()
	for name, elems := range in {
		if t, ok := x.Input(0, name); ok {
			t.SetFloat64s(elems)
		} else if p.State(name) != nil {
			t, err := x.State(name)
			if err != nil {
				return nil, err
			}
			t.SetFloat64s(elems)
			if err := x.SetState(t); err != nil {
				return nil, err
			}
		} // otherwise nothing reads it
	}
	if err := x.Run(f.Name, 0); err != nil {
		return nil, err
	}
	out = map[string][]float64{}
	for _, o := range outputs {
		t, err := x.Output(f.Name, o.Name)
		if err != nil {
			return nil, err
		}
		out[o.Name] = t.Float64s()
	}
	return out, nil
}
