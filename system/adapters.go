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
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train/checkpoint"
)

// LoRA is the section "lora" of systems whose models start from trained weights ([Base]).
type LoRA struct {
	Targets       []string `key:"targets" help:"linear layers that get adapters, all other weights stay as they are: by the last part of their names (q_proj), a pattern of the whole name (*.mlp.*), a regular expression of it as PEFT has them (.*[.](q|v)_proj), or all-linear; empty: all weights are trained, without adapters"`
	Rank          int      `key:"rank" min:"1" of:"width" help:"rank of an adapter"`
	Alpha         float64  `key:"alpha" above:"0" help:"an adapter is multiplied by alpha / rank; of rslora by alpha / the root of the rank"`
	Dropout       float64  `key:"dropout" min:"0" below:"1" help:"share dropped of what adapters read"`
	Variant       string   `key:"variant" enum:"lora,rslora,dora" help:"rslora: scaled for high ranks; dora: with a trained magnitude of each row"`
	ModulesToSave []string `key:"modules_to_save" help:"layers that are trained as a whole and have no adapters, named like lora.targets; a scope (classifier) is all that is in it"`
	Folder        string   `key:"folder" help:"adapter in PEFT's layout to start from, of the same rank and variant; empty: a new one"`
}

// DefaultLoRA holds the default settings of adapters.
var DefaultLoRA = LoRA{Rank: 16, Alpha: 32, Variant: string(nn.PlainLoRA)}

// BaseWeights is the part of the section "model" that sets the format of frozen weights.
type BaseWeights struct {
	Format string `key:"base_weights" enum:"fp32,fp16,bf16,int8,nf4" help:"how frozen matrices are kept with lora.targets; fp16, bf16: half the memory, rounded unless they are so already; int8, nf4: linear layers in 8 or 4 bits, the rest in bf16"`
}

const baseWeightsKey = "model.base_weights"

// fp32 is the value of model.base_weights that keeps weights in their format.
const fp32 = "fp32"

// DefaultBaseWeights keeps frozen weights in their format.
var DefaultBaseWeights = BaseWeights{fp32}

// frozenFormats maps the values of model.base_weights to the formats of frozen matrices.
var frozenFormats = map[string]graph.DType{fp32: graph.Invalid, "fp16": graph.F16, "bf16": graph.BF16, "int8": graph.Int8, "nf4": graph.NF4}

// DType returns the format for [graph.State.FrozenAs].
func (w BaseWeights) DType() graph.DType { return frozenFormats[w.Format] }

// Merged returns the format of weights with adapters merged. If w is a quantized format, it is the original
// format of the base.
func (w BaseWeights) Merged() graph.DType {
	if d := w.DType(); !d.Quantized() {
		return d
	}
	return graph.Invalid
}

// Smaller returns changes to formats with fewer bits than w, for [System.Smaller]. Without adapters there are
// none.
func (l *LoRA) Smaller(w BaseWeights, model func(w BaseWeights) (*Model, error)) (list []Change) {
	if len(l.Targets) == 0 {
		return nil
	}
	formats := []string{"bf16", "fp16", "int8", "nf4"}
	switch w.Format {
	case "fp16", "bf16":
		formats = formats[2:]
	case "int8":
		formats = formats[3:]
	case "nf4":
		formats = nil
	}
	for _, name := range formats {
		list = append(list, Change{Settings: baseWeightsKey + ": " + name, Model: func() (*Model, error) { return model(BaseWeights{name}) }})
	}
	return list
}

// Adapters returns the configured adapters; nil means that all weights are trained.
func (l *LoRA) Adapters(seed uint64) *nn.Adapters {
	if len(l.Targets) == 0 {
		return nil
	}
	return &nn.Adapters{
		LoRA:    nn.LoRA{Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, Seed: seed, Variant: nn.LoRAVariant(l.Variant)},
		Targets: l.Targets, Trained: l.ModulesToSave,
	}
}

// Check reports settings that contradict each other.
func (l *LoRA) Check(c *config.Config, r *config.Report) {
	if len(l.Targets) == 0 {
		for _, key := range []string{"rank", "alpha", "dropout", "variant", "modules_to_save", "folder"} {
			if o, _ := c.Origin("lora." + key); o.Kind == config.Flag {
				r.Error("lora."+key, "does nothing without lora.targets: name the layers to adapt, or all-linear")
			}
		}
		if _, ok := c.Origin(baseWeightsKey); ok && config.Of[BaseWeights](c).Format != fp32 {
			r.Error(baseWeightsKey, "want fp32 without lora.targets: no weight is frozen")
		}
		return
	}
	if c.Training.MasterWeights != "fp32" {
		r.Error("training.master_weights", "want fp32 with lora.targets: what is trained is small, got %s", c.Training.MasterWeights)
	}
}

// Missing rejects adapters without a folder, because they would be trained on random weights.
func (l *LoRA) Missing(folder string) error {
	if len(l.Targets) > 0 && folder == "" {
		return errors.New("--model.folder: want the model folder or the run whose weights lora.targets adapts")
	}
	return nil
}

// MissingRun is Missing for a system whose base must be a run.
func (l *LoRA) MissingRun(folder string) error {
	if len(l.Targets) > 0 && folder == "" {
		return errors.New("--model.folder: want the run or the checkpoint whose weights lora.targets adapts")
	}
	return nil
}

// Train returns tr with the model adapted and frozen matrices stored as d; see [graph.State.FrozenAs].
func (l *LoRA) Train(tr engine.Training, seed uint64, d graph.DType) engine.Training {
	return Adapt(tr, l.Adapters(seed), d)
}

// Adapt is [LoRA.Train] with adapters from [LoRA.Adapters]; nil means none.
func Adapt(tr engine.Training, a *nn.Adapters, d graph.DType) engine.Training {
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

// LeastFrozen is Least for a system that stores all frozen weights as fp32.
func (l *LoRA) LeastFrozen(parts plan.Least) plan.Least {
	if len(l.Targets) == 0 {
		return parts
	}
	for i := range parts {
		if parts[i].Of == plan.Trained {
			parts[i].Of = plan.Frozen
		}
	}
	return parts
}

// Least returns the minimum that training needs if weights are frozen and matrices stored as d.
func (l *LoRA) Least(parts plan.Least, d graph.DType) plan.Least {
	if len(l.Targets) == 0 {
		return parts
	}
	for i := range parts {
		if parts[i].Of == plan.Trained {
			parts[i].Of = plan.Frozen
			parts[i].Each = map[graph.DType]float64{graph.BF16: 2, graph.F16: 2, graph.Int8: 1, graph.NF4: 0.5}[d]
			if d != graph.NF4 {
				parts[i].Keys += ", or model.base_weights (nf4 takes the least)"
			}
		}
	}
	return parts
}

// AdaptersReached is [Model.AllReached] with adapters. Matrix A has no gradient until B is nonzero, and the
// first update of a warm-up changes nothing.
const AdaptersReached = 3

// AllReached returns [Model.AllReached].
func (l *LoRA) AllReached() int64 {
	if len(l.Targets) == 0 {
		return 0
	}
	return AdaptersReached
}

// IsNew reports whether a weight belongs to an adapter, so that no model folder has it.
func IsNew(weight string) bool {
	_, _, ok := nn.AdapterOf(weight)
	return ok
}

// Start initializes the adapters of a loaded program after the weights of base were loaded: it sets the
// magnitudes to the norms of the rows and copies the adapter in lora.folder.
func (l *LoRA) Start(x *engine.Executable, base Base, log func(string, ...any)) error {
	if len(l.Targets) == 0 {
		return nil
	}
	if l.Variant == string(nn.Decomposed) {
		inOut, err := base.inOut()
		if err != nil {
			return err
		}
		if err := magnitudes(x, inOut); err != nil {
			return err
		}
	}
	if l.Folder == "" {
		return nil
	}
	return l.copyFolder(x, log)
}

// Begin is [Run.Load] for a system whose training starts from base, or from random weights.
func (l *LoRA) Begin(x *engine.Executable, base Base, log func(string, ...any)) error {
	if err := base.Load(x, log); err != nil {
		return err
	}
	return l.Start(x, base, log)
}

// Attach makes the checkpoints of a run record which base weights its adapters belong to. It does not compute
// the identity again if the run's files already contain [BaseFile].
func (l *LoRA) Attach(run *Run, base Base) error {
	if len(l.Targets) == 0 {
		return nil
	}
	if run.Files[BaseFile] == nil {
		id, err := FolderPrint(base.Dir)
		if err != nil {
			return err
		}
		if run.Files == nil {
			run.Files = map[string][]byte{}
		}
		run.Files[BaseFile] = []byte(id)
	}
	run.Belongs = func(dir string) error { return SameBase(dir, base.Dir) }
	return nil
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
		if s.Role == graph.Weight || s.Role == graph.Buffer {
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
	log("lora.folder: loaded %s", size.Of(len(w.Tensors()), "weight"))
	return nil
}

// BaseFile is the file of a checkpoint that identifies the weights its adapters belong to, by [FolderPrint].
const BaseFile = "base.txt"

// HasBase reports whether the checkpoint in dir has adapters, which belong to weights elsewhere.
func HasBase(dir string) bool { return isFile(dir, BaseFile) }

// SameBase rejects a folder other than the one that a checkpoint's adapters belong to.
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

// OtherBase returns the error for a folder whose weights differ from those that a run started with.
func OtherBase(folder string) error {
	return fmt.Errorf("model.folder: the weights in %s are not those that the adapters were trained on: restore them, or name the folder that has them", folder)
}

// ReadableWeights reads weights by name and reports which names exist.
type ReadableWeights interface {
	hf.Weights
	Has(name string) bool
}

// OpenWeights opens the weights of the checkpoint in dir. If the run has adapters, it merges them into the
// weights of base, which were frozen as [hf.Adapted] describes. model builds the model without adapters.
func (l *LoRA) OpenWeights(dir string, base Base, frozen graph.DType, model func(b *graph.Builder)) (ReadableWeights, error) {
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil || len(l.Targets) == 0 {
		return w, err
	}
	merged, err := l.merge(w, dir, base, frozen, model)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return merged, nil
}

func (l *LoRA) merge(w *safetensors.File, dir string, base Base, frozen graph.DType, model func(b *graph.Builder)) (ReadableWeights, error) {
	if err := SameBase(dir, base.Dir); err != nil {
		return nil, err
	}
	b := graph.NewBuilder("weights")
	if err := graph.Catch(func() { model(b) }); err != nil {
		return nil, err
	}
	a := hf.Adapted{Trained: w, LoRA: l.Adapters(0).LoRA, Frozen: frozen}
	for _, v := range b.F.States {
		a.States = append(a.States, v.State)
	}
	m, err := base.open(&a)
	if err != nil {
		return nil, err
	}
	return &mergedWeights{m.(ReadableWeights), w}, nil
}

// mergedWeights also closes the file of the checkpoint.
type mergedWeights struct {
	ReadableWeights
	trained *safetensors.File
}

// Close implements [hf.Weights].
func (m *mergedWeights) Close() error {
	return errors.Join(m.ReadableWeights.Close(), m.trained.Close())
}

// ExportAdapter writes the adapters of the checkpoint in dir in PEFT's layout, which names the folder of
// their base. f describes the model to transformers.
func (l *LoRA) ExportAdapter(dir string, base Base, f *hf.Config, to string) (files []string, err error) {
	return l.exportAdapter(dir, base, func(a *nn.Adapters, w hf.Source) ([]string, error) { return f.WriteAdapter(to, a, base.Dir, w) })
}

// ExportOwn is ExportAdapter for a model without a class in transformers. Module names are those of the
// adapted run. Without adapters there is nothing to export.
func (l *LoRA) ExportOwn(dir string, base Base, to string) (files []string, err error) {
	if len(l.Targets) == 0 {
		return nil, fmt.Errorf("%s has no adapters, and transformers has no class for its model: want a run with lora.targets, or use the checkpoint itself", dir)
	}
	return l.exportAdapter(dir, base, func(a *nn.Adapters, w hf.Source) ([]string, error) {
		return hf.WriteAdapter(to, a, hf.AdapterBase{Folder: base.Dir}, w)
	})
}

func (l *LoRA) exportAdapter(dir string, base Base, write func(a *nn.Adapters, w hf.Source) ([]string, error)) (files []string, err error) {
	if err := SameBase(dir, base.Dir); err != nil {
		return nil, err
	}
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return write(l.Adapters(0), w)
}
