package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// end writes the report, the sample and the summary of a run. why is the error that it ended with, nil if it
// completed, and peak is the peak memory of its process.
func (r *run) end(res *train.Result, why error, peak int64) error {
	stopped := why != nil
	arena := r.runner.ArenaUsed()
	if !stopped && r.data.Report != nil {
		if err := r.reportBest(res); err != nil {
			return err
		}
	}
	if !stopped && r.System.Language != nil && r.Config.Training.Sample.Tokens > 0 {
		// The generator needs less memory than the training program, which it replaces.
		if err := errors.Join(r.unload(), r.sample()); err != nil {
			return err
		}
	}
	return r.summarize(res, why, arena, peak)
}

// unload frees the training program; further calls do nothing.
func (r *run) unload() error {
	if r.runner == nil {
		return nil
	}
	err := r.runner.Close()
	r.runner = nil
	return err
}

// reportBest reports on the best weights of the run, or on the last if no others were kept.
func (r *run) reportBest(res *train.Result) (err error) {
	if r.Model.Examination != nil {
		return r.examineBest()
	}
	update := res.Update
	best, err := checkpoint.Choose(r.home(), checkpoint.Best)
	if err != nil {
		r.warnf("the report describes the last weights: %v", err)
	} else if best.Update != update {
		update = best.Update
		if err := loadWeights(r.runner, best.Path); err != nil {
			return err
		}
	}
	return r.data.Report(context.WithoutCancel(r.ctx), r.runner, update, r.store.Run())
}

// examineBest reports on the best weights with the model's examination, which replaces the training program
// in memory. If it fails, only the report is lost.
func (r *run) examineBest() error {
	best, err := checkpoint.Choose(r.home(), checkpoint.Best)
	if err != nil {
		r.warnf("there is no report: %v", err)
		return nil
	}
	if err := r.unload(); err != nil {
		return err
	}
	err = r.examine(context.WithoutCancel(r.ctx), r.data, best, r.store.Run())
	var tooLarge *plan.DoesNotFit
	if errors.As(err, &tooLarge) {
		r.warnf("there is no report: %v", err)
		return nil
	}
	return err
}

// sample generates text with the model of the best checkpoint.
func (r *run) sample() (err error) {
	c, err := checkpoint.Choose(r.home(), checkpoint.Best)
	if err != nil {
		return err
	}
	l, err := r.System.Language(r.Config, c.Path)
	if err != nil {
		return err
	}
	g, err := inference.NewGenerator(l, r.Backend)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	s := &r.Config.Training.Sample
	r.emit(SampleBegins{fmt.Sprint(c)})
	var text bytes.Buffer
	_, err = g.Generate(context.WithoutCancel(r.ctx), s.Prompt, s.Tokens, inference.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: r.Config.Training.Seed,
	}, io.MultiWriter(told(r.emit), &text))
	r.emit(SampleEnds{})
	if err != nil {
		return err
	}
	// Monitors and reports show the sample, but the run is complete without it.
	if err := r.store.Run().Replace(monitor.TextFile, text.Bytes()); err != nil {
		r.warnf("the sample is not kept: %v", err)
	}
	return nil
}

// told is a writer that turns text into events.
type told func(Event)

func (t told) Write(p []byte) (int, error) {
	t(SampleText{string(p)})
	return len(p), nil
}
