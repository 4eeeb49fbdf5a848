package dynamo

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train/checkpoint"
)

// These are the files of an exported task besides the encoder's.
const (
	adapterFile = "adapter.safetensors" // A and B of every adapted layer
	headFile    = "head.safetensors"    // the task's head, and the router's weights
	taskFile    = "task.json"
)

// export writes the encoder as a folder that transformers loads, together with the adapter and the head of
// the task. The encoder is a bit-exact copy of that of phase 0 or of the model folder.
func export(c *config.Config, dir, to string) ([]string, error) {
	return exportTasks(c, dir, to, false)
}

// exportMerged is export with the adapter merged into the encoder's weights.
func exportMerged(c *config.Config, dir, to string) ([]string, error) {
	return exportTasks(c, dir, to, true)
}

func exportTasks(c *config.Config, dir, to string, merged bool) (files []string, err error) {
	var tasks []string
	switch s := stage(c); {
	case isTask(s):
		tasks = []string{s}
	case s == stageJoint:
		tasks = config.Of[Model](c).Tasks
	default:
		return nil, fmt.Errorf("a checkpoint of %s has no adapters: export one of phase 1 or 3", folder(s))
	}
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	plain, model, closeEncoder, err := encoderSource(c, rootOf(dir), dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeEncoder()) }()
	for _, name := range tasks {
		sub := ""
		if len(tasks) > 1 {
			sub = name
		}
		written, err := exportTask(c, name, w, plain, model, filepath.Join(to, sub), dir, merged)
		if err != nil {
			return nil, err
		}
		for _, f := range written {
			files = append(files, filepath.Join(sub, f))
		}
	}
	return files, nil
}

// rootOf returns the run directory of the whole training for a checkpoint of one phase.
func rootOf(path string) string { return filepath.Dir(checkpoint.RunOf(path)) }

// encoderSource opens the encoder's own weights and returns their model.
func encoderSource(c *config.Config, root, tokenizer string) (hf.Source, *hf.Config, func() error, error) {
	if dir := config.Of[Model](c).Folder; dir != "" {
		model, err := hf.ReadConfig(dir)
		if err != nil {
			return nil, nil, nil, err
		}
		m, err := hf.OpenWeights(dir)
		if err != nil {
			return nil, nil, nil, err
		}
		return m, model, m.Close, nil
	}
	t, err := token.LoadFolder(tokenizer)
	if err != nil {
		return nil, nil, nil, err
	}
	from, err := checkpoint.FromOf(tokenizer)
	if err != nil {
		return nil, nil, nil, err
	}
	ck, err := weights(root, stageEncoder, from)
	if err != nil {
		return nil, nil, nil, err
	}
	id := func(r token.Role) int {
		if id, ok := t.Special(r); ok {
			return int(id)
		}
		return -1
	}
	model := &hf.Config{Model: encoder(c), Head: hf.HeadMasked, BOS: id(token.BOS), EOS: id(token.EOS), Pad: encoder(c).Pad}
	return ck.Weights, model, ck.Close, nil
}

func exportTask(c *config.Config, name string, w *safetensors.File, plain hf.Source, model *hf.Config, to, tokenizer string, merged bool) ([]string, error) {
	of := func(x safetensors.Info) bool { return strings.Contains(x.Name, ".lora."+name+".") }
	src := plain
	files := map[string][]byte{}
	var err error
	if merged {
		m := &mergedSource{Source: plain, changed: map[string][]float32{}, prefix: base(encoder(c)) + "."}
		if _, err := merge(c, name, m.at(w)); err != nil {
			return nil, err
		}
		if m.failed != nil {
			return nil, m.failed
		}
		src = m
	} else if files[adapterFile], err = subset(w, of); err != nil {
		return nil, err
	}
	files[headFile], err = subset(w, func(x safetensors.Info) bool {
		return strings.HasPrefix(x.Name, "heads."+name+".") || strings.HasPrefix(x.Name, "router.")
	})
	if err != nil {
		return nil, err
	}
	t := taskOf(c, name)
	if files[taskFile], err = json.MarshalIndent(map[string]any{
		"task": name, "rank": t.Rank, "alpha": t.Alpha, "targets": t.Targets, "merged": merged, "max_length": lengthOf(c, name), "target_length": t.Target,
	}, "", "  "); err != nil {
		return nil, err
	}
	return hf.Export(to, model, src, hf.ExportOptions{TokenizerFrom: tokenizer, Files: files})
}

// subset returns a new file with some of the tensors of a file.
func subset(w *safetensors.File, want func(x safetensors.Info) bool) ([]byte, error) {
	var entries []safetensors.Entry
	for _, info := range w.Tensors() {
		if !want(info) {
			continue
		}
		x, err := w.Tensor(info.Name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, safetensors.Entry{Name: x.Name, DType: x.DType, Shape: x.Shape, Data: x.Data})
	}
	var b bytes.Buffer
	_, err := safetensors.Write(&b, entries, map[string]string{"format": "pt"})
	return b.Bytes(), err
}

// mergedSource is an encoder with some of its weights replaced.
type mergedSource struct {
	hf.Source
	// changed maps full names to replaced weights. Folders may omit the prefix of names.
	changed map[string][]float32
	prefix  string
	failed  error
}

// at returns the access to weights that merge needs: to a copy of an encoder's weight, or to a factor of the
// adapter in w.
func (m *mergedSource) at(w *safetensors.File) func(name string) []float32 {
	return func(name string) []float32 {
		var x safetensors.Tensor
		var err error
		if strings.Contains(name, ".lora.") {
			x, err = w.Tensor(name)
		} else if x, err = m.Source.Tensor(name); err != nil {
			x, err = m.Source.Tensor(strings.TrimPrefix(name, m.prefix))
		}
		v := make([]float32, int64(len(x.Data))*8/int64(max(1, x.DType.Bits())))
		if err == nil {
			err = x.Float32s(v)
		}
		if err != nil {
			m.failed = errors.Join(m.failed, err)
			return nil
		}
		m.changed[x.Name] = v
		return v
	}
}

// Tensor implements [hf.Source].
func (m *mergedSource) Tensor(name string) (safetensors.Tensor, error) {
	x, err := m.Source.Tensor(name)
	v, ok := m.changed[name]
	if err != nil || !ok {
		return x, err
	}
	x.DType, x.Data = safetensors.F32, make([]byte, 0, 4*len(v))
	for _, f := range v {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(f))
	}
	x.Size = int64(len(x.Data))
	return x, nil
}

// merge adds the adapter of a task to the weights of the encoder's layers that it adapts, and returns the
// number of these layers. at returns the memory of a weight.
func merge(c *config.Config, task string, at func(name string) []float32) (layers int, err error) {
	a, e := newAdapter(c, task), encoder(c)
	for i := range e.Layers {
		for _, l := range linears {
			if !a.targets[l.name] {
				continue
			}
			layer := fmt.Sprintf("%s.encoder.layer.%d%s", base(e), i, l.end)
			down, up := a.Weights(layer)
			if err := a.Merge(at(layer+".weight"), at(down), at(up)); err != nil {
				return layers, fmt.Errorf("%s: %w", layer, err)
			}
			layers++
		}
	}
	return layers, nil
}
