package moderation

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// export writes a checkpoint as a model folder that transformers loads as BertForSequenceClassification or
// RobertaForSequenceClassification. If the checkpoint has adapters, it writes only them, in PEFT's layout; those
// of a run that transformers has no class for are for lora.folder.
func export(c *config.Config, dir, to string) ([]string, error) {
	lora := config.Of[system.LoRA](c)
	if len(lora.Targets) == 0 {
		return exportMerged(c, dir, to)
	}
	if err := exportable(c); err != nil {
		if baseOf(c).IsRun() {
			return lora.ExportOwn(dir, baseOf(c), to)
		}
		return nil, err // transformers loads the base, and would apply the adapter to another model
	}
	return lora.ExportAdapter(dir, baseOf(c), &hf.Config{Model: bert(c), Head: hf.HeadClassifier}, to)
}

// exportable rejects models with parts that transformers' classifiers lack, because the folder would compute
// something else.
func exportable(c *config.Config) error {
	switch m := config.Of[Model](c); {
	case m.Pooling != "first":
		return fmt.Errorf("model.pooling is %s: transformers' classifiers read the first token; train with model.pooling first to export", m.Pooling)
	case m.WideRows > 0:
		return fmt.Errorf("model.wide_rows is %d: transformers' classifiers have no such table; train with model.wide_rows 0 to export", m.WideRows)
	}
	return nil
}

// exportMerged is export with adapters merged.
func exportMerged(c *config.Config, dir, to string) (files []string, err error) {
	if err := exportable(c); err != nil {
		return nil, err
	}
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	e, err := newTextEncoder(t, c)
	if err != nil {
		return nil, err
	}
	w, err := openWeights(c, dir, config.Of[system.BaseWeights](c).Merged())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	d := config.Of[Data](c)
	model := hf.Config{
		Model: bert(c), Head: hf.HeadClassifier, Labels: []string{d.Other, d.Name},
		BOS: int(e.first), EOS: int(e.last), Pad: config.Of[Model](c).PadID,
	}
	return hf.Export(to, &model, w, hf.ExportOptions{TokenizerFrom: dir})
}

// openWeights opens the weights of a checkpoint. base is the format of frozen weights below adapters.
func openWeights(c *config.Config, dir string, base graph.DType) (system.ReadableWeights, error) {
	return config.Of[system.LoRA](c).OpenWeights(dir, baseOf(c), base, func(b *graph.Builder) {
		newNet(c).logits(b, "", 1, 1, false)
	})
}
