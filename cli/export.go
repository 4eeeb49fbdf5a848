package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train/checkpoint"
)

type exportCmd struct {
	pick
	Dir   string `arg:"" help:"Folder to create; it must not exist, or must be empty."`
	Merge bool   `help:"Merge adapters into the weights that they adapt."`
}

// Help implements kong.HelpProvider.
func (exportCmd) Help() string {
	return `The folder has config.json, the weights as float32 safetensors and the tokenizer,
as transformers' from_pretrained expects. It appears complete or not at all. For a
run directory, the best checkpoint is verified and exported.

Examples:
  snug export runs/quickstart quickstart-hf
  snug export runs/quickstart newest-hf --checkpoint last
  snug export runs/quickstart/checkpoints/step-00000400 at-400
  snug export --merge runs/dynamo-quickstart/phase1-qa qa-hf`
}

// Run implements the command.
func (e *exportCmd) Run(a *app) error {
	o, err := a.open(e.pick)
	if err != nil {
		return err
	}
	if o.system.Export == nil {
		return fmt.Errorf("%s is a run of the system %s, and transformers has no class for its models: %s can be exported", e.Path, o.config.System, exportable())
	}
	write := o.system.Export
	if e.Merge {
		if write = o.system.ExportMerged; write == nil {
			return usage("--merge: runs of the system %s have no adapters", o.config.System)
		}
	}
	files, err := write(o.config, o.Path, e.Dir)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.json(struct {
			*checkpoint.Chosen
			Folder string   `json:"folder"`
			Files  []string `json:"files"`
		}{o.Chosen, e.Dir, files})
	}
	a.printf("%s -> %s (%s)\n", o.Path, e.Dir, o.Why)
	for _, f := range files {
		a.printf("  %s\n", filepath.Join(e.Dir, f))
	}
	return nil
}

// exportable names the systems whose models can be exported.
func exportable() string {
	var names []string
	for s := range slices.Values(session.Systems) {
		if s.Export != nil {
			names = append(names, s.Config.Name)
		}
	}
	return "runs of " + strings.Join(names, ", ")
}
