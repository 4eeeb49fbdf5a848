package moderation

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train/checkpoint"
)

// export writes a checkpoint as a model folder that transformers loads as
// BertForSequenceClassification or RobertaForSequenceClassification. Parts that
// those do not have are refused: the folder would compute something else.
func export(c *config.Config, dir, to string) (files []string, err error) {
	m := config.Of[Model](c)
	switch {
	case m.Pooling != "first":
		return nil, fmt.Errorf("model.pooling is %s: transformers' classifiers read the first token; train with model.pooling first to export", m.Pooling)
	case m.WideRows > 0:
		return nil, fmt.Errorf("model.wide_rows is %d: transformers' classifiers have no such table; train with model.wide_rows 0 to export", m.WideRows)
	}
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	e, err := newTextEncoder(t, c)
	if err != nil {
		return nil, err
	}
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	d := config.Of[Data](c)
	model := hf.Config{
		Model: bert(c), Head: hf.HeadClassifier, Labels: []string{d.Other, d.Name}, BOS: int(e.first), EOS: int(e.last), Pad: m.PadID,
	}
	return hf.Export(to, &model, w, hf.ExportOptions{TokenizerFrom: dir})
}
