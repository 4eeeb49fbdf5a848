package dynamo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// job is a prepared run of one stage.
type job struct {
	config   *config.Config
	env      system.Env
	stage    string
	tok      *textEncoder
	tasks    []string
	maskedLM *maskedLM
	shape    system.Shape
	train    []*table // one for each task that the stage trains
	held     []*table
	whole    []*table // the same at data.seq_len, for batches of all tasks in phase 3
	// floor is the baseline of the monitored metric.
	floor float64
}

// cacheDir returns the folder of prepared data, shared by the phases of a run.
func cacheDir(c *config.Config, env system.Env) string {
	if c.Data.CacheDir != "" {
		return c.Data.CacheDir
	}
	return filepath.Join(filepath.Dir(filepath.Clean(env.Dir.Path())), "data")
}

// dir returns the run directory of the whole training, wherever it is now.
func (j *job) dir() string { return filepath.Dir(filepath.Clean(j.env.Dir.Path())) }

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	j := &job{config: c, env: env, stage: config.Of[Phases](c).Stage, tasks: config.Of[Model](c).Tasks, shape: m.Shape}
	if j.stage == "" {
		return nil, fmt.Errorf("dynamo trains in phases: name the run of one of them (--phases.stage), or train them all")
	}
	src, err := corpus.Source(&c.Data, env.Log)
	if err != nil {
		return nil, err
	}
	cache := cacheDir(c, env)
	t, keep, err := tokenizer(ctx, c, src, cache, env.Log)
	if err != nil {
		return nil, err
	}
	if j.tok, err = newTextEncoder(t, c); err != nil {
		return nil, err
	}
	files, err := t.Files()
	if err != nil {
		return nil, err
	}
	run := &system.Run{LoaderKeys: []string{system.WorkersKey, system.PrefetchKey}, Files: files, Load: j.load, Report: j.report, Close: func() error { return nil }}
	if j.stage == stageEncoder {
		if err := j.openEncoder(ctx, run, src, corpus.Hash(files), cache); err != nil {
			return nil, err
		}
		return run, keep()
	}
	texts := &reader{config: c, cache: cache, log: env.Log}
	if err := j.openTables(ctx, texts); err != nil {
		return nil, err
	}
	if err := j.openTasks(run); err != nil {
		return nil, err
	}
	if err := env.Continues(run.Loader); err != nil {
		run.Loader.Close()
		return nil, err
	}
	return run, errors.Join(keep(), texts.keep())
}

func (j *job) openEncoder(ctx context.Context, run *system.Run, src data.Source, hash, cache string) (err error) {
	if j.maskedLM, err = newMaskedLM(ctx, j.config, j.shape.MicroBatch, src, j.tok, hash, cache, corpus.Learned(j.env.Position), j.env.Log); err != nil {
		return err
	}
	run.RateKey, run.WarmupKey, run.StepsKey = "phases.encoder_lr", "phases.encoder_warmup", "phases.encoder_steps"
	run.Rows = j.maskedLM.Train.Len()
	run.Close, run.DataBytes, run.Monitor = j.maskedLM.Close, j.maskedLM.Bytes, train.Metric{Name: lossName}
	if j.maskedLM.HeldOut != nil {
		run.Evaluator = j.maskedLM.evaluation()
		b, err := data.Baselines(ctx, j.maskedLM.Train, j.maskedLM.HeldOut)
		if err != nil {
			return errors.Join(err, j.maskedLM.Close())
		}
		j.floor = b.Unigram
		run.Baselines = []system.Baseline{{Name: "unigram", Value: b.Unigram}}
	}
	if run.Loader, err = j.maskedLM.dataLoader(j.shape.Accumulation); err != nil {
		return errors.Join(err, j.maskedLM.Close())
	}
	return nil
}

// openTables reads and encodes the texts of the stage.
func (j *job) openTables(ctx context.Context, src *reader) error {
	for i, name := range j.tasks {
		if isTask(j.stage) && j.stage != name {
			continue
		}
		x, err := src.texts(ctx, name)
		if err != nil {
			return err
		}
		length := lengthOf(j.config, name)
		use := usage{perExample: j.stage == stageJoint, router: j.stage == stageRouter}
		if use.router {
			length = j.config.Data.SeqLen
		}
		held, err := newTable(j.config, j.tok, i, x.held, length, use)
		if err != nil {
			return err
		}
		use.training = true
		known, err := newTable(j.config, j.tok, i, x.train, length, use)
		if err != nil {
			return err
		}
		j.train, j.held = append(j.train, known), append(j.held, held)
		j.env.Log("data: %-15s %6d training texts, %5d held out; %d inputs cut at %d tokens, %d target texts cut at %d, %d answers cut off",
			name, known.Len(), held.Len(), known.cut+held.cut, length, known.shortened+held.shortened, taskOf(j.config, name).Target, known.lost+held.lost)
		if j.stage == stageJoint {
			all, err := newTable(j.config, j.tok, i, x.train, j.config.Data.SeqLen, use)
			if err != nil {
				return err
			}
			j.whole = append(j.whole, all)
		}
	}
	return nil
}

func (j *job) openTasks(run *system.Run) (err error) {
	run.Evaluator = j.evaluation()
	micros, rows := j.shape.Accumulation, j.shape.MicroBatch
	switch j.stage {
	case stageRouter:
		run.RateKey, run.StepsKey = "phases.router_lr", "phases.router_steps"
		run.Monitor = train.Metric{Name: "routing_accuracy", Higher: true}
		run.Baselines = []system.Baseline{{Name: "chance", Value: 1 / float64(len(j.tasks))}}
		run.Loader, err = together(j.config, j.train, rows, micros)
	case stageJoint:
		run.RateKey, run.StepsKey, run.Drifts = "phases.joint_lr", "phases.joint_steps", true
		run.Monitor = train.Metric{Name: lossName}
		run.Loader, err = curriculum(j.config, j.train, j.whole, rows, micros)
	default:
		run.RateKey, run.StepsKey = "phases.adapter_lr", "tasks."+j.stage+".steps"
		run.Monitor = monitoredOf(j.stage)
		name, value := baseline(j.train[0], j.held[0])
		j.floor, run.Baselines = value, []system.Baseline{{Name: name, Value: value}}
		run.Rows = int64(j.train[0].Len())
		run.Loader, err = alone(j.config, j.train[0], rows, micros)
	}
	return err
}

// load copies the frozen encoder and what earlier phases trained into a loaded program.
func (j *job) load(r *engine.Executable) error {
	if j.stage == stageEncoder {
		return j.maskedLM.start(r)
	}
	l := loader{j.config, j.dir(), j.env.From, j.env.Log, r.Program().States, r.ChangeState}
	if err := l.encoder(); err != nil {
		return err
	}
	if j.stage != stageJoint {
		return nil
	}
	return l.stages(append(slices.Clone(j.tasks), stageRouter)...)
}
