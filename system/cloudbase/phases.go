package cloudbase

import (
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// The folders of the runs of a whole training.
const (
	folderMasked   = "masked"
	folderPretrain = "pretrain"
	folderFinal    = "final"
	folderFold     = "loo-" // and the flight
)

// phases are the configured runs: masked images, one flight, all flights, and a
// fold for each.
func phases(c *config.Config, dir string) []system.Phase {
	p := config.Of[Phases](c)
	if p.Run != "all" && p.Run != "loo" {
		return nil
	}
	cache := c.Data.CacheDir
	if cache == "" {
		cache = filepath.Join(dir, "data")
	}
	var out []system.Phase
	last, from := p.Init, ""
	add := func(name, title, run string, steps int, more ...config.Override) {
		settings := append([]config.Override{
			{Key: "phases.run", Text: run}, {Key: "phases.init", Text: last}, {Key: "data.cache_dir", Text: cache},
		}, more...)
		if steps > 0 {
			settings = append(settings, config.Override{Key: "training.max_steps", Text: fmt.Sprint(steps)})
		}
		out = append(out, system.Phase{Name: name, Title: title, Settings: settings, Ready: ready(last), From: from})
	}
	if p.Run == "all" {
		if p.Masked {
			add(folderMasked, "images with masked patches, without labels", "mae", p.MaskedSteps)
			last, from = filepath.Join(dir, folderMasked), folderMasked
		}
		if p.Pretrain != "" {
			add(folderPretrain, "flight "+p.Pretrain+" alone", "pretrain", p.PretrainSteps)
			last, from = filepath.Join(dir, folderPretrain), folderPretrain
		}
		add(folderFinal, "all flights except those in the split", "final", 0)
	}
	if p.Run == "loo" || p.Loo {
		// A fold starts from scratch: earlier runs have seen its flight.
		last, from = p.Init, ""
		all, err := flights(c)
		if err != nil {
			return append(out, system.Phase{Name: folderFold, Title: "folds", Ready: func() error { return err }})
		}
		for _, f := range all {
			if !config.Of[Split](c).held(f.Name) {
				add(folderFold+f.Name, "without flight "+f.Name, "fold", p.LooSteps, config.Override{Key: "phases.leave_out", Text: f.Name})
			}
		}
	}
	return out
}

// lengths are the settings that count updates.
func lengths(*config.Config) (keys []string, lenient []config.Override) {
	return []string{"training.max_steps", "phases.masked_steps", "phases.pretrain_steps", "phases.loo_steps"}, nil
}

// ready reports whether there is something at path to start from.
func ready(path string) func() error {
	if path == "" {
		return nil
	}
	return func() error {
		_, err := checkpoint.Choose(path, "")
		return err
	}
}
