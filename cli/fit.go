package cli

import (
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
)

type fitCmd struct {
	choice
	Card string `help:"Card to fit (default: this machine)." placeholder:"NAME"`
}

// Help implements kong.HelpProvider.
func (fitCmd) Help() string {
	return `Searches micro-batch, accumulation, recomputation, precision and loss chunks for
the best predicted speed at the configured batch of an update
(training.batch_size x training.gradient_accumulation_steps) that fits, and says
why the runners-up lost. A setting given by a flag is kept as it is where that
leaves a choice: training.mixed_precision and training.ce_chunk.

Examples:
  snug fit --card t4
  snug fit refocused-production --card a100-80`
}

// Run implements the verb.
func (f *fitCmd) Run(a *app) error {
	s, err := a.load(f.choice, nil, false)
	if err != nil {
		return err
	}
	var names []string
	if f.Card != "" {
		names = []string{f.Card}
	}
	targets, err := s.targets(names)
	if err != nil {
		return err
	}
	t := targets[0]
	c, err := s.settings(s.precision)
	if err != nil {
		return err
	}
	search := plan.Search{Effective: c.Effective(), CEChunk: c.CEChunk, Precisions: s.precisions(chip(s, t))}
	if c.Recompute != pass.RecomputeAuto {
		search.Recompute = &c.Recompute
	}
	choice, err := s.planner(t).Fit(search)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.json(choice)
	}
	a.printf("%v", choice)
	b := choice.Best.Run.Settings
	a.printf("\nTo use it:\n  --training.batch_size %d --training.gradient_accumulation_steps %d --training.mixed_precision %s --training.gradient_checkpointing %v --training.ce_chunk %d\n",
		b.MicroBatch, b.Accumulation, b.Precision, b.Recompute, b.CEChunk)
	return nil
}

// precisions are those to choose from on a chip: the one asked for, or fp32
// and the chip's best.
func (s *setup) precisions(on device.Chip) []device.Precision {
	if s.asked != device.Auto {
		return []device.Precision{s.asked}
	}
	best, _, err := device.ChoosePrecision(device.Auto, on)
	if err != nil || best == device.FP32 {
		return []device.Precision{device.FP32}
	}
	return []device.Precision{best, device.FP32}
}
