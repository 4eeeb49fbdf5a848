package system

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train/checkpoint"
)

// LoRA is the section "lora" of systems whose model starts from a folder.
type LoRA struct {
	Targets       []string `key:"targets" help:"linear layers that get adapters, all other weights stay as they are: by the last part of their names (q_proj), a pattern of the whole name (*.mlp.*), or all-linear; empty: all weights are trained, without adapters"`
	Rank          int      `key:"rank" min:"1" of:"width" help:"rank of an adapter"`
	Alpha         float64  `key:"alpha" above:"0" help:"an adapter is multiplied by alpha / rank; of rslora by alpha / the root of the rank"`
	Dropout       float64  `key:"dropout" min:"0" below:"1" help:"share dropped of what adapters read"`
	Variant       string   `key:"variant" enum:"lora,rslora,dora" help:"rslora: scaled for high ranks; dora: with a trained magnitude of each row"`
	ModulesToSave []string `key:"modules_to_save" help:"layers trained as a whole, named like lora.targets"`
	Folder        string   `key:"folder" help:"adapter in PEFT's layout to start from, of the same rank and variant; empty: a new one"`
}

// DefaultLoRA are the settings of adapters, where there are some.
var DefaultLoRA = LoRA{Rank: 16, Alpha: 32, Variant: string(nn.PlainLoRA)}

// Adapters are those of the configuration; nil: all weights are trained.
func (l *LoRA) Adapters(seed uint64) *nn.Adapters {
	if len(l.Targets) == 0 {
		return nil
	}
	return &nn.Adapters{
		LoRA:    nn.LoRA{Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, Seed: seed, Variant: nn.LoRAVariant(l.Variant)},
		Targets: l.Targets, Trained: l.ModulesToSave,
	}
}

// Check reports what does not go together.
func (l *LoRA) Check(c *config.Config, r *config.Report) {
	if len(l.Targets) == 0 {
		for _, key := range []string{"rank", "alpha", "dropout", "variant", "modules_to_save", "folder"} {
			if o, _ := c.Origin("lora." + key); o.Kind == config.Flag {
				r.Error("lora."+key, "does nothing without lora.targets: name the layers to adapt, or all-linear")
			}
		}
		return
	}
	if c.Training.MasterWeights != "fp32" {
		r.Error("training.master_weights", "want fp32 with lora.targets: what is trained is small, got %s", c.Training.MasterWeights)
	}
}

// Train is tr with the model adapted and frozen matrices stored as d; see
// [graph.State.FrozenAs].
func (l *LoRA) Train(tr engine.Training, seed uint64, d graph.DType) engine.Training {
	a := l.Adapters(seed)
	if a == nil {
		return tr
	}
	model := tr.Model
	tr.Frozen = d
	tr.Model = func(b *graph.Builder, mode engine.Mode) (o engine.Objective) {
		a.Build(b, mode.Train, func() { o = model(b, mode) })
		return o
	}
	return tr
}

// Least is what training needs at the least where weights are frozen, matrices stored as d.
func (l *LoRA) Least(parts plan.Least, d graph.DType) plan.Least {
	if len(l.Targets) == 0 {
		return parts
	}
	for i := range parts {
		if parts[i].Of == plan.Trained {
			parts[i].Of = plan.Frozen
			parts[i].Each = map[graph.DType]float64{graph.BF16: 2, graph.F16: 2, graph.Int8: 1, graph.NF4: 0.5}[d]
		}
	}
	return parts
}

// AdaptersReached is [Model.AllReached] of adapters: A has no gradient before B has a
// value, and the first update of a warm-up changes nothing.
const AdaptersReached = 3

// AllReached is [Model.AllReached].
func (l *LoRA) AllReached() int64 {
	if len(l.Targets) == 0 {
		return 0
	}
	return AdaptersReached
}

// IsNew reports whether a weight is an adapter's, which no model folder has.
func IsNew(weight string) bool {
	_, _, ok := nn.AdapterOf(weight)
	return ok
}

// Start gives the adapters of a loaded program their first values, once it has those of
// the folder dir: magnitudes are the norms of the rows, and what lora.folder has is
// copied.
func (l *LoRA) Start(x *engine.Executable, dir string, log func(string, ...any)) error {
	if len(l.Targets) == 0 {
		return nil
	}
	if l.Variant == string(nn.Decomposed) {
		f, err := hf.ReadConfig(dir)
		if err != nil {
			return err
		}
		if err := magnitudes(x, f.InOut()); err != nil {
			return err
		}
	}
	if l.Folder == "" {
		return nil
	}
	return l.copyFolder(x, log)
}

func magnitudes(x *engine.Executable, inOut bool) error {
	for _, s := range x.Program().States {
		layer, _, ok := nn.AdapterOf(s.Name)
		if _, _, magnitude := nn.AdapterNames(layer); !ok || s.Role != graph.Weight || s.Name != magnitude {
			continue
		}
		w, err := x.State(layer + ".weight")
		if err == nil {
			err = x.SetFloats(s.Name, nn.RowNorms(w.Floats(), s.Type.Shape[0], inOut))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFolder copies the adapter in lora.folder.
func (l *LoRA) copyFolder(x *engine.Executable, log func(string, ...any)) (err error) {
	a, w, err := hf.ReadAdapter(l.Folder)
	if err != nil {
		return fmt.Errorf("lora.folder: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if a.Rank != l.Rank || a.Variant != nn.LoRAVariant(l.Variant) || a.Alpha != l.Alpha {
		return fmt.Errorf("lora.folder: %s has rank %d, alpha %v and variant %s, the configuration %d, %v and %s: set lora.rank, lora.alpha and lora.variant to the former",
			l.Folder, a.Rank, a.Alpha, a.Variant, l.Rank, l.Alpha, l.Variant)
	}
	wanted := map[string]bool{}
	for _, s := range x.Program().States {
		if s.Role == graph.Weight {
			wanted[s.Name] = true
		}
	}
	for _, info := range w.Tensors() {
		if !wanted[info.Name] {
			return fmt.Errorf("lora.folder: %s has %s, which is not trained here: want the lora.targets and lora.modules_to_save that it was trained with", l.Folder, info.Name)
		}
		delete(wanted, info.Name)
		t, err := w.Tensor(info.Name)
		if err == nil {
			err = t.Finite()
		}
		if err == nil {
			err = x.ChangeState(info.Name, t.Float32s)
		}
		if err != nil {
			return fmt.Errorf("lora.folder: %w", err)
		}
	}
	for name := range wanted {
		return fmt.Errorf("lora.folder: %s lacks %s, which is trained here: want the lora.targets and lora.modules_to_save that it was trained with", l.Folder, name)
	}
	log("lora.folder: loaded %d weights", len(w.Tensors()))
	return nil
}

// BaseFile is the file of a checkpoint that identifies the weights that adapters belong
// to, by [FolderPrint].
const BaseFile = "base.txt"

// SameBase refuses a folder other than the one that a checkpoint's adapters belong to.
func SameBase(checkpoint, folder string) error {
	was, err := regular.Read(filepath.Join(checkpoint, BaseFile), 1<<10)
	if err != nil {
		return err
	}
	now, err := FolderPrint(folder)
	if err != nil {
		return err
	}
	if now != string(was) {
		return OtherBase(folder)
	}
	return nil
}

// OtherBase is the error about a folder that has other weights than a run began with.
func OtherBase(folder string) error {
	return fmt.Errorf("model.folder: the weights in %s are not those that the adapters were trained on: restore them, or name the folder that has them", folder)
}

// ReadableWeights are weights by name, and whether there are some of a name.
type ReadableWeights interface {
	hf.Weights
	Has(name string) bool
}

// OpenWeights opens the weights of the checkpoint in dir; those of a run with adapters
// are the folder's with the adapters merged, frozen as in [hf.Config.OpenAdapted].
func (l *LoRA) OpenWeights(dir, folder string, frozen graph.DType) (ReadableWeights, error) {
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil || len(l.Targets) == 0 {
		return w, err
	}
	merged, err := l.merge(w, dir, folder, frozen)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return merged, nil
}

func (l *LoRA) merge(w *safetensors.File, dir, folder string, frozen graph.DType) (ReadableWeights, error) {
	f, err := hf.ReadConfig(folder)
	if err != nil {
		return nil, fmt.Errorf("the weights that were adapted: %w", err)
	}
	if err := SameBase(dir, folder); err != nil {
		return nil, err
	}
	m, err := f.OpenAdapted(folder, w, l.Adapters(0).LoRA, frozen)
	if err != nil {
		return nil, err
	}
	return &mergedWeights{m.(ReadableWeights), w}, nil
}

// mergedWeights close the checkpoint's file too.
type mergedWeights struct {
	ReadableWeights
	trained *safetensors.File
}

// Close implements [hf.Weights].
func (m *mergedWeights) Close() error {
	return errors.Join(m.ReadableWeights.Close(), m.trained.Close())
}

// ExportAdapter writes the adapters of the checkpoint in dir in PEFT's layout, which names
// the folder that they belong to.
func (l *LoRA) ExportAdapter(dir, folder, to string) (files []string, err error) {
	f, err := hf.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	if err := SameBase(dir, folder); err != nil {
		return nil, err
	}
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return f.WriteAdapter(to, l.Adapters(0), folder, w)
}
