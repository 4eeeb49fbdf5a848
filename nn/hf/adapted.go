package hf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/float16"
	"github.com/snug-ml/snug/nn"
)

// Adapted is a model with trained adapters.
type Adapted struct {
	// States are the model's, under whose names its weights are found.
	States []*graph.State
	// Trained holds the adapters, and the weights that replace those of the base. It must
	// stay open as long as the weights opened with it.
	Trained Source
	LoRA    nn.LoRA
	// Frozen is the format in which the base's matrices were stored during training
	// ([graph.State.FrozenAs]); they are rounded to it.
	Frozen graph.DType
}

// OpenFolder opens the weights of the model folder dir with the trained ones: updates are
// merged into the weights that they adapt, other trained weights replace the folder's.
// The folder may differ from the model as o allows.
func (a *Adapted) OpenFolder(c *Config, dir string, o LoadOptions) (Weights, error) {
	src, err := OpenWeights(dir)
	if err != nil {
		return nil, err
	}
	own := a.own()
	o.New = func(name string) bool { return own[name] }
	m, err := c.match(src, dir, a.States, o)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	from := map[string]string{}
	for _, l := range m.copies {
		from[l.state.Name] = l.from.Name
	}
	return a.over(src, dir, from, c.InOut())
}

// Open is OpenFolder for base weights that already have the model's names; where names
// them in errors.
func (a *Adapted) Open(base Weights, where string) (Weights, error) {
	from, own, has := map[string]string{}, a.own(), map[string]bool{}
	for _, t := range base.Tensors() {
		has[t.Name] = true
	}
	for _, s := range a.States {
		name := s.SavedName(func(name string) bool { return has[name] })
		switch {
		case !learned(s):
		case has[name]:
			from[s.Name] = name
		case !own[s.Name]:
			return nil, errors.Join(fmt.Errorf("%s lacks %s", where, s.Name), base.Close())
		}
	}
	return a.over(base, where, from, false)
}

// learned reports whether a checkpoint of the whole model contains the state.
func learned(s *graph.State) bool { return s.Role == graph.Weight || s.Role == graph.Buffer }

// own returns the names of the trained weights.
func (a *Adapted) own() map[string]bool {
	own := map[string]bool{}
	for _, t := range a.Trained.Tensors() {
		own[t.Name] = true
	}
	return own
}

func (a *Adapted) over(base Weights, where string, from map[string]string, inOut bool) (Weights, error) {
	w := &adaptedWeights{Weights: base, trained: a.Trained, lora: a.LoRA, frozen: a.Frozen, inOut: inOut, from: from, own: a.own(), states: map[string]*graph.State{}}
	for _, s := range a.States {
		if !learned(s) {
			continue
		}
		w.states[s.Name] = s
		w.infos = append(w.infos, safetensors.Info{Name: s.Name, DType: safetensors.F32, Shape: s.Type.Shape})
	}
	for _, t := range a.Trained.Tensors() {
		if layer, _, ok := nn.AdapterOf(t.Name); ok && w.states[layer+".weight"] == nil || !ok && w.states[t.Name] == nil {
			return nil, errors.Join(fmt.Errorf("%s: the model has no layer for %s, which was trained", where, t.Name), base.Close())
		}
	}
	return w, nil
}

// adaptedWeights are a base's weights combined with the trained ones.
type adaptedWeights struct {
	Weights
	trained Source
	lora    nn.LoRA
	inOut   bool
	from    map[string]string // the base's names by the model's
	own     map[string]bool   // what trained holds
	states  map[string]*graph.State
	frozen  graph.DType
	infos   []safetensors.Info
}

// Tensors implements [Source].
func (w *adaptedWeights) Tensors() []safetensors.Info { return slices.Clone(w.infos) }

// Has reports whether there is a tensor called name.
func (w *adaptedWeights) Has(name string) bool { return w.own[name] || w.from[name] != "" }

// Tensor implements [Source].
func (w *adaptedWeights) Tensor(name string) (safetensors.Tensor, error) {
	if w.own[name] {
		return w.trained.Tensor(name)
	}
	t, err := w.Weights.Tensor(w.from[name])
	if err != nil {
		return t, err
	}
	t.Name = name
	down, up, magnitude := nn.AdapterNames(layerOf(name))
	adapted, stored := w.own[down] && name == layerOf(name)+".weight", w.states[name].FrozenAs(w.frozen)
	if !adapted && (stored == graph.F32 || stored == graph.BF16 && t.DType == safetensors.BF16) {
		return t, nil
	}
	var f nn.Factors
	for factor, into := range map[string]*[]float32{down: &f.Down, up: &f.Up, magnitude: &f.Magnitude} {
		if !w.own[factor] {
			continue
		}
		if *into, err = floats(w.trained, factor); err != nil {
			return t, err
		}
	}
	elems := make([]float32, graph.Shape(t.Shape).Elems())
	if err := t.Float32s(elems); err != nil {
		return t, err
	}
	round(elems, w.states[name].Type.With(stored))
	if adapted {
		var err error
		if s := w.states[name]; s.Part == graph.Stacked {
			err = w.lora.MergeStack(elems, f, s.Type.Shape[0])
		} else {
			err = w.lora.MergeInto(elems, f, w.inOut)
		}
		if err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
	}
	t.DType, t.Data = safetensors.F32, make([]byte, 0, 4*len(elems))
	for _, v := range elems {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t, nil
}

// round rounds elems to the precision of a weight of type t.
func round(elems []float32, t graph.Type) {
	if m, ok := t.Quantized(); ok {
		stored := make([]byte, m.Bytes())
		m.Encode(stored, elems)
		m.Decode(elems, stored, 0)
		return
	}
	for i, v := range elems {
		switch t.DType {
		case graph.BF16:
			elems[i] = float16.FromBF16(float16.ToBF16(v))
		case graph.F16:
			elems[i] = float16.FromF16(float16.ToF16(v))
		}
	}
}

// layerOf returns the layer of a weight.
func layerOf(weight string) string {
	for i := len(weight) - 1; i >= 0; i-- {
		if weight[i] == '.' {
			return weight[:i]
		}
	}
	return ""
}

func floats(src Source, name string) ([]float32, error) {
	t, err := src.Tensor(name)
	if err != nil {
		return nil, err
	}
	x := make([]float32, graph.Shape(t.Shape).Elems())
	return x, t.Float32s(x)
}
