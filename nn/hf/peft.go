package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/nn"
)

// Files of an adapter in PEFT's layout.
const (
	AdapterConfigFile  = "adapter_config.json"
	AdapterWeightsFile = "adapter_model.safetensors"
)

// peftPrefix begins the names of PEFT's tensors; the name of a layer follows.
const peftPrefix = "base_model.model."

// The factors that are matrices; a layer with a matrix for each expert has as many of each.
const downFactor, upFactor = ".lora.down", ".lora.up"

// peftFactors maps PEFT's names of the factors of an update to ours.
var peftFactors = []struct{ theirs, ours string }{
	{".lora_A.weight", downFactor}, {".lora_B.weight", upFactor},
	{".lora_magnitude_vector", ".lora.magnitude"}, {".lora_magnitude_vector.weight", ".lora.magnitude"},
}

// ReadAdapter opens the adapter in PEFT's layout in dir: how its layers are updated, and
// the weights under the names that [nn.Adapters] gives them. An unsupported setting that
// would change what the adapter computes is an error.
func ReadAdapter(dir string) (*nn.Adapters, Weights, error) {
	text, err := regular.Read(filepath.Join(dir, AdapterConfigFile), maxConfig)
	if err != nil {
		return nil, nil, err
	}
	a, stacked, err := parseAdapter(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, AdapterConfigFile), err)
	}
	f, err := safetensors.Open(filepath.Join(dir, AdapterWeightsFile))
	if err != nil {
		return nil, nil, err
	}
	w := &adapterWeights{File: f, names: map[string]string{}, stacked: stacked}
	for _, t := range f.Tensors() {
		if err == nil {
			err = w.add(a, t)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir, AdapterWeightsFile), err), f.Close())
	}
	return a, w, nil
}

// adapterWeights are the tensors of PEFT's file under our names.
type adapterWeights struct {
	*safetensors.File
	names map[string]string // our names to theirs
	infos []safetensors.Info
	// stacked are the layers with a matrix for each expert.
	stacked map[string]bool
}

func (w *adapterWeights) add(a *nn.Adapters, t safetensors.Info) error {
	name, ok := strings.CutPrefix(t.Name, peftPrefix)
	if !ok {
		return fmt.Errorf("tensor %s is none of an adapter: want names that begin with %s", t.Name, peftPrefix)
	}
	if strings.Contains(name, ".lora_embedding_") {
		return fmt.Errorf("tensor %s adapts an embedding, which snug does not: want adapters of linear layers", t.Name)
	}
	for _, f := range peftFactors {
		layer, ok := strings.CutSuffix(name, f.theirs)
		if !ok {
			continue
		}
		name = layer + f.ours
		rank := -1
		switch {
		case len(t.Shape) != 2:
		case f.ours == downFactor:
			rank = t.Shape[0]
		case f.ours == upFactor:
			rank = t.Shape[1]
		}
		switch {
		case rank >= 0 && w.stacked[layer] && rank%a.Rank != 0:
			return fmt.Errorf("tensor %s is %v, want rank %d for each expert", t.Name, t.Shape, a.Rank)
		case rank >= 0 && w.stacked[layer]:
			t.Shape = stackedShape(f.ours, t.Shape, a.Rank)
		case rank >= 0 && rank != a.Rank:
			return fmt.Errorf("tensor %s is %v, want rank %d", t.Name, t.Shape, a.Rank)
		}
		break
	}
	w.names[name] = t.Name
	t.Name = name
	w.infos = append(w.infos, t)
	return nil
}

// Tensor implements [Source].
func (w *adapterWeights) Tensor(name string) (safetensors.Tensor, error) {
	theirs, ok := w.names[name]
	if !ok {
		return safetensors.Tensor{}, fmt.Errorf("the adapter has no %s", name)
	}
	t, err := w.File.Tensor(theirs)
	if err != nil {
		return t, err
	}
	t.Name = name
	i := slices.IndexFunc(w.infos, func(i safetensors.Info) bool { return i.Name == name })
	if s := w.infos[i].Shape; len(s) == 3 {
		t.Shape = s
		if strings.HasSuffix(name, upFactor) {
			t.Data = transposed(t.Data, s[1]*s[2], s[0], t.DType.Bits()/8)
		}
	}
	return t, nil
}

// PEFT adapts a parameter of three dimensions, [experts, out, in], by two matrices: A
// [experts * rank, in] has the experts' one below the other, and B [out, rank * experts] the
// experts' columns in turn. Ours are [experts, rank, in] and [experts, out, rank].

// stackedShape returns our shape of a factor with that many dimensions in PEFT's layout.
func stackedShape(factor string, s []int, rank int) []int {
	if factor == downFactor {
		return []int{s[0] / rank, rank, s[1]}
	}
	return []int{s[1] / rank, s[0], rank}
}

// peftShape is the inverse of stackedShape.
func peftShape(factor string, s []int) []int {
	if factor == downFactor {
		return []int{s[0] * s[1], s[2]}
	}
	return []int{s[1], s[2] * s[0]}
}

// transposed returns a matrix of elements of the given size with rows and columns
// exchanged.
func transposed(data []byte, rows, cols, bytes int) []byte {
	out := make([]byte, len(data))
	for r := range rows {
		for c := range cols {
			copy(out[(c*rows+r)*bytes:][:bytes], data[(r*cols+c)*bytes:][:bytes])
		}
	}
	return out
}

// Tensors implements [Source].
func (w *adapterWeights) Tensors() []safetensors.Info { return slices.Clone(w.infos) }

// adapterConfig are the keys of adapter_config.json that decide what an adapter computes.
type adapterConfig struct {
	Type    string          `json:"peft_type"`
	Rank    int             `json:"r"`
	Alpha   float64         `json:"lora_alpha"`
	Dropout float64         `json:"lora_dropout"`
	Targets json.RawMessage `json:"target_modules"`
	Bias    string          `json:"bias"`
	RSLoRA  bool            `json:"use_rslora"`
	DoRA    bool            `json:"use_dora"`
	Saved   []string        `json:"modules_to_save"`
	Stacks  []string        `json:"target_parameters"`
}

// plainOnly are keys of adapter_config.json that change what an adapter computes and
// that must be absent, null, false or empty.
var plainOnly = []string{
	"rank_pattern", "alpha_pattern", "layer_replication", "alora_invocation_tokens", "lora_bias", "use_qalora", "use_bdlora",
	"trainable_token_indices", "arrow_config", "kasa_config", "velora_config", "monteclora_config",
}

// parseAdapter returns the adapters and the layers that have a matrix for each expert.
func parseAdapter(text []byte) (a *nn.Adapters, stacked map[string]bool, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, nil, err
	}
	for _, key := range plainOnly {
		if v := string(bytes.TrimSpace(all[key])); !slices.Contains([]string{"", "null", "false", "{}", "[]"}, v) {
			return nil, nil, fmt.Errorf("%s is %s, which snug does not have", key, v)
		}
		delete(all, key)
	}
	plain, err := json.Marshal(all)
	if err != nil {
		return nil, nil, err
	}
	var c adapterConfig
	if err := json.Unmarshal(plain, &c); err != nil {
		return nil, nil, err
	}
	variant := nn.PlainLoRA
	switch {
	case c.Type != "LORA":
		return nil, nil, fmt.Errorf("peft_type is %q, want LORA", c.Type)
	case c.Rank < 1 || c.Rank > maxExtent:
		return nil, nil, fmt.Errorf("r is %d, want 1 to %d", c.Rank, maxExtent)
	case !(c.Alpha > 0) || math.IsInf(c.Alpha, 0):
		return nil, nil, fmt.Errorf("lora_alpha is %v, want more than 0", c.Alpha)
	case c.Bias != "" && c.Bias != "none":
		return nil, nil, fmt.Errorf("bias is %q, want none: biases are not trained", c.Bias)
	case c.RSLoRA && c.DoRA:
		return nil, nil, errors.New("use_rslora and use_dora are both true: snug has one of them at a time")
	case c.RSLoRA:
		variant = nn.RankStabilized
	case c.DoRA:
		variant = nn.Decomposed
	}
	a = &nn.Adapters{LoRA: nn.LoRA{Rank: c.Rank, Alpha: c.Alpha, Dropout: c.Dropout, Variant: variant}, Trained: c.Saved}
	if json.Unmarshal(c.Targets, &a.Targets) != nil {
		var one string
		if err := json.Unmarshal(c.Targets, &one); err != nil {
			return nil, nil, fmt.Errorf("target_modules is %s, want names", c.Targets)
		}
		a.Targets = []string{one}
	}
	stacked = map[string]bool{}
	for _, parameter := range c.Stacks {
		layer, ok := strings.CutSuffix(parameter, ".weight")
		if !ok {
			return nil, nil, fmt.Errorf("target_parameters has %s, want weights of layers (NAME.weight)", parameter)
		}
		stacked[layer] = true
	}
	if variant == nn.Decomposed && len(stacked) > 0 {
		return nil, nil, errors.New("use_dora is true with target_parameters, which PEFT does not have either")
	}
	return a, stacked, nil
}

// AdapterBase is the model that an adapter belongs to.
type AdapterBase struct {
	Folder string
	Task   string // PEFT's name of the model's task; empty: none that it knows
	InOut  bool   // its linear layers are stored [in, out]
}

// WriteAdapter is [WriteAdapter] for a model in the Hugging Face layout, to which peft applies
// it.
func (c *Config) WriteAdapter(dir string, a *nn.Adapters, base string, src Source) (files []string, err error) {
	task := map[Head]string{HeadCausal: "CAUSAL_LM", HeadClassifier: "SEQ_CLS"}[c.Head]
	return WriteAdapter(dir, a, AdapterBase{Folder: base, Task: task, InOut: c.InOut()}, src)
}

// WriteAdapter writes the adapter with the weights src, which have the names that
// [nn.Adapters] gives them, in PEFT's layout. dir must not exist or be empty; it appears
// complete or not at all. WriteAdapter returns the names of the files.
func WriteAdapter(dir string, a *nn.Adapters, base AdapterBase, src Source) (files []string, err error) {
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, fmt.Errorf("%s exists and is not empty: name a new folder", dir)
	}
	entries, layers, stacked, err := adapterEntries(src)
	if err != nil {
		return nil, err
	}
	text, err := base.adapterConfig(a, layers, stacked)
	if err != nil {
		return nil, err
	}
	dir = filepath.Clean(dir)
	work, err := durable.Stage(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	if err := safetensors.WriteFile(filepath.Join(work, AdapterWeightsFile), entries, map[string]string{"format": "pt"}); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(work, AdapterConfigFile), text); err != nil {
		return nil, err
	}
	return []string{AdapterConfigFile, AdapterWeightsFile}, durable.Place(work, dir)
}

// adapterEntries returns the tensors of an adapter under PEFT's names, and the layers
// that have one: with a matrix, or with one for each expert.
func adapterEntries(src Source) (entries []safetensors.Entry, layers, stacked []string, err error) {
	for _, info := range src.Tensors() {
		t, err := src.Tensor(info.Name)
		if err != nil {
			return nil, nil, nil, err
		}
		name := info.Name
		for _, f := range peftFactors[:3] {
			layer, ok := strings.CutSuffix(name, f.ours)
			if !ok {
				continue
			}
			name = layer + f.theirs
			into := &layers
			if s := t.Shape; len(s) == 3 {
				into, t.Shape = &stacked, peftShape(f.ours, s)
				if f.ours == upFactor {
					t.Data = transposed(t.Data, s[0], s[1]*s[2], t.DType.Bits()/8)
				}
			}
			if !slices.Contains(*into, layer) {
				*into = append(*into, layer)
			}
			break
		}
		e := safetensors.Entry{Name: peftPrefix + name, DType: safetensors.F32, Shape: t.Shape, Data: t.Data}
		if t.DType != safetensors.F32 {
			e.Data, e.Emit = nil, func(w io.Writer) error { return emitFloat32(w, t) }
		}
		entries = append(entries, e)
	}
	return entries, layers, stacked, nil
}

// adapterConfig returns adapter_config.json. Patterns among the targets become the layers
// that they select, since PEFT's patterns differ; so do all targets if there are layers
// with a matrix for each expert, which PEFT does not know as modules. Those layers have
// no dropout in PEFT.
func (base AdapterBase) adapterConfig(a *nn.Adapters, layers, stacked []string) ([]byte, error) {
	targets, dropout := a.Targets, a.Dropout
	if len(stacked) > 0 || slices.ContainsFunc(targets, nn.IsPattern) {
		targets = layers
	}
	config := map[string]any{
		"peft_type": "LORA", "task_type": base.Task, "base_model_name_or_path": base.Folder, "r": a.Rank, "lora_alpha": a.Alpha,
		"bias": "none", "fan_in_fan_out": base.InOut, "use_rslora": a.Variant == nn.RankStabilized,
		"use_dora": a.Variant == nn.Decomposed, "modules_to_save": a.Trained, "init_lora_weights": true, "inference_mode": true,
	}
	if base.Task == "" {
		config["task_type"] = nil
	}
	if len(stacked) > 0 {
		dropout = 0
		parameters := make([]string, len(stacked))
		for i, layer := range stacked {
			parameters[i] = layer + ".weight"
		}
		config["target_parameters"] = parameters
	}
	config["target_modules"], config["lora_dropout"] = targets, dropout
	return json.MarshalIndent(config, "", "  ")
}

// InOut reports whether the weights of linear layers are stored [in, out].
func (c *Config) InOut() bool { return c.Type() == typeGPT2 }
