// Package system defines what a trained system is: a model and a data recipe that
// a configuration chooses. Each system has a folder of its own below this one.
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
	// Describe makes the model of a configuration, without touching data.
	Describe func(c *config.Config) (*Model, error)
	// Extents are settings of which a plan says how large they can be.
	Extents func(c *config.Config) []Extent
	// Smaller are changes with which the model needs less memory, the least loss of
	// precision first, for refusals to name.
	Smaller func(c *config.Config) []Change
	// Open prepares the data of a configuration to train on.
	Open func(ctx context.Context, c *config.Config, m *Model, env Env) (*Run, error)
	// Lengths are the settings that count updates, where that is not training.max_steps
	// alone, and those with which a training goes on that is too short to learn what it should;
	// nil: it is.
	Lengths func(c *config.Config) (keys []string, lenient []config.Override)
	// Missing names the setting without which a configuration can be planned and not
	// trained; nil: there is none.
	Missing func(c *config.Config) error
	// Synthetic generates micro-batches for the program of a configuration, to
	// measure it without data.
	Synthetic func(c *config.Config) Synthetic
	// Fixed reports whether a setting of the system's own is fixed when a run begins:
	// what the model is, or what it learns from. nil: none is.
	Fixed func(key string) bool
	// Phases, when set, gives the runs that training consists of, each in a
	// folder of its own below the run directory dir; none where c is the
	// configuration of one of them.
	Phases func(c *config.Config, dir string) []Phase
	// PhaseFolders names the folders of these runs, the one whose model is used
	// first, then those that replace it while it has none; set with Phases.
	PhaseFolders func(c *config.Config) []string
	// Language is the language model of a checkpoint, to write and serve text with;
	// nil if the system does not write.
	Language func(c *config.Config, checkpoint string) (*inference.Language, error)
	// Prompt is a text to try a language model with.
	Prompt string
	// Export writes a checkpoint as a Hugging Face model folder, which must not
	// exist, and gives the names of its files; nil if the system's models have no
	// such form.
	Export func(c *config.Config, checkpoint, dir string) ([]string, error)
	// ExportMerged is Export with adapters added to the weights that they adapt;
	// nil if the system has none.
	ExportMerged func(c *config.Config, checkpoint, dir string) ([]string, error)
	// Predictor loads a checkpoint to apply it to data; nil if the system has
	// nothing to predict.
	Predictor func(c *config.Config, checkpoint string, on engine.Backend) (inference.Predictor, error)
	// Service loads a checkpoint to answer requests with; nil if the system is not
	// served, or as a language model, by its Language.
	Service func(c *config.Config, checkpoint string, on engine.Backend, opt serve.Options) (serve.Service, error)
}

// Extent is a setting that a model can have in several sizes.
type Extent struct {
	Key string
	// Step divides the values that are tried, Most is the largest that the model takes.
	Step, Most int
	// Model is that with another value.
	Model func(value int) (*Model, error)
	// Size is what a value means, where it is no value of the setting: how much of a unit, and of
	// what model; nil: the value itself.
	Size func(value int) (n int, unit, of string)
}

// Change is a model with other settings than the configured ones.
type Change struct {
	Settings string // keys and values, for people
	Model    func() (*Model, error)
}

// Phase is one of the runs that training consists of.
type Phase struct {
	// Name is that of its folder, Title describes it.
	Name, Title string
	// Settings make its configuration out of that of the whole.
	Settings []config.Override
	// HeldOut is how many examples are evaluated on, as far as the configuration tells; 0: it
	// does not.
	HeldOut int
	// Skip means that it is not to be run now.
	Skip bool
	// From is the name of the phase whose weights it starts from, empty for none:
	// it is not trained on one that has learned nothing. Uses are others whose weights
	// it reads.
	From string
	Uses []string
	// Reads reports whether a setting concerns it; nil: every one does.
	Reads func(key string) bool
	// Data refuses data that it cannot be trained on, before an earlier phase is trained;
	// nil: nothing is known before.
	Data func(ctx context.Context) error
	// Ready is what is missing from the earlier phases; nil: nothing can be.
	Ready func() error
}

// Shape is what the planner may change about a training step.
type Shape struct {
	// MicroBatch is sequences (examples) per micro-batch, Accumulation
	// micro-batches per update.
	MicroBatch, Accumulation int
	// CEChunk is how many rows of logits exist at a time; 0 is all.
	CEChunk int
	// EvalBatch is sequences (examples) per micro-batch of an evaluation; 0:
	// MicroBatch.
	EvalBatch int
	// LossScaling is needed by fp16.
	LossScaling bool
}

// Rows are those of a micro-batch in training, or else in evaluations.
func (s Shape) Rows(train bool) int {
	if train || s.EvalBatch == 0 {
		return s.MicroBatch
	}
	return s.EvalBatch
}

// Model is what the compiler needs to know.
type Model struct {
	// Training describes the step in a shape.
	Training func(s Shape) engine.Training
	// Examination describes a program whose evaluation is more detailed than that of
	// training, for [Run.Report]; nil: that program is the one of training.
	Examination func(s Shape) engine.Training
	// Shape is the configured one.
	Shape Shape
	// Unit is what an example is counted in, and UnitsPerRow how many of it one row of
	// a micro-batch has.
	Unit        string
	UnitsPerRow int64
	// Least is the minimum that the model needs, counted from its sizes.
	Least plan.Least
	// LeastRows is the smallest micro-batch that the model trains with; 0: 1.
	LeastRows int
	// Classes is the width of the logits, if the loss works in chunks of rows.
	Classes int
	// Width is that of the residual stream, which the noam schedule scales by; 0:
	// the model has no one width.
	Width int
	// AllReached is the update by which every parameter has had a gradient, where
	// that is not the first.
	AllReached int64
	// Summary describes the model for people and for checkpoints.
	Summary map[string]any
}

// Env is where a run happens.
type Env struct {
	// Dir is the run directory; Cache is where prepared data lies.
	Dir   *rundir.Dir
	Cache string
	// Position is that of a resumed run in its data, as its data loader gave it; nil: the
	// run is new. Data that it does not belong to is refused before anything that
	// was prepared is changed or added to.
	Position json.RawMessage
	// From are, of a phase, the checkpoints of other phases that it was made of, in
	// folders next to its own.
	From []checkpoint.Origin
	// Log gets messages about what is being done, a line at a time.
	Log func(format string, args ...any)
}

// Continues refuses a data loader with which a resumed run cannot continue.
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

// The settings of [Run.LoaderKeys].
const (
	WorkersKey  = "data.workers"
	PrefetchKey = "data.prefetch"
)

// Run is a system ready to train on its data.
type Run struct {
	Loader train.DataLoader
	// Rows of training data in an epoch; 0: it has no end, or is mixed from sources each
	// of which has its own.
	Rows int64
	// LoaderKeys are the settings that change how the loader works ahead: data.workers
	// and data.prefetch, or those of them that it follows.
	LoaderKeys []string
	// Load copies what training starts from, besides random values, into a loaded
	// program: pre-trained weights, frozen ones too. The state of a checkpoint
	// replaces it. nil: nothing.
	Load func(r *engine.Executable) error
	// Belongs refuses a checkpoint that was trained on other frozen weights than those
	// that Load copies; nil: it copies none.
	Belongs func(checkpoint string) error
	// Evaluator measures on what is held out; nil if nothing is.
	Evaluator train.Evaluator
	Monitor   train.Metric
	// Report writes the results of the weights in a loaded program, those of the
	// checkpoint of an update, to the folder dir: charts, tables, what prediction
	// needs. It is called when a run has ended, with the best weights and the run
	// directory, and for `eval` with a folder of its own. nil: nothing.
	Report func(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error
	// ReportPasses is how many times as much as an evaluation Report computes, whatever
	// training.eval_batches is; 0: as much as an evaluation.
	ReportPasses float64
	// Baselines of the monitored metric, on the same data. The first is what is
	// reached by frequencies alone: a run that stays there has learned nothing.
	Baselines []Baseline
	// Drifts means that the composition of the training loss changes during the
	// run, so that its rise means nothing.
	Drifts bool
	// RateKey, WarmupKey and StepsKey are the settings of the learning rate, its
	// rise and the updates, where those of the section training are derived from
	// them.
	RateKey, WarmupKey, StepsKey string
	// Files go into every checkpoint: the tokenizer, say.
	Files map[string][]byte
	// Text is what is known about text in shards; nil: there is none.
	Text *shard.Report
	// DataBytes is how much of prepared files is mapped into memory.
	DataBytes int64
	Close     func() error
}
