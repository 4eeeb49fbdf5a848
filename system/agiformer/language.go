package agiformer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// Language is the language model that language experts read. It runs once over the text, on states projected
// to its width by a learned layer, and all experts of all blocks read its result, whereas the guide's model
// repeats this in every block. Gradients pass through it even if its own weights are frozen.
type Language struct {
	// Width, Layers, Heads and FF describe a transformer that is trained with the rest, if Model is nil.
	Width, Layers, Heads, FF int
	// Model, if set, is a GPT-NeoX, GPT-2, Llama or Qwen3, and Folder the folder of its weights. If Folder is
	// empty, only the sizes are known, which is enough for plans.
	Model  hf.Causal
	Folder string
	Frozen bool
}

// read returns the model's output for x [B, T, D]: [B, T, Width].
func (l *Language) read(p *forward, x *graph.Value) (y *graph.Value) {
	y = p.linear("in", p.norm("in_norm", x), l.Width, true)
	if l.Model != nil {
		return l.Model.Hidden(p.Builder, hf.Input{
			Embeds: y, Train: p.in.Train && !l.Frozen, Frozen: func(string) bool { return l.Frozen },
		})
	}
	q := *p
	q.D, q.Heads, q.FF = l.Width, l.Heads, l.FF
	if p.table != nil {
		q.table = p.RotaryTable(p.time, l.Width/l.Heads, p.RotaryBase)
	}
	p.Scope("layers", func() {
		for i := range l.Layers {
			p.Block(fmt.Sprint(i), func() { y = q.layer(y) })
		}
	})
	return p.norm("norm", y)
}

// layer is a plain transformer layer.
func (p *forward) layer(x *graph.Value) *graph.Value {
	x = p.Add(x, p.drop(p.attention("attention", p.norm("attention_norm", x))))
	h := p.GELU(p.linear("up", p.norm("mlp_norm", x), p.FF, true))
	return p.Add(x, p.drop(p.linear("down", h, p.D, true)))
}

// loadFolder copies the weights below scope from a model folder in Hugging Face layout into r. All of them
// must exist and have the right shape. base is the scope that folders of a bare model omit.
func loadFolder(r *engine.Executable, dir, scope, base string) (err error) {
	src, err := hf.OpenWeights(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var found []safetensors.Tensor
	var into []string // the weight that each one is copied to
	for _, s := range r.Program().States {
		name, ours := strings.CutPrefix(s.Name, scope+"."+base+".")
		if !ours || s.Role != graph.Weight && s.Role != graph.Frozen {
			continue
		}
		x, err := src.Tensor(base + "." + name)
		if err != nil {
			bare, again := src.Tensor(name)
			if again != nil {
				return fmt.Errorf("%s: neither %s.%s nor %s: %w", dir, base, name, name, err)
			}
			x = bare
		}
		if !slices.Equal(x.Shape, s.Type.Shape) {
			return fmt.Errorf("%s: tensor %s is %v, the model wants %v", dir, x.Name, x.Shape, s.Type.Shape)
		}
		if err := x.Finite(); err != nil {
			return err
		}
		found, into = append(found, x), append(into, s.Name)
	}
	if len(found) == 0 {
		return fmt.Errorf("%s: the program has no weights under %s.%s", dir, scope, base)
	}
	for i, x := range found {
		if err := r.ChangeState(into[i], x.Float32s); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// base returns the scope of the model's weights.
func (l *Language) base() string {
	switch l.Model.(type) {
	case hf.GPT2:
		return "transformer"
	case hf.Llama:
		return "model"
	}
	return "gpt_neox"
}

// load copies the weights that come from folders.
func (m Net) load(r *engine.Executable) error {
	if m.Language != nil && m.Language.Model != nil && hasScope(r, "language") {
		if err := loadFolder(r, m.Language.Folder, "language", m.Language.base()); err != nil {
			return err
		}
	}
	if s := m.Senses; s != nil && s.Folder != "" && (s.Sees(modImage) || s.Sees(modVideo)) && hasScope(r, "senses.encoder") {
		return loadFolder(r, s.Folder, "senses.encoder", "vision_model")
	}
	return nil
}

// hasScope reports whether the program has weights below a scope. A program that only generates text has none
// for the senses.
func hasScope(r *engine.Executable, scope string) bool {
	return slices.ContainsFunc(r.Program().States, func(s *graph.State) bool { return strings.HasPrefix(s.Name, scope+".") })
}
