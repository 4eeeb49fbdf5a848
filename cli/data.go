package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/rundir"
)

type dataCmd struct {
	Prepare dataPrepareCmd `cmd:"" help:"Prepare training data once: text as memory-mapped shards, flights as frames." settings:"all"`
}

type dataPrepareCmd struct {
	choice
	Out    string `help:"Folder for the prepared data; give it to training as data.cache_dir." required:"" placeholder:"DIR" key:"data.cache_dir"`
	Report bool   `help:"Show rows, tokens, duplicates, lengths, and the padding that packing or buckets save."`
}

// Help implements kong.HelpProvider.
func (dataPrepareCmd) Help() string {
	return `Prepares what the system's runs read, in all phases: a tokenizer and shards of
text, frames of flights, or nothing where data is read as is. Preparing the same
data again with the same settings reuses what is there.

Examples:
  snug data prepare --out prepared --report
  snug data prepare --out prepared --data.source 'books/**/*.txt' --data.format text --data.split_by document`
}

// Run implements the command. It opens the data as training does, so that it prepares exactly what a run
// reads.
func (d *dataPrepareCmd) Run(a *app) (err error) {
	keep := []config.Override{{Key: "data.cache_dir", Text: d.Out}}
	s, err := a.load(d.choice, keep, true)
	if err != nil {
		return err
	}
	scratch, err := durable.Scratch("prepare")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	runs := []*session.Setup{s}
	if s.System.Phases != nil {
		if phases := s.System.Phases(s.Config, scratch); len(phases) > 0 {
			runs = nil
			for _, p := range phases {
				if p.Skip {
					continue
				}
				x, err := a.load(d.choice, session.Overridden(keep, p.Settings), true)
				if err != nil {
					return err
				}
				runs = append(runs, x)
			}
		}
	}
	var text *shard.Report
	for _, x := range runs {
		found, err := a.prepare(x, d.Out, scratch)
		if err != nil {
			return err
		}
		text = cmp.Or(text, found)
	}
	bytes, err := folderSize(d.Out)
	if err != nil {
		return err
	}
	switch {
	case a.asJSON && text != nil:
		return a.json(text)
	case a.asJSON:
		return a.json(map[string]any{"folder": d.Out, "bytes": bytes})
	case bytes == 0:
		a.printf("nothing to prepare: %s reads this data as is\n", s.Config.System)
		return nil
	case d.Report && text == nil:
		a.printf("no report: %s has no text in shards\n", s.Config.System)
	case d.Report:
		if err := a.report(text); err != nil {
			return err
		}
	}
	a.printf("\nNext:\n  snug train %s --data.cache_dir %s\n", d.again(a, s), shell.Path(d.Out))
	return nil
}

// prepare opens the data of a run as training does, prepares it below cache, and returns the report on its
// text, if it has one.
func (a *app) prepare(s *session.Setup, cache, scratch string) (*shard.Report, error) {
	dir := filepath.Join(scratch, "run")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	run, err := rundir.Look(dir)
	if err != nil {
		return nil, err
	}
	data, err := s.Data(a.ctx, system.Env{Dir: run, Cache: cache, Log: a.log})
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	return data.Text, errors.Join(session.CloseData(data), run.Close())
}

// again returns the arguments that make train use the same data and settings.
func (d *dataPrepareCmd) again(a *app, s *session.Setup) string {
	words := []string{s.Config.Preset}
	if d.Config != "" {
		words = []string{"--config", shell.Path(d.Config)}
		if d.Preset != "" {
			words = append([]string{d.Preset}, words...)
		}
	}
	for _, o := range a.overrides {
		if o.Key != "data.cache_dir" {
			words = append(words, "--"+o.Key, shell.Quote(o.Text))
		}
	}
	return strings.Join(words, " ")
}

// folderSize returns the size of the files below a folder, which need not exist.
func folderSize(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

func (a *app) log(format string, args ...any) { a.printf(format+"\n", args...) }

func (a *app) report(r *shard.Report) error {
	rows := [][]string{{"", "TRAIN", "HELD OUT"}}
	add := func(name string, f func(s *shard.SplitReport) string) {
		rows = append(rows, []string{name, f(&r.Train), f(&r.HeldOut)})
	}
	add("groups", func(s *shard.SplitReport) string { return fmt.Sprint(s.Groups) })
	add("documents", func(s *shard.SplitReport) string { return fmt.Sprint(s.Documents) })
	add("tokens", func(s *shard.SplitReport) string { return fmt.Sprint(s.Tokens) })
	add("text", func(s *shard.SplitReport) string { return size.Bytes(s.TextBytes).String() })
	add("bytes per token", func(s *shard.SplitReport) string {
		return fmt.Sprintf("%.2f", float64(s.TextBytes)/float64(max(s.Tokens, 1)))
	})
	add("length p5 / p50 / p95 / max", func(s *shard.SplitReport) string {
		return fmt.Sprintf("%d / %d / %d / %d", s.Lengths.P5, s.Lengths.P50, s.Lengths.P95, s.Lengths.Max)
	})
	if err := a.table(rows); err != nil {
		return err
	}
	d, p := &r.Duplicates, &r.Padding
	a.printf("\ndocuments read %d, empty %d; bytes of invalid UTF-8 replaced %d\n", r.Documents, r.EmptyDocuments, r.RepairedBytes)
	a.printf("duplicates: %d within training, %d within held-out, %d held-out documents also in training\n", d.WithinTrain, d.WithinHeldOut, d.Across)
	for _, e := range d.Examples {
		a.printf("  %s\n", e)
	}
	a.printf("padding in windows of %d: %.1f %% one document each, %.1f %% in buckets %v, %.2f %% packed\n",
		p.Length, 100*p.Fixed, 100*p.Buckets, p.BucketLengths, 100*p.Packed)
	a.printf("\nlengths of training documents (tokens)\n")
	most := int64(1)
	for _, n := range r.Train.Histogram {
		most = max(most, n)
	}
	for i, n := range r.Train.Histogram {
		if n > 0 {
			a.printf("  %8d+  %7d  %s\n", 1<<i, n, bar(float64(n)/float64(most)))
		}
	}
	return nil
}

// bar draws a horizontal bar of up to 40 characters.
func bar(share float64) string {
	s := ""
	for range int(share*40 + 0.5) {
		s += "#"
	}
	return s
}
