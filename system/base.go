package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Base holds the weights that training starts from: a model folder or a checkpoint of the same system. Its
// folder also has the tokenizer.
type Base struct {
	Dir string // empty: random weights
	// Options says how a model folder may differ from the model.
	Options hf.LoadOptions
	// Elsewhere, if set, reports weights that come from other folders named by the model, so no run has them.
	Elsewhere func(weight string) bool
}

// isFile reports whether the folder dir has a file called name.
func isFile(dir, name string) bool {
	st, err := os.Stat(filepath.Join(dir, name))
	return err == nil && st.Mode().IsRegular()
}

// isRun reports whether dir is a run or one of its checkpoints, and not a model folder.
func isRun(dir string) bool {
	return dir != "" && !isFile(dir, hf.ConfigFile) && isFile(dir, checkpoint.ConfigFile)
}

// IsRun reports whether the base is a run or one of its checkpoints, which only snug loads.
func (b Base) IsRun() bool { return isRun(b.Dir) }

// FollowRun copies the section "model" from the run or checkpoint in FolderKey to the configuration, except
// the keys in own, which are settings of training. It returns false if folder is neither. It replaces a run
// with the checkpoint that represents it. sections returns the sections of the system.
func FollowRun(c *config.Config, r *config.Report, folder *string, sections func() []config.Section, own ...string) bool {
	if !isRun(*folder) {
		return false
	}
	followRun(c, r, folder, "a model folder, or a run", sections, nil, own)
	return true
}

// FollowOnlyRun is [FollowRun] for a system whose models have no Hugging Face layout. An empty folder means
// no base. It also copies the keys in also.
func FollowOnlyRun(c *config.Config, r *config.Report, folder *string, sections func() []config.Section, also []string, own ...string) {
	switch {
	case *folder == "":
	case !isRun(*folder):
		r.Error(FolderKey, "want a run or a checkpoint of the system %s: %s has no %s", c.System, *folder, checkpoint.ConfigFile)
	default:
		followRun(c, r, folder, "a run or a checkpoint", sections, also, own)
	}
}

func followRun(c *config.Config, r *config.Report, folder *string, want string, sections func() []config.Section, also, own []string) {
	file := filepath.Join(*folder, checkpoint.ConfigFile)
	base, err := config.Load(config.Sources{Systems: []config.System{{Name: c.System, Sections: sections}}, File: file})
	if err == nil && len(config.Of[LoRA](base).Targets) > 0 {
		err = fmt.Errorf("%s has adapters alone: name the folder of a merged export (snug export --merge)", *folder)
	}
	var chosen *checkpoint.Chosen
	if err == nil {
		chosen, err = checkpoint.Choose(*folder, "")
	}
	if err != nil {
		r.Error(FolderKey, "want %s of the system %s: %v", want, c.System, err)
		return
	}
	var facts []config.Fact
	for _, v := range base.Values() {
		name, ok := strings.CutPrefix(v.Key, "model.")
		if ok && v.Key != FolderKey && v.Key != baseWeightsKey && !slices.Contains(own, name) || slices.Contains(also, v.Key) {
			text := v.Text
			if unquoted, err := strconv.Unquote(text); err == nil {
				text = unquoted
			}
			facts = append(facts, config.Fact{Key: v.Key, Value: text})
		}
	}
	r.Follow(FolderKey, checkpoint.ConfigFile, facts)
	*folder = chosen.Path
}

// Load copies the weights, except those of adapters, into a loaded program. It is an error if the base lacks
// a frozen weight, because that weight would stay random.
func (b Base) Load(x *engine.Executable, log func(string, ...any)) (err error) {
	if b.Dir == "" {
		return nil
	}
	if !b.IsRun() {
		o := b.Options
		o.New = IsNew
		return LoadFolder(x, b.Dir, o, log)
	}
	c, err := checkpoint.Load(b.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", FolderKey, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var own []*graph.State
	for _, s := range x.Program().States {
		if slices.Contains([]graph.Role{graph.Weight, graph.Frozen, graph.Buffer}, s.Role) && !IsNew(s.Name) && (b.Elsewhere == nil || !b.Elsewhere(s.Name)) {
			own = append(own, s)
		}
	}
	missing, err := CopyStates(c, own, x.ChangeState)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s lacks %s and %d more: want a checkpoint of this model", c.Path, missing[0].Name, len(missing)-1)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", FolderKey, err)
	}
	log("%s: loaded %s of update %d", FolderKey, size.Of(len(own), "weight"), c.State.Update)
	return nil
}

// CopyStates copies the states that a checkpoint holds, and returns the others.
func CopyStates(c *checkpoint.Checkpoint, states []*graph.State, change hf.Change) (missing []*graph.State, err error) {
	for _, s := range states {
		name := s.SavedName(c.Weights.Has)
		if !c.Weights.Has(name) {
			missing = append(missing, s)
			continue
		}
		x, err := c.Weights.Tensor(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Path, err)
		}
		if !slices.Equal(x.Shape, s.Type.Shape) {
			return nil, fmt.Errorf("%s: tensor %s is %v, this program has %v: the configuration is not the one that it was trained with", c.Path, name, x.Shape, s.Type.Shape)
		}
		err = change(s.Name, x.Float32s)
		x.Release()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return missing, nil
}

// inOut reports whether the weights of linear layers are stored as [in, out].
func (b Base) inOut() (bool, error) {
	if b.Dir == "" || isRun(b.Dir) {
		return false, nil
	}
	f, err := hf.ReadConfig(b.Dir)
	if err != nil {
		return false, err
	}
	return f.InOut(), nil
}

// open opens the weights, replacing those that were trained.
func (b Base) open(a *hf.Adapted) (hf.Weights, error) {
	if isRun(b.Dir) {
		w, err := safetensors.Open(filepath.Join(b.Dir, checkpoint.WeightsFile))
		if err != nil {
			return nil, err
		}
		return a.Open(w, b.Dir)
	}
	f, err := hf.ReadConfig(b.Dir)
	if err != nil {
		return nil, fmt.Errorf("the weights that were adapted: %w", err)
	}
	return a.OpenFolder(f, b.Dir, b.Options)
}
