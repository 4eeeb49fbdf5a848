// Package dynamo is the system "dynamo": one frozen encoder serves several tasks. Each task has low-rank
// adapters on the encoder's linear layers and a head (a classifier, a pointer to a span, or a decoder that
// generates text). A router determines a text's task from the text alone.
//
// Training consists of several runs: the encoder itself if there is no model folder (phase 0), the adapter
// and head of each task (1), the router (2), and all of these together (3).
//
// Its guarantees:
//
//   - The encoder is frozen. From phase 1 on none of its bits changes, it has no gradients and no moments,
//     and it is in no checkpoint except its own.
//   - An adapter is applied where it is configured, and an exported encoder with the adapter merged computes
//     the same.
//   - The span of an answer is that of its characters. An answer that is cut off with the end of its text is
//     counted and not trained on.
//   - A decoder sees only what it generated before, and generates as it was trained.
//   - A phase starts only if the previous ones are done and good enough.
package dynamo

import (
	"fmt"
	"math"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// Model is the section "model" of the configuration.
type Model struct {
	Folder           string   `key:"folder" help:"BERT or RoBERTa model folder (config.json, weights, tokenizer) used as the encoder, which decides every size; empty: phase 0 trains one"`
	Architecture     string   `key:"architecture" enum:"bert,roberta" help:"layout of the encoder's weights and positions"`
	DModel           int      `key:"d_model" min:"1" of:"width" help:"width of the residual stream"`
	NLayers          int      `key:"n_layers" min:"1" of:"layers" help:"blocks of the encoder"`
	NHeads           int      `key:"n_heads" min:"1" of:"heads" help:"attention heads"`
	DFF              int      `key:"d_ff" min:"1" of:"width" help:"width of the feed-forward layer"`
	VocabSize        int      `key:"vocab_size" min:"0" of:"vocabulary" help:"tokens; 0: data.tokenizer.vocab_size"`
	MaxSeqLen        int      `key:"max_seq_len" min:"4" of:"positions" help:"maximum length of a text in tokens, markers included"`
	TokenTypes       int      `key:"token_types" min:"1" of:"vocabulary" help:"rows of the token type table; texts are all of type 0"`
	PadID            int      `key:"pad_id" min:"0" of:"vocabulary" help:"id of padding; roberta's positions start after it"`
	Activation       string   `key:"activation" help:"activation of the feed-forward layers: gelu, gelu_tanh, relu or silu"`
	Dropout          float64  `key:"dropout" min:"0" below:"1" help:"share of activations dropped in phase 0; the frozen encoder drops nothing"`
	AttentionDropout float64  `key:"attention_dropout" min:"0" below:"1" help:"share of attention weights dropped in phase 0"`
	LayerNormEps     float64  `key:"layer_norm_eps" above:"0" help:"epsilon added to the variance"`
	InitStd          float64  `key:"init_std" min:"0" help:"standard deviation of initial weights that no folder gives; 0: 0.06*sqrt(128/d_model), which gives layers the same gain at every width"`
	HeadDropout      float64  `key:"head_dropout" min:"0" below:"1" help:"share of activations dropped in heads and decoders"`
	DecoderLayers    int      `key:"decoder_layers" min:"1" of:"layers" help:"blocks of a generation task's decoder"`
	DecoderFF        int      `key:"decoder_ff" min:"0" of:"width" help:"width of a decoder's feed-forward layer; 0: the encoder's"`
	Tasks            []string `key:"tasks" enum:"sentiment,qa,summarization,code_generation,translation" help:"tasks to train, in the order of their numbers"`
}

// Router is the section "router".
type Router struct {
	Hidden            []int   `key:"hidden" min:"1" of:"width" help:"widths of the hidden layers"`
	Dropout           float64 `key:"dropout" min:"0" below:"1" help:"share of hidden activations dropped"`
	Dispatch          string  `key:"dispatch" enum:"soft,hard" help:"in phase 3 and in use; soft: the router's probabilities mix the adapters; hard: a text goes to one task, and a batch is grouped by task"`
	Temperature       float64 `key:"temperature" above:"0" help:"initial temperature that divides the logits; at least 0.1"`
	LearnTemperature  bool    `key:"learn_temperature" help:"the temperature is trained"`
	Gumbel            bool    `key:"gumbel" help:"with soft dispatch, phase 3 samples one adapter with Gumbel noise and a straight-through gradient"`
	GumbelTemperature float64 `key:"gumbel_temperature" min:"0.1" help:"initial temperature of the sampling"`
	GumbelDecay       float64 `key:"gumbel_decay" above:"0" max:"1" help:"factor applied to it each update, down to 0.1"`
	Supervised        float64 `key:"supervised_weight" min:"0" help:"weight of the cross-entropy with the true task"`
	Balance           float64 `key:"balance_weight" min:"0" help:"weight of the variance of the tasks' mean probabilities over a mixed batch, times the square of their number"`
	Entropy           float64 `key:"entropy_weight" help:"weight of the routing's mean entropy, which is rewarded; negative: penalized"`
	TemperaturePrior  float64 `key:"temperature_weight" min:"0" help:"weight of the squared distance of a trained temperature from 1"`
}

// Phases is the section "phases".
type Phases struct {
	Run             string  `key:"run" enum:"all,0,1,2,3" help:"phases that snug train runs: 0 encoder, 1 adapters, 2 router, 3 joint"`
	Stage           string  `key:"stage" enum:",encoder,sentiment,qa,summarization,code_generation,translation,router,joint" help:"the run of a phase that this configuration is for; set by train"`
	EncoderSteps    int     `key:"encoder_steps" min:"1" of:"updates" help:"updates of phase 0"`
	EncoderLR       float64 `key:"encoder_lr" above:"0" help:"learning rate of phase 0 at the width encoder_width"`
	EncoderWidth    int     `key:"encoder_width" min:"0" of:"width" help:"model.d_model that encoder_lr is meant for: phase 0 takes encoder_lr*encoder_width/d_model; 0: encoder_lr as it is"`
	EncoderWarmup   float64 `key:"encoder_warmup" min:"0" max:"0.5" help:"share of phase 0 over which its learning rate rises; 0: training.warmup_steps"`
	MaskShare       float64 `key:"mask_share" above:"0" below:"1" help:"share of tokens to predict in phase 0"`
	AdapterLR       float64 `key:"adapter_lr" above:"0" help:"learning rate of phase 1"`
	RouterSteps     int     `key:"router_steps" min:"1" of:"updates" help:"updates of phase 2"`
	RouterLR        float64 `key:"router_lr" above:"0" help:"learning rate of phase 2"`
	JointSteps      int     `key:"joint_steps" min:"1" of:"updates" help:"updates of phase 3"`
	JointLR         float64 `key:"joint_lr" above:"0" help:"learning rate of the router in phase 3"`
	JointAdapters   float64 `key:"joint_adapters" min:"0" help:"factor on joint_lr for adapters and heads"`
	CurriculumStart float64 `key:"curriculum_start" min:"0" max:"1" help:"share of phase 3's batches that hold one task, at the start; the others hold all"`
	CurriculumEnd   float64 `key:"curriculum_end" min:"0" max:"1" help:"share at the end"`
	MinRouting      float64 `key:"min_routing" min:"0" max:"1" help:"routing accuracy that phase 2 must reach before phase 3 starts"`
	MinEncoderGain  float64 `key:"min_encoder_gain" help:"nats by which phase 0 must beat token frequencies before phase 1 starts"`
	MinGain         float64 `key:"min_gain" help:"amount by which a task must beat its baseline before phase 2 starts"`
}

// Task is the configuration of one task.
type Task struct {
	Rank       int      `key:"rank" min:"1" of:"width" help:"rank of the low-rank updates"`
	Alpha      float64  `key:"alpha" above:"0" help:"scale of the updates, alpha/rank"`
	Dropout    float64  `key:"dropout" min:"0" below:"1" help:"share of a layer's input dropped before its update"`
	Targets    []string `key:"targets" enum:"query,key,value,attention_output,intermediate,output" help:"linear layers of each block that are adapted"`
	Steps      int      `key:"steps" min:"1" of:"updates" help:"updates of phase 1"`
	Length     int      `key:"length" min:"0" of:"positions" help:"maximum length of the input in tokens; 0: data.seq_len"`
	Target     int      `key:"target_length" min:"2" of:"positions" help:"maximum length of the generated text, in tokens"`
	Train      []string `key:"train" help:"files with examples; empty: derived from the Go source tree"`
	Validation []string `key:"validation" help:"files with held-out examples; empty: data.held_out_fraction of the others"`
	Format     string   `key:"format" enum:"records,squad,lines" help:"records: jsonl, json, csv, tsv or parquet; squad: SQuAD v1.1 JSON; lines: text files, input and target alternating"`
	Input      string   `key:"input_field" help:"field of the input text; without a header, columns are called 1, 2, ..."`
	Output     string   `key:"output_field" help:"field of the label or target text"`
	NoHeader   bool     `key:"no_header" help:"csv and tsv files start with data"`
	Examples   int      `key:"examples" min:"0" of:"examples" help:"most examples to train on; 0: all"`
	HeldOut    int      `key:"held_out" min:"0" of:"examples" help:"most examples to evaluate on; 0: all"`
	Beams      int      `key:"beams" min:"1" of:"beams" help:"beam width of a generation task; 1: greedy"`
}

// Tasks is the section "tasks".
type Tasks struct {
	Sentiment      Task `key:"sentiment" help:"a text has one of two labels"`
	QA             Task `key:"qa" help:"the answer to a question is a span of a text"`
	Summarization  Task `key:"summarization" help:"a text is summarized"`
	CodeGeneration Task `key:"code_generation" help:"code is generated from a description"`
	Translation    Task `key:"translation" help:"a text is translated"`
}

// all lists the targets that the guide's program builds adapters for.
var all = []string{"query", "key", "value", "attention_output", "intermediate", "output"}

func task(rank int) Task {
	return Task{
		Rank: rank, Alpha: float64(2 * rank), Dropout: 0.1, Targets: slices.Clone(all), Steps: 500, Target: 32,
		Format: "records", Input: "input", Output: "output", Beams: 1,
	}
}

// System defines the system for the command line.
var System = system.System{
	Config: config.System{
		Name: "dynamo",
		Help: "a frozen encoder with adapters for several tasks and a router between them",
		Sections: func() []config.Section {
			return []config.Section{
				{Name: "model", Values: &Model{
					Architecture: "roberta", DModel: 128, NLayers: 3, NHeads: 4, DFF: 512, MaxSeqLen: 64, TokenTypes: 1, PadID: 1,
					Activation: "gelu", LayerNormEps: 1e-5, InitStd: 0.02, HeadDropout: 0.1, DecoderLayers: 2,
					Tasks: slices.Clone(taskNames[:]),
				}},
				{Name: "router", Values: &Router{
					Hidden: []int{512, 256}, Dropout: 0.1, Dispatch: "hard", Temperature: 1, LearnTemperature: true,
					GumbelTemperature: 1, GumbelDecay: 0.999, Supervised: 1, Balance: 0.1, Entropy: 0.01, TemperaturePrior: 0.01,
				}},
				{Name: "phases", Values: &Phases{
					Run: "all", EncoderSteps: 1000, EncoderLR: 1e-3, EncoderWarmup: 0.1, MaskShare: 0.15, AdapterLR: 5e-4, RouterSteps: 200, RouterLR: 1e-3,
					JointSteps: 200, JointLR: 1e-4, JointAdapters: 0.1, CurriculumStart: 0.8, CurriculumEnd: 0.2, MinEncoderGain: 0.1, MinRouting: 0.9,
				}},
				{Name: "tasks", Values: &Tasks{task(16), task(24), task(32), task(32), task(32)}},
			}
		},
		Resolve: func(c *config.Config, r *config.Report) { system.FollowEncoder(c, r, config.Of[Model](c).Folder) },
		Check:   check,
	},
	Describe:     describe,
	Synthetic:    synthetic,
	Fixed:        fixed,
	Phases:       phases,
	Lengths:      lengths,
	PhaseFolders: phaseFolders,
	Missing:      missing,
	Predictor:    newPredictor,
	Pretrains:    pretrains,
	Export:       export,
	ExportMerged: exportMerged,
	Open:         open,
}

// missing returns an error for missing files of a preset that the selected phases need.
func missing(c *config.Config) error {
	m, p := config.Of[Model](c), config.Of[Phases](c)
	if m.Folder == "" && (p.Run == "all" || p.Run == "0") {
		if err := system.MissingFiles(c, "data.source", c.Data.Source); err != nil {
			return fmt.Errorf("%w (or a trained encoder with --model.folder)", err)
		}
	}
	for _, name := range m.Tasks {
		if p.Run == "0" {
			break
		}
		if err := system.MissingFiles(c, "tasks."+name+".train", taskOf(c, name).Train); err != nil {
			return err
		}
	}
	return nil
}

// shortestText is the length of a text of one token between its two markers.
const shortestText = 3

// shortest returns the minimum number of tokens of a task's input. A question and the text with its answer
// have three or four markers.
func shortest(task string) int {
	if task == nameQA {
		return 5
	}
	return shortestText
}

func check(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	if m.VocabSize == 0 {
		m.VocabSize = c.Data.Tokenizer.VocabSize
	}
	if m.Folder == "" && c.Data.Tokenizer.Path == "" && m.VocabSize < c.Data.Tokenizer.VocabSize {
		r.Error("model.vocab_size", "%d is smaller than data.tokenizer.vocab_size (%d): the model needs a row for every token", m.VocabSize, c.Data.Tokenizer.VocabSize)
	}
	if m.InitStd == 0 {
		if err := c.Derive("model.init_std", fmt.Sprint(0.06*math.Sqrt(128/float64(max(m.DModel, 1)))), "model.d_model"); err != nil {
			r.Error("model.init_std", "%v", err)
		}
	}
	if err := encoder(c).Check(); err != nil {
		r.Error(hf.KeyOf("model", err), "%v", err)
	}
	if n := c.Data.SeqLen; n > 0 && n < shortestText {
		r.Error("data.seq_len", "want at least %d, got %d: fewer tokens have room for markers only", shortestText, n)
	}
	if len(m.Tasks) == 0 {
		r.Error("model.tasks", "want at least one task")
	}
	for i, name := range m.Tasks {
		if slices.Contains(m.Tasks[:i], name) {
			r.Error("model.tasks", "%s is named twice", name)
		}
		t := taskOf(c, name)
		if least := shortest(name); t.Length > 0 && t.Length < least {
			r.Error("tasks."+name+".length", "want at least %d, got %d: fewer tokens have room for markers only", least, t.Length)
		}
		if t.Length > c.Data.SeqLen {
			r.Error("tasks."+name+".length", "%d exceeds data.seq_len (%d)", t.Length, c.Data.SeqLen)
		}
		if len(t.Train) == 0 && c.Data.Format != "gotree" {
			r.Error("tasks."+name+".train", "want files with examples, or data.format gotree")
		}
		if len(t.Train) > 0 && len(t.Validation) == 0 && c.Data.HeldOutFraction == 0 {
			r.Error("tasks."+name+".validation", "nothing is held out: name files, or set data.held_out_fraction")
		}
		if t.Format == "squad" && name != nameQA {
			r.Error("tasks."+name+".format", "squad files hold questions: they are for the task qa")
		}
		if t.Beams > 1 && c.Training.BatchSize%t.Beams != 0 {
			r.Error("tasks."+name+".beams", "%d does not divide training.batch_size (%d), the number of rows generated at a time", t.Beams, c.Training.BatchSize)
		}
	}
	if n := c.Training.EvalBatchSize; n != 0 && n != c.Training.BatchSize {
		r.Error("training.eval_batch_size", "evaluations of dynamo have the rows of training.batch_size (%d): omit the key", c.Training.BatchSize)
	}
	if s := config.Of[Phases](c).Stage; isTask(s) && !slices.Contains(m.Tasks, s) {
		r.Error("phases.stage", "%s is none of model.tasks (%v)", s, m.Tasks)
	}
	if rt := config.Of[Router](c); rt.Gumbel && rt.Dispatch == "hard" {
		r.Error("router.gumbel", "samples the mixture of soft dispatch, but router.dispatch is hard")
	}
	unused(c, r)
	ofStage(c, r)
}

// unused rejects common keys of the section "data" that have no effect here.
func unused(c *config.Config, r *config.Report) {
	d, m := &c.Data, config.Of[Model](c)
	if len(d.Validation) > 0 {
		r.Error("data.validation", "each task has held-out files of its own: name them in tasks.<task>.validation; phase 0 holds out data.held_out_fraction of its documents")
	}
	r.NoSamples("writes no samples")
	if d.SplitBy == "end" {
		r.Error("data.split_by", "end cuts documents, and examples are held out whole: want document or folder")
	}
	r.Unused("predicts masked tokens in full windows in phase 0, and has one sequence per text in the others", "data.segment_mask")
	if m.Folder != "" {
		r.Unused("reads no documents with model.folder, but examples, as tasks.<task>.format and input_field say", "data.documents", "data.overlap", "data.text_field")
	}
	for _, name := range m.Tasks {
		if t := taskOf(c, name); d.SplitBy == "folder" && len(t.Train) > 0 && len(t.Validation) == 0 {
			r.Error("data.split_by", "examples of tasks are held out one by one, not by folder: name the files of the held-out folders in tasks.%s.validation", name)
		}
	}
}

// ofStage sets the settings of the common training section that the phases determine.
func ofStage(c *config.Config, r *config.Report) {
	p := config.Of[Phases](c)
	if c.Training.LearningRateWidth > 0 {
		r.Error("training.learning_rate_width", "phase 0 has its own, and the other phases train adapters and a router: set phases.encoder_width")
	}
	steps, lr, warmup, from := p.JointSteps, p.JointLR, c.Training.WarmupSteps, "joint"
	switch s := p.Stage; {
	case s == "":
		// This is not yet the configuration of a single phase, so settings determined by the phases must not
		// be given separately.
		for _, k := range []struct {
			key, follows, instead string
			given                 bool
		}{
			{"training.max_steps", "phases.joint_steps", "phases.encoder_steps, tasks.<task>.steps, phases.router_steps and phases.joint_steps", c.Training.MaxSteps != defaultSteps && c.Training.MaxSteps != p.JointSteps},
			{"training.learning_rate", "phases.joint_lr", "phases.encoder_lr, adapter_lr, router_lr and joint_lr", c.Training.LearningRate != defaultLR && c.Training.LearningRate != p.JointLR},
		} {
			if k.given && !followed(c, k.key, k.follows) {
				r.Error(k.key, "each phase has its own: set %s", k.instead)
			}
		}
	case s == stageEncoder:
		steps, lr, from = p.EncoderSteps, p.EncoderLR, "encoder"
		if p.EncoderWidth > 0 {
			lr *= float64(p.EncoderWidth) / float64(config.Of[Model](c).DModel)
		}
		if p.EncoderWarmup > 0 {
			warmup = int(math.Round(p.EncoderWarmup * float64(steps)))
		}
	case s == stageRouter:
		steps, lr, from = p.RouterSteps, p.RouterLR, "router"
	case isTask(s):
		steps, lr, from = taskOf(c, s).Steps, p.AdapterLR, "adapter"
	}
	set := map[string]any{"training.max_steps": steps, "training.learning_rate": lr}
	if warmup != c.Training.WarmupSteps {
		set["training.warmup_steps"] = warmup
	}
	for key, v := range set {
		if err := c.Derive(key, fmt.Sprint(v), "section phases, "+from); err != nil {
			r.Error("phases.stage", "%v", err)
		}
	}
}

// followed reports whether the value of a key was derived in an effective configuration (which names the
// stage) from a setting that a flag has changed since.
func followed(c *config.Config, key, follows string) bool {
	own, _ := c.Origin(key)
	stage, _ := c.Origin("phases.stage")
	other, _ := c.Origin(follows)
	return own.Kind == config.File && stage.Kind == config.File && own.Name == stage.Name && other.Kind == config.Flag
}

// These are the defaults of settings that each phase has separately; see [config.Training].
const (
	defaultSteps = 1000
	defaultLR    = 3e-4
)
