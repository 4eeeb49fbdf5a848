package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/remote"
)

type trainCmd struct {
	choice
	Out     string    `help:"Run directory (default: runs/PRESET; with --config and no preset, runs/SYSTEM)." placeholder:"DIR" key:"run.out"`
	Resume  bool      `help:"Continue the run in --out from its newest whole checkpoint; with a preset or --config, start it if there is none." xor:"start"`
	Fresh   bool      `help:"Start over in a run directory that has checkpoints; they are removed." xor:"start"`
	Phase   string    `help:"For a system that trains in phases: the phase to run, or all." placeholder:"N" key:"phases.run"`
	Monitor bool      `help:"Show the run in the monitor's view while it trains; q goes back to plain lines."`
	Nproc   processes `help:"Train with this many processes on this machine, which share the micro-batches of every update; auto: one for each card, or for the processors of each memory (NUMA node)." placeholder:"N"`
	Until   int64     `help:"Save and stop after this many updates; --resume continues." placeholder:"N" min:"1" of:"updates"`
}

// Help implements kong.HelpProvider.
func (trainCmd) Help() string {
	return `Any setting can be given as a flag: --training.learning_rate 1e-3.

Examples:
  snug train                                  the quickstart, on the Go source tree
  snug train --training.max_steps 50          a shorter one
  snug train --config mine.yaml --out runs/a  settings from a file
  snug train --resume --out runs/a            continue where it stopped
  snug train --monitor                        watch it in the same terminal

snug config --presets lists the presets, snug config --reference refocused every
setting.

Ctrl-C finishes the micro-batch, saves and exits with code 4; a second one exits at
once. SIGTERM, and the SIGHUP of a terminal that is closed, do the same within
checkpoint.grace. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 4
stopped with the state saved, 5 not saved within the grace, 6 the device was lost
(--resume continues from the last checkpoint in a new process), 7 a process of the
run was lost (--resume continues with any number of them).

--nproc N starts N processes; torchrun --no-python, mpirun and srun are recognized by
their environment, and so are Kubeflow Trainer and SageMaker, where --nproc is for each
machine. docs/many-processes.md has more.`
}

// Run implements the command.
func (t *trainCmd) Run(a *app) error {
	p, err := t.join(a)
	switch {
	case err != nil:
		return err
	case p.spawn != nil:
		return p.spawn.run()
	case p.launch == nil:
		return t.train(a, nil, session.Local{})
	case p.group.Rank() > 0:
		return a.follow(&p)
	}
	err = t.train(a, p.group, p.local())
	if errors.Is(err, train.ErrStopped) {
		return errors.Join(err, p.group.Leave(nil))
	}
	return errors.Join(err, p.group.Leave(err))
}

// train trains, alone or as rank 0 of a group.
func (t *trainCmd) train(a *app, g dist.Group, local session.Local) error {
	v := &trainView{app: a}
	if t.Monitor {
		v.watch()
	}
	defer v.end()
	result, err := session.Train(a.ctx, session.Options{
		Sources: a.sources(t.choice), Dir: t.Out, Resume: t.Resume, Fresh: t.Fresh, Until: t.Until, Phase: t.Phase, Group: g, Local: local, OnEvent: v.onEvent,
		Replay: replayElsewhere,
	})
	if !a.asJSON || err != nil && !errors.Is(err, train.ErrStopped) {
		return err
	}
	if result.Phases != nil {
		return errors.Join(err, a.json(map[string]any{"phases": result.Phases}))
	}
	return errors.Join(err, a.json(result.Summary))
}

// trainView shows a run as it proceeds.
type trainView struct {
	*app
	progress *progress  // nil before the first update and after the last
	screen   *runScreen // nil without --monitor or without a terminal
}

// end leaves the display as it is.
func (v *trainView) end() {
	if v.screen != nil {
		v.screen.close()
	}
	if v.progress != nil {
		v.progress.close()
		v.progress = nil
	}
}

// onEvent shows an event.
func (v *trainView) onEvent(e session.Event) {
	switch e := e.(type) {
	case session.PhaseBegins:
		v.signals.does(preparing)
		v.printf("\n[%d/%d] %s: %s\n", e.Number, e.Of, e.Name, e.Title)
	case session.Planned:
		v.announce(e)
	case session.Begins:
		v.expect(e)
		v.progress = newProgress(v.app, e)
		v.signals.does(training(e.Config.Checkpoint.Grace))
		if v.screen != nil {
			v.screen.open(e.Dir)
		}
	case session.Trained:
		v.end()
		if e.Result != nil {
			v.signals.does(afterward)
		}
	case session.SampleBegins:
		v.printf("\nsample of %s:\n", e.From)
	case session.SampleText:
		v.printf("%s", e.Text)
	case session.SampleEnds:
		v.printf("\n")
	case session.Finished:
		v.printSummary(e)
	case session.Info:
		v.line(e.Text)
	case train.Warned:
		if v.progress != nil {
			v.progress.clear()
		}
		v.warning("%s", e.Text)
	case remote.RetryEvent:
		v.onEvent(train.Warned{Text: retried(e)})
	case train.Step:
		v.progress.step(e)
	case train.Evaluated:
		v.line(evalLine(e))
	case checkpoint.Event:
		v.saving(e)
	case remote.UploadEvent:
		v.upload(e)
	}
}

// line prints a permanent line.
func (v *trainView) line(text string) {
	if v.progress != nil {
		v.progress.clear()
	}
	v.printf("%s\n", text)
}

// status shows what the store is doing, on the line of the updates.
func (v *trainView) status(text string) {
	if v.progress != nil {
		v.progress.status = text
	}
}

func evalLine(e train.Evaluated) string {
	var b strings.Builder
	fmt.Fprintf(&b, "evaluation after update %d: %s %s", e.Update, e.Monitor.Name, figure(e.Monitor, e.Monitor.Name, e.Metrics[e.Monitor.Name]))
	for _, k := range sortedKeys(e.Metrics) {
		if k != e.Monitor.Name {
			fmt.Fprintf(&b, ", %s %s", strings.ReplaceAll(k, "_", " "), figure(e.Monitor, k, e.Metrics[k]))
		}
	}
	if e.Best {
		b.WriteString(" (best)")
	}
	fmt.Fprintf(&b, " [%.1f s]", e.Took.Seconds())
	return b.String()
}

// saving shows events of the checkpoint store.
func (v *trainView) saving(e checkpoint.Event) {
	switch e.Kind {
	case checkpoint.Saved:
		v.status("")
	case checkpoint.Retry:
		v.status(fmt.Sprintf("save failed (attempt %d), retrying", e.Attempt))
	case checkpoint.Failed:
		v.status("last save failed")
	case checkpoint.Bad:
		v.status("last state is bad")
	case checkpoint.Warning, checkpoint.Skipped:
	default:
		return
	}
	v.line(e.String())
}

// upload shows events of the background upload.
func (v *trainView) upload(e remote.UploadEvent) { v.line(e.String()) }
