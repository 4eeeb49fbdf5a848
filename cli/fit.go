package cli

import (
	"runtime/debug"

	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/session"
)

type fitCmd struct {
	choice
	Card string `help:"Card to fit (default: this machine)." placeholder:"NAME"`
}

// Help implements kong.HelpProvider.
func (fitCmd) Help() string {
	return `Searches micro-batch, accumulation, recomputation, precision and loss chunks for
the fastest settings that fit, by predicted speed, and says why the runners-up
lost. The rows of an update (training.batch_size x
training.gradient_accumulation_steps) stay as configured. Where memory is short, the
optimizer's states and activations may move to main memory (training.offload).
training.mixed_precision and training.ce_chunk stay as they are if given as flags.

Examples:
  snug fit --card t4
  snug fit refocused-production --card a100-80`
}

// Run implements the command.
func (f *fitCmd) Run(a *app) error {
	var names []string
	var s *session.Setup
	var err error
	if f.Card != "" {
		names = []string{f.Card}
		s, err = a.loadElsewhere(f.choice, 0, 0)
	} else {
		s, err = a.load(f.choice, nil, false)
	}
	if err != nil {
		return err
	}
	s.Remember()
	defer debug.SetGCPercent(debug.SetGCPercent(planningGC))
	targets, err := s.Targets(names)
	if err != nil {
		return err
	}
	choice, err := s.Search(targets[0])
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
	if b.Offload != plan.OffloadNothing {
		a.printf("  --training.offload %v\n", b.Offload)
	}
	if b.Slices > 0 {
		a.printf("  --training.checkpoint_slices %d\n", b.Slices)
	}
	return nil
}
