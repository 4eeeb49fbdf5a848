package cloudbase

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// resolve copies the model of the adapted run, and its preparation of images, to the configuration. By
// default the last layer, which outputs the height, is trained as a whole.
func resolve(c *config.Config, r *config.Report) {
	system.FollowOnlyRun(c, r, &config.Of[Model](c).Folder, sections,
		[]string{"data.rows", "data.columns", "data.resize", "data.flat_field", "data.clahe_clip_limit", "data.normalize"},
		"dropout", "dense_dropout", "attention_dropout", "mask_share", "mask_patch", "mask_sigmoid")
	if o, _ := c.Origin("lora.modules_to_save"); o.Kind == config.Default && len(config.Of[system.LoRA](c).Targets) > 0 {
		if err := c.Derive("lora.modules_to_save", "[output]", "lora.targets"); err != nil {
			r.Error("lora.modules_to_save", "%v", err)
		}
	}
}

func checkAdapters(c *config.Config, r *config.Report) {
	lora, p := config.Of[system.LoRA](c), config.Of[Phases](c)
	lora.Check(c, r)
	switch {
	case len(lora.Targets) == 0 && config.Of[Model](c).Folder != "":
		r.Error(system.FolderKey, "does nothing without lora.targets: to train all weights on from a run, set phases.init to it")
	case len(lora.Targets) == 0:
	case p.Init != "":
		r.Error("phases.init", "adapters start from model.folder: remove it, or lora.targets")
	case !slices.Contains([]string{"final", "pretrain", "fold"}, p.Run):
		r.Error("phases.run", "want final, pretrain or fold with lora.targets, which adapts one run to flights with labels; got %s", p.Run)
	}
}

// missing returns an error if there are adapters but no run to adapt.
func missing(c *config.Config) error {
	return config.Of[system.LoRA](c).MissingRun(config.Of[Model](c).Folder)
}

// baseOf returns the run whose weights are adapted.
func baseOf(c *config.Config) system.Base { return system.Base{Dir: config.Of[Model](c).Folder} }

// weights returns a function that builds the model to get its weights and the other states of a checkpoint.
func weights(c *config.Config) func(b *graph.Builder) {
	return func(b *graph.Builder) {
		(&net{Model: config.Of[Model](c), rows: 1}).objective(b, config.Of[Loss](c))
	}
}

// export writes the adapters of a checkpoint in PEFT's layout.
func export(c *config.Config, dir, to string) ([]string, error) {
	return config.Of[system.LoRA](c).ExportOwn(dir, baseOf(c), to)
}

// exportMerged writes a checkpoint with its adapters merged.
func exportMerged(c *config.Config, dir, to string) ([]string, error) {
	return config.Of[system.LoRA](c).ExportMerged(c, dir, baseOf(c), weights(c), to)
}

// fillMerged fills a program without adapters from a checkpoint with adapters.
func fillMerged(x *engine.Executable, c *config.Config, dir string) (err error) {
	w, err := config.Of[system.LoRA](c).OpenWeights(dir, baseOf(c), graph.Invalid, weights(c))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, s := range x.Program().States {
		if s.Role != graph.Weight && s.Role != graph.Buffer {
			continue
		}
		t, err := w.Tensor(s.Name)
		if err == nil {
			err = x.ChangeState(s.Name, t.Float32s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// savedScaler returns the scales in the checkpoint dir.
func savedScaler(dir string) (_ scaler, err error) {
	s := scaler{Base: moments{0, 1}, Angles: [2]moments{{0, 1}, {0, 1}}}
	f, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	read := func(name string, x []float32) error {
		t, err := f.Tensor(name)
		if err == nil && graph.Shape(t.Shape).Elems() != int64(len(x)) {
			err = fmt.Errorf("%s: %s is %v, want %d numbers", dir, name, t.Shape, len(x))
		}
		if err == nil {
			err = t.Float32s(x)
		}
		return err
	}
	base, angles := make([]float32, 2), make([]float32, 4)
	if err := read(stateBase, base); err != nil {
		return s, err
	}
	s.Base = moments{float64(base[0]), float64(base[1])}
	if !f.Has(stateAngles) {
		return s, nil
	}
	if err := read(stateAngles, angles); err != nil {
		return s, err
	}
	s.Angles = [2]moments{{float64(angles[0]), float64(angles[2])}, {float64(angles[1]), float64(angles[3])}}
	return s, nil
}
