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

// OpenAdapted opens the weights of the model folder dir, under the names that the model
// has for them, with what trained holds in their place: updates of form lora are merged
// into the weights that they adapt, other weights replace the folder's. The
// folder's matrices are rounded to what frozen ones were stored as when these were trained
// ([graph.State.FrozenAs]). trained stays open as long as the result is.
func (c *Config) OpenAdapted(dir string, trained Source, lora nn.LoRA, frozen graph.DType) (Weights, error) {
	src, err := OpenWeights(dir)
	if err != nil {
		return nil, err
	}
	w, err := c.adapted(src, dir, trained, lora)
	if err == nil {
		w.frozen = frozen
	}
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return w, nil
}

func (c *Config) adapted(src Weights, dir string, trained Source, lora nn.LoRA) (*adaptedWeights, error) {
	states, err := c.Weights()
	if err != nil {
		return nil, err
	}
	w := &adaptedWeights{Weights: src, trained: trained, lora: lora, inOut: c.InOut(), from: map[string]string{}, own: map[string]bool{}, states: map[string]*graph.State{}}
	for _, s := range states {
		w.states[s.Name] = s
	}
	for _, t := range trained.Tensors() {
		w.own[t.Name] = true
		if layer, _, ok := nn.AdapterOf(t.Name); ok && w.states[layer+".weight"] == nil || !ok && w.states[t.Name] == nil {
			return nil, fmt.Errorf("%s: the model has no layer for %s, which was trained", dir, t.Name)
		}
	}
	m, err := c.match(src, dir, states, LoadOptions{New: func(name string) bool { return w.own[name] }})
	if err != nil {
		return nil, err
	}
	for _, l := range m.copies {
		w.from[l.state.Name] = l.from.Name
	}
	for _, s := range states {
		w.infos = append(w.infos, safetensors.Info{Name: s.Name, DType: safetensors.F32, Shape: s.Type.Shape})
	}
	return w, nil
}

// adaptedWeights are a folder's weights with what was trained.
type adaptedWeights struct {
	Weights
	trained Source
	lora    nn.LoRA
	inOut   bool
	from    map[string]string // the folder's names by the model's
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
		if err := w.lora.MergeInto(elems, f, w.inOut); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
	}
	t.DType, t.Data = safetensors.F32, make([]byte, 0, 4*len(elems))
	for _, v := range elems {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t, nil
}

// round rounds elems to what a weight of type t holds.
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

// layerOf is the layer of a weight.
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
