package cloudbase

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// These are the folders of the runs of a whole training.
const (
	folderMasked   = "masked"
	folderPretrain = "pretrain"
	folderFinal    = "final"
	folderFold     = "loo-" // followed by the flight
)

// phases returns the configured runs: masked images, one flight, all flights, and a fold for each flight.
func phases(c *config.Config, dir string) []system.Phase {
	p := config.Of[Phases](c)
	if p.Run != "all" && p.Run != "loo" {
		return nil
	}
	var out []system.Phase
	last, from := p.Init, ""
	add := func(name, title, run string, steps int, more ...config.Override) {
		settings := append([]config.Override{{Key: "phases.run", Text: run}, {Key: "phases.init", Text: last}}, more...)
		if steps > 0 {
			settings = append(settings, config.Override{Key: "training.max_steps", Text: fmt.Sprint(steps)})
		}
		out = append(out, system.Phase{Name: name, Title: title, Settings: settings, Ready: ready(last), From: from, Reads: func(key string) bool { return reads(run, key) }})
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
		// A fold starts from scratch, because earlier runs have seen its flight.
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

// lengths returns the settings that count updates.
func lengths(*config.Config) (keys []string, lenient []config.Override) {
	return []string{"training.max_steps", "phases.masked_steps", "phases.pretrain_steps", "phases.loo_steps"}, nil
}

// reads reports whether a setting affects a kind of run.
func reads(run, key string) bool {
	switch key {
	case "phases.masked_steps", "model.mask_share", "model.mask_patch", "model.mask_sigmoid":
		return run == "mae"
	case "phases.pretrain_steps", "data.held_out_fraction":
		return run == "pretrain"
	case "phases.pretrain_flight":
		return run == "pretrain" || run == "final"
	case "phases.overweight_factor":
		return run == "final"
	case "phases.loo_steps", "phases.leave_out":
		return run == "fold"
	case "phases.masked", "phases.loo": // these select the phases
		return false
	}
	return true
}

// fixed reports whether a setting is fixed when a run begins.
func fixed(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	switch section {
	case "synthetic":
		return true
	case "split":
		return key != "split.confidence"
	}
	return slices.Contains([]string{"phases.run", "phases.pretrain_flight", "phases.overweight_factor", "phases.leave_out"}, key)
}

// ready returns a check that there is something at path to start from.
func ready(path string) func() error {
	if path == "" {
		return nil
	}
	return func() error {
		_, err := checkpoint.Choose(path, "")
		return err
	}
}
