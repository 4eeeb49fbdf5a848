package dynamo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// folder returns the name of a stage's run directory, below that of the whole training.
func folder(stage string) string {
	switch stage {
	case stageEncoder:
		return "phase0-encoder"
	case stageRouter:
		return "phase2-router"
	case stageJoint:
		return "phase3-joint"
	}
	return "phase1-" + stage
}

// phaseFolders returns the folders of the phases, the last one first.
func phaseFolders(c *config.Config) []string {
	out := []string{folder(stageJoint), folder(stageRouter)}
	for _, name := range slices.Backward(config.Of[Model](c).Tasks) {
		out = append(out, folder(name))
	}
	return append(out, folder(stageEncoder))
}

// phases returns the runs of a configuration.
func phases(c *config.Config, dir string) []system.Phase {
	p, m := config.Of[Phases](c), config.Of[Model](c)
	if p.Stage != "" {
		return nil
	}
	var out []system.Phase
	r := readiness{c, dir}
	add := func(number, stage, title string, ready func() error, uses ...string) *system.Phase {
		x := system.Phase{
			Name: folder(stage), Title: title, Ready: ready, HeldOut: heldOut(c, stage), Skip: p.Run != "all" && p.Run != number,
			Settings: []config.Override{{Key: "phases.stage", Text: stage}},
			Reads:    func(key string) bool { return reads(stage, key) },
		}
		for _, stage := range uses {
			x.Uses = append(x.Uses, folder(stage))
		}
		if m.Folder == "" && stage != stageEncoder {
			x.From = folder(stageEncoder)
		}
		out = append(out, x)
		return &out[len(out)-1]
	}
	if m.Folder == "" {
		add("0", stageEncoder, "the encoder, frozen in later phases", nil)
	}
	for _, name := range m.Tasks {
		add("1", name, "adapter and head of the task "+name, r.encoder).Data = func(ctx context.Context) error { return hasExamples(ctx, c, name) }
	}
	add("2", stageRouter, "the router between the tasks", r.adapters, m.Tasks...)
	add("3", stageJoint, "router, adapters and heads together", r.router, append(slices.Clone(m.Tasks), stageRouter)...)
	return out
}

// heldOut returns the maximum number of texts that a stage is evaluated on; 0 means that it is not
// configured.
func heldOut(c *config.Config, stage string) (n int) {
	for _, name := range config.Of[Model](c).Tasks {
		if stage == name || stage == stageRouter || stage == stageJoint {
			most := taskOf(c, name).HeldOut
			if most == 0 {
				return 0
			}
			n += most
		}
	}
	return n
}

// lengths returns the settings that count updates, and those with which the next phase starts however little
// was learned.
func lengths(c *config.Config) (keys []string, lenient []config.Override) {
	if config.Of[Model](c).Folder == "" {
		keys = append(keys, "phases.encoder_steps")
	}
	for _, name := range config.Of[Model](c).Tasks {
		keys = append(keys, "tasks."+name+".steps")
	}
	keys = append(keys, "phases.router_steps", "phases.joint_steps")
	for _, least := range [][2]string{{"phases.min_encoder_gain", "-100"}, {"phases.min_gain", "-100"}, {"phases.min_routing", "0"}} {
		lenient = append(lenient, config.Override{Key: least[0], Text: least[1], Flag: "--" + least[0]})
	}
	return keys, lenient
}

// reads reports whether a setting affects a stage. A threshold affects the stages that wait for it.
func reads(stage, key string) bool {
	section, rest, _ := strings.Cut(key, ".")
	switch section {
	case "tasks":
		task, what, _ := strings.Cut(rest, ".")
		return task == stage || stage == stageJoint || stage == stageRouter && slices.Contains(ofExamples, what)
	case "router":
		return stage == stageRouter || stage == stageJoint
	case "phases":
		what, _, _ := strings.Cut(rest, "_")
		switch {
		case rest == "min_encoder_gain":
			return stage != stageEncoder
		case rest == "min_gain":
			return stage == stageRouter || stage == stageJoint
		case rest == "min_routing":
			return stage == stageJoint
		case what == "encoder", what == "mask":
			return stage == stageEncoder
		case what == "adapter":
			return isTask(stage)
		case what == "router":
			return stage == stageRouter
		case what == "joint", what == "curriculum":
			return stage == stageJoint
		}
	}
	return true
}

// ofExamples lists the settings of a task that define its examples.
var ofExamples = []string{"train", "validation", "format", "input_field", "output_field", "no_header", "examples", "held_out"}

// fixed reports whether a setting is fixed when a run begins.
func fixed(key string) bool {
	section, rest, _ := strings.Cut(key, ".")
	if section == "tasks" {
		_, what, _ := strings.Cut(rest, ".")
		return !slices.Contains([]string{"steps", "dropout", "beams", "held_out"}, what)
	}
	return key == "router.hidden" || key == "phases.stage"
}

// hasExamples rejects files of a task that cannot be trained on. The Go source tree always has examples, so
// it is only read when a run needs it.
func hasExamples(ctx context.Context, c *config.Config, task string) error {
	if len(taskOf(c, task).Train) == 0 {
		return nil
	}
	_, err := (&reader{config: c, log: func(string, ...any) {}}).texts(ctx, task)
	return err
}

// readiness checks whether the phases before another one are done and good enough.
type readiness struct {
	config *config.Config
	dir    string
}

func (r readiness) encoder() error {
	if config.Of[Model](r.config).Folder != "" {
		return nil
	}
	res, err := readResult(r.dir, stageEncoder)
	if err != nil || res.Metrics == nil { // nothing was held out
		return err
	}
	if p := config.Of[Phases](r.config); res.Gain < p.MinEncoderGain {
		return fmt.Errorf("the encoder predicts held-out tokens with %s %.4g, %.4g better than token frequencies; phases.min_encoder_gain requires %.4g: train it again (--phase 0 --fresh) with a lower phases.encoder_lr (now %v), or longer (--resume with more phases.encoder_steps)",
			res.Goal, res.Value, res.Gain, p.MinEncoderGain, p.EncoderLR)
	}
	return nil
}

func (r readiness) adapters() error {
	p := config.Of[Phases](r.config)
	errs := []error{r.encoder()}
	for _, name := range config.Of[Model](r.config).Tasks {
		res, err := readResult(r.dir, name)
		if err == nil && res.Gain < p.MinGain {
			err = fmt.Errorf("task %s: %s is %.4g, %.4g better than its baseline; phases.min_gain requires %.4g: train it longer (tasks.%s.steps)",
				name, res.Goal, res.Value, res.Gain, p.MinGain, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (r readiness) router() error {
	if err := r.adapters(); err != nil {
		return err
	}
	res, err := readResult(r.dir, stageRouter)
	if err != nil {
		return err
	}
	if p := config.Of[Phases](r.config); res.Value < p.MinRouting {
		return fmt.Errorf("the router finds the task of %.1f %% of the texts, phases.min_routing requires %.1f %%: train it longer (phases.router_steps)", 100*res.Value, 100*p.MinRouting)
	}
	return nil
}

// result is the content of result.json, which a finished phase passes to later ones.
type result struct {
	Stage string `json:"stage"`
	// Update is the update of the checkpoint to use.
	Update int64 `json:"update"`
	// Value is the value of the metric Goal, and Gain how much better it is than the best baseline.
	Goal    string             `json:"goal"`
	Value   float64            `json:"value"`
	Gain    float64            `json:"gain"`
	Metrics map[string]float64 `json:"metrics"`
	// Systems has the score of each task for the ways to dispatch and the baselines, by name; only in phases
	// 2 and 3.
	Systems map[string]map[string]float64 `json:"systems,omitempty"`
}

const resultFile = "result.json"

// readResult returns the result of a stage of the run in dir.
func readResult(dir, stage string) (*result, error) {
	path := filepath.Join(dir, folder(stage), resultFile)
	raw, err := regular.Read(path, regular.Text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not done: %s is missing (train it with --phase %s)", folder(stage), path, folder(stage)[5:6])
	}
	if err != nil {
		return nil, err
	}
	r := &result{}
	if err := strictjson.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// save writes the result to the folder of its run atomically.
func (r *result) save(dir *rundir.Dir) error { return dir.ReplaceJSON(resultFile, r) }

// weights opens the checkpoint that a stage of the run in dir passed on. If from names one, it is the one
// that a later phase was made from.
func weights(dir, stage string, from []checkpoint.Origin) (*checkpoint.Checkpoint, error) {
	for _, o := range from {
		if o.Phase == folder(stage) {
			path, err := o.Find(dir)
			if err != nil {
				return nil, err
			}
			return checkpoint.Load(path)
		}
	}
	r, err := readResult(dir, stage)
	if err != nil {
		return nil, err
	}
	return checkpoint.Load(checkpoint.At(filepath.Join(dir, folder(stage)), r.Update))
}
