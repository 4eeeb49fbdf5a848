// Package system defines what snug trains: a system is a model and a data recipe that a configuration
// selects. Each system has its own subpackage.
package system

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// System is one of the systems that snug trains.
type System struct {
	Config config.System
	// Describe returns the model of a configuration, without touching data.
	Describe func(c *config.Config) (*Model, error)
	// Extents returns settings for which a plan says how large they can be.
	Extents func(c *config.Config) []Extent
	// Smaller returns changes that reduce the memory of the model, starting with the least loss of precision.
	// The errors of models that do not fit suggest them.
	Smaller func(c *config.Config) []Change
	// Open prepares the data of a configuration for training.
	Open func(ctx context.Context, c *config.Config, m *Model, env Env) (*Run, error)
	// Lengths returns the settings that count updates, if there are others than training.max_steps, and the
	// settings that let a run continue that is too short to learn what it should. nil means
	// training.max_steps alone.
	Lengths func(c *config.Config) (keys []string, lenient []config.Override)
	// Missing returns an error that names a setting needed for training but not for planning; nil if there is
	// no such setting.
	Missing func(c *config.Config) error
	// Synthetic generates micro-batches for the program of a configuration, to measure it without data.
	Synthetic func(c *config.Config) Synthetic
	// Fixed reports whether a setting of the system cannot change after a run has begun, because it defines
	// the model or the data. nil means that none is fixed.
	Fixed func(key string) bool
	// Phases, if set, returns the runs that training consists of, each in its own folder below the run
	// directory dir. It returns none if c is the configuration of a single phase.
	Phases func(c *config.Config, dir string) []Phase
	// PhaseFolders, set together with Phases, returns the folders of these runs. The first is the one whose
	// model is used, followed by its substitutes while it has none.
	PhaseFolders func(c *config.Config) []string
	// Language opens the language model of a checkpoint, to generate and serve text; nil if the system does
	// not generate text.
	Language func(c *config.Config, checkpoint string) (*inference.Language, error)
	// Prompt, set together with Language, returns an example prompt; empty: a document is begun.
	Prompt func(c *config.Config) string
	// Export writes a checkpoint as a new Hugging Face model folder dir, and returns the names of its files;
	// nil if the models of the system cannot be written like that.
	Export func(c *config.Config, checkpoint, dir string) ([]string, error)
	// ExportMerged is Export with the adapters merged into the weights; nil if the system has no adapters.
	ExportMerged func(c *config.Config, checkpoint, dir string) ([]string, error)
	// Predictor loads a checkpoint to apply it to data; nil if the system has nothing to predict.
	Predictor func(c *config.Config, checkpoint string, on engine.Backend) (inference.Predictor, error)
	// Pretrains, if set, reports whether a configuration trains weights that only later runs start from:
	// a Predictor refuses its checkpoints.
	Pretrains func(c *config.Config) bool
	// Service loads a checkpoint to answer requests; nil if the system is not served, or is served as a
	// language model, by its Language.
	Service func(c *config.Config, checkpoint string, on engine.Backend, opt serve.Options) (serve.Service, error)
}

// Extent is a setting that determines the size of a model.
type Extent struct {
	Key string
	// Values that are tried are multiples of Step; Most is the largest one the model allows.
	Step, Most int
	// Model returns the model with another value.
	Model func(value int) (*Model, error)
	// Size explains a value that is not one of the setting itself: how many units, and in what model. nil
	// means that the value is the size.
	Size func(value int) (n int, unit, of string)
}

// Change is a model with other settings than the configured ones.
type Change struct {
	Settings string // keys and values, as shown to users
	Model    func() (*Model, error)
}

// Phase is one of the runs that training consists of.
type Phase struct {
	// Name is the name of its folder, and Title describes it.
	Name, Title string
	// Settings turn the configuration of the whole training into the phase's.
	Settings []config.Override
	// HeldOut is the number of held-out examples, if the configuration determines it, and otherwise 0.
	HeldOut int
	// Skip means not to run the phase now.
	Skip bool
	// From is the phase whose weights this one starts from, or empty. The phase is not trained if From has
	// learned nothing. Uses lists other phases whose weights it reads.
	From string
	Uses []string
	// Reads reports whether a setting affects the phase; nil means that every setting does.
	Reads func(key string) bool
	// Data rejects data that the phase cannot be trained on, before an earlier phase is trained; nil if
	// nothing can be checked that early.
	Data func(ctx context.Context) error
	// Ready returns an error if the earlier phases lack something; nil if they cannot.
	Ready func() error
}

// Shape holds what the planner may change in a training step.
type Shape struct {
	// MicroBatch is the number of sequences (examples) per micro-batch, and Accumulation the number of
	// micro-batches per update.
	MicroBatch, Accumulation int
	// CEChunk is the number of rows of logits that exist at a time; 0 means all.
	CEChunk int
	// EvalBatch is the number of sequences (examples) per micro-batch of an evaluation; 0 means MicroBatch.
	EvalBatch int
	// LossScaling is required by fp16.
	LossScaling bool
}

// Rows returns the number of rows of a micro-batch, in training or in evaluations.
func (s Shape) Rows(train bool) int {
	if train || s.EvalBatch == 0 {
		return s.MicroBatch
	}
	return s.EvalBatch
}

// Model is what the compiler needs to know.
type Model struct {
	// Training describes the training step for a shape.
	Training func(s Shape) engine.Training
	// Examination describes a program for [Run.Report] that evaluates in more detail; nil means to use the
	// training program.
	Examination func(s Shape) engine.Training
	// Shape is the configured shape.
	Shape Shape
	// Unit is what examples are counted in, and UnitsPerRow how many units a row of a micro-batch has.
	Unit        string
	UnitsPerRow int64
	// Least is the minimum that the model needs, computed from its sizes.
	Least plan.Least
	// LeastRows is the smallest micro-batch that the model can train with; 0 means 1.
	LeastRows int
	// Classes is the width of the logits, if the loss is computed in chunks of rows.
	Classes int
	// Width is the width of the residual stream, which scales the noam schedule; 0 if the model has no single
	// width.
	Width int
	// RateWidth is the width that training.learning_rate_width is divided by; 0: Width.
	RateWidth int
	// AllReached is the update by which every parameter has had a gradient, if that is not the first.
	AllReached int64
	// Summary describes the model, for users and for checkpoints.
	Summary map[string]any
}

// Env is the environment of a run.
type Env struct {
	// Dir is the run directory, and Cache the folder of prepared data.
	Dir   *rundir.Dir
	Cache string
	// Position is the data position of a resumed run, as returned by its data loader; nil for a new run. Data
	// that does not match it is rejected before any prepared data is changed or added to.
	Position json.RawMessage
	// From, set for a phase, lists the checkpoints of other phases that it was made from, in sibling folders.
	From []checkpoint.Origin
	// Log prints one line about the progress.
	Log func(format string, args ...any)
}

// Continues rejects a data loader that cannot continue a resumed run.
func (e *Env) Continues(f train.DataLoader) error {
	if e.Position == nil {
		return nil
	}
	if err := f.Seek(e.Position); err != nil {
		return fmt.Errorf("the prepared data stays as it was: the run was trained on other data (%w); restore that data, or start a new run with another --out (and another data.cache_dir, if it is set)", err)
	}
	return nil
}

// Baseline is a figure to compare the monitored metric with.
type Baseline struct {
	Name  string
	Value float64
}

// These keys are settings for [Run.LoaderKeys].
const (
	WorkersKey  = "data.workers"
	PrefetchKey = "data.prefetch"
)

// Run is a system ready to train on its data.
type Run struct {
	Loader train.DataLoader
	// Rows is the number of rows of training data in an epoch; 0 if the data is endless, or mixed from
	// sources with their own epochs.
	Rows int64
	// LoaderKeys lists the settings that control how the loader works ahead: data.workers, data.prefetch, or
	// the one that the loader supports.
	LoaderKeys []string
	// Load copies the initial weights that are not random, such as pre-trained or frozen ones, into a loaded
	// program. The state of a checkpoint overrides them. nil if there are none.
	Load func(r *engine.Executable) error
	// Belongs rejects a checkpoint that was trained with other frozen weights than those that Load copies;
	// nil if Load copies none.
	Belongs func(checkpoint string) error
	// Evaluator measures on the held-out data; nil if nothing is held out.
	Evaluator train.Evaluator
	Monitor   train.Metric
	// Report writes the results of a loaded program, which has the weights of an update, to the folder dir:
	// charts, tables and what prediction needs. It is called at the end of a run, with the best weights and the
	// run directory, and by `eval` with another folder. nil if there is no report.
	Report func(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error
	// ReportPasses is the work of Report relative to an evaluation, whatever training.eval_batches is; 0
	// means as much as an evaluation.
	ReportPasses float64
	// Baselines are values of the monitored metric on the same data. The first is the value reachable by
	// frequencies alone; a run that does not beat it has learned nothing.
	Baselines []Baseline
	// Drifts means that the composition of the training loss changes during the run, so a rise is not
	// meaningful.
	Drifts bool
	// RateKey, WarmupKey and StepsKey are the settings of the learning rate, its warm-up and the number of
	// updates, if those in the section training are derived from them.
	RateKey, WarmupKey, StepsKey string
	// Files are added to every checkpoint, such as the tokenizer.
	Files map[string][]byte
	// Text describes text in shards; nil if there is none.
	Text *shard.Report
	// DataBytes is the size of the prepared files mapped into memory.
	DataBytes int64
	Close     func() error
}
