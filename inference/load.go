package inference

import (
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Load compiles functions in float32 without a backward half, loads them on a device and
// calls fill to set the weights.
func Load(on engine.Backend, fill func(x *engine.Executable) error, funcs ...*graph.Func) (*engine.Executable, error) {
	p, err := compile(on, funcs)
	if err != nil {
		return nil, err
	}
	return load(on, p, fill)
}

func compile(on engine.Backend, funcs []*graph.Func) (*engine.Program, error) {
	traits := on.Traits()
	return engine.CompileForward(engine.CompileOptions{Traits: &traits, ComputeDType: graph.F32}, funcs...)
}

func load(on engine.Backend, p *engine.Program, fill func(x *engine.Executable) error) (*engine.Executable, error) {
	x, err := p.Load(on)
	if err != nil {
		return nil, err
	}
	if err = x.Initialize(0); err == nil {
		err = fill(x)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// FillWeights fills the program's weights, rounded to the format that the program keeps
// them in.
func FillWeights(x *engine.Executable, open func() (Weights, error)) (err error) {
	f, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, s := range x.Program().States {
		if s.Role != graph.Weight {
			continue
		}
		t, err := f.Tensor(s.SavedName(f.Has))
		if err != nil {
			return err
		}
		if !slices.Equal(t.Shape, s.Type.Shape) {
			return fmt.Errorf("tensor %s has shape %v, the model wants %v", s.Name, t.Shape, s.Type.Shape)
		}
		elems := make([]float32, s.Type.Shape.Elems())
		err = t.Float32s(elems)
		t.Release()
		if err != nil {
			return err
		}
		if err := x.SetFloats(s.Name, elems); err != nil {
			return err
		}
	}
	return nil
}
