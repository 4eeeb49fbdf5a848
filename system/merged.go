package system

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
)

// ExportMerged writes the checkpoint in dir with its adapters merged as a checkpoint of its own, for systems
// whose models have no class in transformers. Every command accepts it, also as model.folder. model builds
// the model without adapters.
func (l *LoRA) ExportMerged(c *config.Config, dir string, base Base, model func(b *graph.Builder), to string) (files []string, err error) {
	if len(l.Targets) == 0 {
		return nil, errors.New("--merge: " + dir + " has no adapters: want a run with lora.targets, or use the checkpoint itself")
	}
	from, err := checkpoint.Load(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	w, err := l.OpenWeights(dir, base, graph.Invalid, model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	snap := &checkpoint.Snapshot{
		State:    checkpoint.State{Update: from.State.Update, Tokens: from.State.Tokens, RNG: from.State.RNG},
		Metadata: from.Metadata, Metric: from.Manifest.Metric, Arithmetic: from.Manifest.Arithmetic, Files: map[string][]byte{},
	}
	snap.Metadata.Parameters = 0
	for _, info := range w.Tensors() {
		t, err := w.Tensor(info.Name)
		if err != nil {
			return nil, err
		}
		snap.Weights = append(snap.Weights, checkpoint.Tensor{Name: info.Name, DType: t.DType, Shape: t.Shape, Data: t.Data})
		snap.Metadata.Parameters += graph.Shape(t.Shape).Elems()
	}
	if err := passFiles(snap.Files, from); err != nil {
		return nil, err
	}
	for key, text := range map[string]string{"lora.targets": "[]", "lora.modules_to_save": "[]", "lora.folder": "", FolderKey: ""} {
		if err := c.Derive(key, text, "the export with adapters merged"); err != nil {
			return nil, err
		}
	}
	snap.Files[checkpoint.ConfigFile] = c.YAML()
	if err := checkpoint.WriteAlone(to, snap); err != nil {
		return nil, err
	}
	m, err := checkpoint.ReadManifest(to)
	if err != nil {
		return nil, err
	}
	files = []string{checkpoint.ManifestFile}
	for _, f := range m.Files {
		files = append(files, f.Name)
	}
	slices.Sort(files)
	return files, nil
}

// passFiles copies the files that a system added to a checkpoint, such as the tokenizer, except the one about
// the base of its adapters.
func passFiles(files map[string][]byte, from *checkpoint.Checkpoint) error {
	for _, f := range from.Manifest.Files {
		switch f.Name {
		case checkpoint.WeightsFile, checkpoint.OptimizerFile, checkpoint.StateFile, checkpoint.MetadataFile, checkpoint.ConfigFile, BaseFile:
			continue
		}
		text, err := regular.Read(filepath.Join(from.Path, f.Name), f.Size)
		if err != nil {
			return err
		}
		files[f.Name] = text
	}
	return nil
}
