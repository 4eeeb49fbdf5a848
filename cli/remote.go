package cli

import (
	"fmt"
	"time"

	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/remote"
)

type ckptPushCmd struct {
	state
	URL      string `arg:"" help:"file:///folder, s3://bucket/prefix or gs://bucket/prefix."`
	Compress bool   `help:"Compress weights and optimizer state (losslessly)."`
}

// Help implements kong.HelpProvider.
func (ckptPushCmd) Help() string {
	return `Keys come from the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for
s3://, GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY (HMAC keys) for gs://. Another
endpoint is given as s3://bucket/prefix?endpoint=https://host. Every object is
verified at the destination. An attempt fails after 30 s without progress; every
failed attempt is reported, and 2 minutes without progress end the command.

Example:
  snug ckpt push runs/quickstart s3://bucket/quickstart --compress`
}

// Run implements the command.
func (c *ckptPushCmd) Run(a *app) error {
	at, err := a.stateOf(c.state)
	if err != nil {
		return err
	}
	r, err := remote.Open(c.URL, remote.Config{})
	if err != nil {
		return err
	}
	u, err := remote.Push(a.ctx, r, at.Path, a.pushOptions(c.Compress))
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.json(struct {
			*checkpoint.Chosen
			At    string `json:"at"`
			Bytes int64  `json:"bytes"`
			Files int    `json:"files"`
		}{at, fmt.Sprint(r), u.Bytes(), len(u.Files)})
	}
	a.printf("%v is at %v: %s in %s, verified\n", at, r, size.Bytes(u.Bytes()), size.Of(len(u.Files), "file"))
	return nil
}

// patience is how long a command in the foreground retries an object without progress. Training tries longer,
// because that costs it nothing.
const patience = 2 * time.Minute

func (a *app) pushOptions(pack bool) remote.PushOptions {
	return remote.PushOptions{Pack: pack, Patience: patience, Retry: func(e remote.RetryEvent) {
		_, _ = fmt.Fprintln(a.err, retried(e)) // only logged
	}}
}

// retried says what failed and when it will be tried again.
func retried(e remote.RetryEvent) string {
	return fmt.Sprintf("%s: attempt %d failed: %v; next try in %s", e.Object, e.Attempt, e.Err, e.Wait.Round(time.Millisecond))
}

type ckptPullCmd struct {
	URL        string `arg:"" help:"file:///folder, s3://bucket/prefix or gs://bucket/prefix."`
	Dir        string `arg:"" name:"run" help:"Run directory to put it in; train --resume continues from there."`
	Checkpoint string `help:"Name as ckpt remote lists it." default:"latest"`
}

// Run implements the command.
func (c *ckptPullCmd) Run(a *app) error {
	r, err := remote.Open(c.URL, remote.Config{})
	if err != nil {
		return err
	}
	opts := a.pushOptions(false)
	opts.Rejected = func(e remote.Entry) { a.printf("skipping %s: %v\n", e.Name, e.Problem) }
	path, err := remote.Pull(a.ctx, r, c.Checkpoint, c.Dir, opts)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.json(map[string]any{"checkpoint": path, "run": c.Dir})
	}
	a.printf("%s: whole\n\nNext:\n  snug train --resume --out %s\n", path, shell.Path(c.Dir))
	return nil
}

type ckptRemoteCmd struct {
	URL string `arg:"" help:"file:///folder, s3://bucket/prefix or gs://bucket/prefix."`
}

// Run implements the command.
func (c *ckptRemoteCmd) Run(a *app) error {
	r, err := remote.Open(c.URL, remote.Config{})
	if err != nil {
		return err
	}
	list, err := remote.List(a.ctx, r, a.pushOptions(false))
	if err != nil {
		return err
	}
	type row struct {
		Name    string `json:"name"`
		Update  int64  `json:"update"`
		Bytes   int64  `json:"bytes"`
		Run     string `json:"run,omitempty"`
		Problem string `json:"problem,omitempty"`
	}
	rows := []row{}
	out := [][]string{{"CHECKPOINT", "UPDATE", "SIZE", "RUN", ""}}
	for _, e := range list {
		x, state := row{Name: e.Name, Update: e.Update, Bytes: e.Bytes, Run: e.Run}, "whole"
		if e.Problem != nil {
			x.Problem = e.Problem.Error()
			state = "DAMAGED: " + x.Problem
		}
		rows = append(rows, x)
		out = append(out, []string{x.Name, fmt.Sprint(x.Update), size.Bytes(x.Bytes).String(), x.Run[:min(8, len(x.Run))], state})
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w at %v", checkpoint.ErrNone, r)
	}
	if a.asJSON {
		return a.json(rows)
	}
	return a.table(out)
}
