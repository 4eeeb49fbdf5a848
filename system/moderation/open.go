package moderation

import (
	"context"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// monitored is the name of the metric that selects the best weights.
const monitored = "f1"

// task is a prepared run: texts, tokenizer, examples.
type task struct {
	config  *config.Config
	env     system.Env
	texts   *splits
	encoder *textEncoder
	weights [labels]float64
	// test is nil if there is none.
	train, valid, test *examples
	baseline           *bagOfWords
	keep               func() error // saves a newly trained tokenizer
}

// prepare reads and encodes the texts; shape determines the size of a micro-batch.
func prepare(ctx context.Context, c *config.Config, shape system.Shape, env system.Env) (*task, error) {
	t := &task{config: c, env: env}
	var err error
	if t.texts, err = read(ctx, c, env.Log); err != nil {
		return nil, err
	}
	tok, keep, err := tokenizer(ctx, c, t.texts.train, env.Cache, env.Log)
	if err != nil {
		return nil, err
	}
	t.keep = keep
	if t.encoder, err = newTextEncoder(tok, c); err != nil {
		return nil, err
	}
	t.weights = classWeights(c, t.texts.train)
	for _, s := range []struct {
		into    **examples
		samples []sample
		weights [labels]float64
	}{{&t.train, t.texts.train, t.weights}, {&t.valid, t.texts.valid, [labels]float64{1, 1}}, {&t.test, t.texts.test, [labels]float64{1, 1}}} {
		if len(s.samples) == 0 {
			continue
		}
		if *s.into, err = encode(c, t.encoder, s.samples, shape.Rows(s.into == &t.train), s.weights); err != nil {
			return nil, err
		}
	}
	t.announce()
	if config.Of[Decision](c).Baseline {
		if t.baseline, err = trainBagOfWords(ctx, t.texts.train, t.texts.valid, t.weights, env.Log); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// announce logs what was found in the data.
func (t *task) announce() {
	log := t.env.Log
	for _, s := range []struct {
		name string
		x    *examples
	}{{"train", t.train}, {"validation", t.valid}, {"test", t.test}} {
		if s.x == nil {
			continue
		}
		n := len(s.x.samples)
		log("data: %-10s %6d texts, %.1f %% flagged, %.1f tokens on average, %d cut at %d", s.name, n,
			100*float64(count(s.x.samples))/float64(n), float64(s.x.lengths.Sum())/float64(n), s.x.cut, t.encoder.longest)
	}
	d := &t.texts.duplicates
	for _, pair := range []string{"train in validation", "train in test", "validation in test"} {
		if n := d.Across[pair]; n > 0 {
			log("data: duplicates: %s of %s", size.Of(n, "text"), pair)
		}
	}
	if d.Dropped > 0 {
		log("data: skipping what is in another split too (data.duplicates): %s", size.Of(d.Dropped, "training text"))
	}
	if d.Conflicts > 0 {
		log("data: with both labels: %s", size.Of(d.Conflicts, "text"))
	}
	fixed := t.train.lengths.PaddingShare([]int{t.encoder.longest})
	log("data: padding is %.0f %% of the tokens in buckets %v (%.0f %% at a fixed length of %d)", 100*t.train.padding(), buckets(t.config), 100*fixed, t.encoder.longest)
}

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	t, err := prepare(ctx, c, m.Shape, env)
	if err != nil {
		return nil, err
	}
	files, err := t.encoder.Files()
	if err != nil {
		return nil, err
	}
	f, err := newDataLoader(c, t.train, m.Shape.Accumulation)
	if err != nil {
		return nil, err
	}
	if err = env.Continues(f); err == nil {
		err = t.keep()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	run := &system.Run{
		Loader: f, Rows: int64(t.train.Len()), Monitor: train.Metric{Name: monitored, Higher: true}, Files: files, Close: func() error { return nil },
		Baselines: t.baselines(), Load: t.load, Report: t.report, DataBytes: system.FolderBytes(config.Of[Model](c).Folder),
		Evaluator: t.valid.evaluation(c.Training.EvalBatches), ReportPasses: t.reportPasses(),
		LoaderKeys: []string{system.WorkersKey, system.PrefetchKey},
	}
	if err := config.Of[system.LoRA](c).Attach(run, baseOf(c)); err != nil {
		f.Close()
		return nil, err
	}
	return run, nil
}

// reportPasses returns the work of the report, in passes over the validation texts.
func (t *task) reportPasses() float64 {
	if t.test == nil {
		return 1
	}
	return 1 + float64(t.test.Len())/float64(t.valid.Len())
}

// baselines returns values of the monitored metric to compare the model's value with.
func (t *task) baselines() []system.Baseline {
	n, p := len(t.valid.samples), count(t.valid.samples)
	all := metric.Confusion{TP: p, FP: n - p}
	b := []system.Baseline{{Name: "flag everything", Value: all.F1()}}
	if t.baseline != nil {
		s := t.baseline.score(t.valid.samples)
		b = append(b, system.Baseline{Name: "bag of words", Value: metric.Count(s.Margins, s.Positive, 0).F1()})
	}
	return b
}

// load copies what training starts from into a loaded program.
func (t *task) load(r *engine.Executable) error {
	return config.Of[system.LoRA](t.config).Begin(r, baseOf(t.config), t.env.Log)
}
