package finetune

import (
	"errors"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/chat"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// language returns the model of a checkpoint. It treats a prompt as the message of a user.
func language(c *config.Config, dir string) (*inference.Language, error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	cached, ok := net.(inference.Cached)
	if !ok {
		return nil, errors.New("the model does not run on a cache")
	}
	f, err := chat.Load(config.Of[Model](c).Folder, filepath.Join(dir, chat.TemplateFile))
	if err != nil {
		return nil, err
	}
	l := &inference.Language{
		Cached: cached, Tokenizer: t,
		Open: func() (inference.Weights, error) {
			return openWeights(c, dir, config.Of[system.BaseWeights](c).DType())
		},
		Prompt: func(text string) (string, error) {
			return f.Render([]chat.Message{{Role: "user", Content: text}}, true)
		},
	}
	if c.Training.MixedPrecision == "bf16" {
		l.Store = graph.BF16
	}
	return l, nil
}

func openWeights(c *config.Config, dir string, base graph.DType) (system.ReadableWeights, error) {
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	return config.Of[system.LoRA](c).OpenWeights(dir, baseOf(c), base, func(b *graph.Builder) {
		net.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, 1, 1))})
		net.Output(b)
	})
}

// export writes the adapters of a checkpoint in PEFT's layout or, without adapters, the model folder.
func export(c *config.Config, dir, to string) ([]string, error) {
	lora, base := config.Of[system.LoRA](c), baseOf(c)
	if len(lora.Targets) == 0 {
		return exportMerged(c, dir, to)
	}
	f, err := hf.ReadConfig(base.Dir)
	if err != nil {
		return nil, err
	}
	return lora.ExportAdapter(dir, base, f, to)
}

// exportMerged writes a checkpoint as a model folder like the original one. Adapters trained on quantized
// weights are merged into the original weights of the folder.
func exportMerged(c *config.Config, dir, to string) (files []string, err error) {
	folder := config.Of[Model](c).Folder
	f, err := hf.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	template, err := regular.Read(filepath.Join(dir, chat.TemplateFile), chat.MaxFile)
	if err != nil {
		return nil, err
	}
	w, err := openWeights(c, dir, config.Of[system.BaseWeights](c).Merged())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return hf.Export(to, f, w, hf.ExportOptions{TokenizerFrom: folder, Files: map[string][]byte{chat.TemplateFile: template}})
}
