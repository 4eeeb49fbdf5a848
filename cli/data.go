package cli

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/system/corpus"
)

type dataCmd struct {
	Prepare dataPrepareCmd `cmd:"" help:"Tokenise text once into shards that training maps into memory." settings:"all"`
}

type dataPrepareCmd struct {
	choice
	Out    string `help:"Folder for the prepared data; give it to training as data.cache_dir." required:"" placeholder:"DIR" key:"data.cache_dir"`
	Report bool   `help:"Say rows, tokens, duplicates, lengths, and the padding that packing or buckets save."`
}

// Help implements kong.HelpProvider.
func (dataPrepareCmd) Help() string {
	return `Text is named by data.source (files, folders, globs) or data.format gotree.
Preparing again with the same text and settings reuses what is there.

Examples:
  snug data prepare --out prepared --report
  snug data prepare --out prepared --data.source 'books/**/*.txt' --data.format text`
}

// Run implements the verb.
func (d *dataPrepareCmd) Run(a *app) (err error) {
	s, err := a.load(d.choice, nil, true)
	if err != nil {
		return err
	}
	log := a.log
	if a.asJSON {
		log = func(string, ...any) {}
	}
	c, err := corpus.Prepare(a.ctx, s.config, d.Out, s.config.Data.SeqLen, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if a.asJSON {
		return a.json(c.Report)
	}
	if d.Report {
		if err := a.report(c.Report); err != nil {
			return err
		}
	}
	from := s.config.Preset
	if d.Config != "" {
		from = "--config " + d.Config
	}
	a.printf("\nNext:\n  snug train %s --data.cache_dir %s\n", from, d.Out)
	return nil
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
	add("text", func(s *shard.SplitReport) string { return device.Bytes(s.TextBytes) })
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

// bar is a horizontal bar of up to 40 characters.
func bar(share float64) string {
	s := ""
	for range int(share*40 + 0.5) {
		s += "#"
	}
	return s
}
