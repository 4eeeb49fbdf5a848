package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/internal/size"
)

// Report collects the faults found by checks between keys.
type Report struct {
	config   *Config
	problems *problems
}

// Error reports a fault of a key, at the place where its value came from.
func (r *Report) Error(path, format string, args ...any) {
	r.problems.add(r.origin(path), path, format, args...)
}

// Warn reports something that is allowed but probably not intended.
func (r *Report) Warn(path, format string, args ...any) {
	r.warnAt(r.origin(path), path, format, args...)
}

func (r *Report) warnAt(o Origin, path, format string, args ...any) {
	r.config.Warnings = append(r.config.Warnings, Problem{o, path, fmt.Sprintf(format, args...)})
}

func (r *Report) origin(path string) Origin {
	o, ok := r.config.Origin(path)
	if !ok {
		panic("config: report about the key " + path + ", which does not exist")
	}
	return o
}

// NoPrefetch rejects a value of data.prefetch, because a loader that reads straight into the program's inputs
// has no queue of updates.
func (r *Report) NoPrefetch(what string) {
	if n := r.config.Data.Prefetch; n != DefaultPrefetch {
		r.Error("data.prefetch", "%s are read straight into the two input buffers of the program, one micro-batch ahead, so %d updates cannot be kept: leave the key out", what, n)
	}
}

// checkCommon checks what the tags of the common sections cannot express.
func (c *Config) checkCommon(r *Report, needData bool) {
	t, d := &c.Training, &c.Data
	if !validDevice(c.Hardware.Device) {
		r.Error("hardware.device", "want auto, cpu, cuda, cuda:N or reference, got %s", quote(c.Hardware.Device))
	}
	if !validExchange(c.Hardware.Exchange) {
		r.Error("hardware.exchange", "want tcp, auto, mpi, nccl, or mpi:PATH or nccl:PATH of a library, got %s", quote(c.Hardware.Exchange))
	}
	if needData && len(d.Source) == 0 && d.Format != "gotree" {
		r.Error("data.source", "want at least one file, folder or glob pattern: name yours with --data.source")
	}
	if len(d.Source) > 0 && d.Format == "gotree" {
		r.Error("data.source", "data.format gotree reads the Go installation: remove the source or choose another format")
	}
	if t.EvalSteps == 0 {
		if t.LRScheduler == "plateau" {
			r.Error("training.lr_scheduler", "plateau follows the evaluations: set training.eval_steps")
		}
		if t.EarlyStoppingPatience > 0 {
			r.Error("training.early_stopping_patience", "early stopping follows the evaluations: set training.eval_steps")
		}
	}
	c.checkTracking(r)
	c.checkDiLoCo(r)
	c.checkIdle(r)
	if len(d.Validation) > 0 {
		c.checkValidation(r)
	}
	if !d.HoldsOut() && (t.LRScheduler == "plateau" || t.EarlyStoppingPatience > 0) {
		r.Error("data.held_out_fraction", "nothing is held out, but plateau and early stopping follow the held-out loss")
	}
	if n := t.CheckpointSlices; n > 0 {
		switch t.GradientCheckpointing {
		case "auto":
			c.derive(r, "training.gradient_checkpointing", "slices", "training.checkpoint_slices")
		case "slices":
		default:
			r.Warn("training.checkpoint_slices", "%d parts are those of training.gradient_checkpointing: slices, which is %s: they have no effect", n, t.GradientCheckpointing)
		}
	}
	if share := float64(t.WarmupSteps) / float64(t.MaxSteps); share > 0.2 && t.LRScheduler != "noam" {
		r.Warn("training.warmup_steps", "warm-up takes %.0f %% of the %s (training.max_steps); 1 to 10 %% is usual", 100*min(share, 1), size.Of(t.MaxSteps, "update"))
	}
	if k := c.byPath["model.max_seq_len"]; k != nil && k.value.CanInt() && d.SeqLen == 0 {
		c.derive(r, "data.seq_len", strconv.FormatInt(k.value.Int(), 10), "model.max_seq_len")
	} else if k != nil && k.value.CanInt() && int64(d.SeqLen) > k.value.Int() {
		r.Error("data.seq_len", "want at most model.max_seq_len (%d), got %d", k.value.Int(), d.SeqLen)
	} else if k != nil && k.value.CanInt() && int64(d.SeqLen) < k.value.Int() {
		// A user who asks for more positions may expect longer rows.
		if rows := r.origin("data.seq_len"); (k.origin.Kind == File || k.origin.Kind == Flag) && rows.Kind < k.origin.Kind {
			r.Warn("model.max_seq_len", "rows stay at data.seq_len (%d, %v): give --data.seq_len %d too if they are to be as long", d.SeqLen, rows, k.value.Int())
		}
	}
	// The counters of a run (updates, micro-batches, sequences, tokens) are int64.
	if most := size.Product(t.MaxSteps, t.GradientAccumulationSteps, t.BatchSize, max(d.SeqLen, 1)); most > mostTokens {
		r.Error("training.max_steps", "%d updates of %d x %d sequences (training.gradient_accumulation_steps, training.batch_size) of %d tokens (data.seq_len) are more than the limit of %.0e in a run", t.MaxSteps, t.GradientAccumulationSteps, t.BatchSize, max(d.SeqLen, 1), float64(mostTokens))
	}
	if d.ShuffleSeed == 0 {
		c.derive(r, "data.shuffle_seed", strconv.FormatUint(t.Seed, 10), "training.seed")
	}
}

// checkDiLoCo rejects what processes that train on their own cannot do.
func (c *Config) checkDiLoCo(r *Report) {
	t := &c.Training
	d := &t.DiLoCo
	if d.InnerSteps == 0 {
		return
	}
	for _, x := range []struct {
		key, does string
		every     int
	}{{"training.eval_steps", "evaluates", t.EvalSteps}, {"training.save_steps", "saves", t.SaveSteps}} {
		if why := d.Between(int64(x.every)); why != "" {
			r.Error(x.key, "%s every %d updates, but %s", x.does, x.every, why)
		}
	}
	const own = "with training.diloco.inner_steps"
	if t.Zero > 0 {
		r.Error("training.zero", "processes that train on their own, "+own+", each need a whole optimizer: want 0")
	}
	if t.GradientExchange != "fp32" {
		r.Error("training.gradient_exchange", own+" no gradients are exchanged: want fp32, and training.diloco.exchange: int8 to send less")
	}
	if t.GradientSums != "ordered" {
		r.Error("training.gradient_sums", own+" no gradients are exchanged: omit it")
	}
	if t.MasterWeights != "fp32" {
		r.Error("training.master_weights", own+" processes exchange what weights changed by, which takes more bits than 16: want fp32")
	}
	if t.GradientDtype != "fp32" {
		r.Error("training.gradient_dtype", own+" the memory of gradients holds what weights changed by, which takes more bits than 16: want fp32")
	}
}

// checkValidation lets named files replace a held-out share.
func (c *Config) checkValidation(r *Report) {
	d := &c.Data
	if d.SplitBy == "end" {
		r.Error("data.split_by", "end holds out the end of each document, but data.validation names held-out files: omit one of them")
	}
	// A recorded configuration contains the default explicitly.
	from, usual := r.origin("data.held_out_fraction"), defaults()
	if share := d.HeldOutFraction; (from.Kind == File || from.Kind == Flag) && share != 0 && share != usual.Data.HeldOutFraction {
		if from.Kind == File && r.origin("data.validation").Kind == Flag {
			r.Error("data.validation", "%v of data.source is held out already (data.held_out_fraction in %v): add --data.held_out_fraction 0 to use these files instead", share, from)
			return
		}
		r.Error("data.held_out_fraction", "%v of data.source is to be held out, but data.validation names held-out files: omit one of them", share)
		return
	}
	c.derive(r, "data.held_out_fraction", "0", "data.validation")
}

// derive sets an open value. If that is out of range, the fault lies with the other key.
func (c *Config) derive(r *Report, path, text, from string) {
	if err := c.Derive(path, text, from); err != nil {
		r.Error(from, "gives %s an impossible value: %v", path, err)
	}
}

// mostTokens is the most a run may read: a trillion tokens a day for 2,700 years.
const mostTokens = int64(1e18)

// validExchange reports whether s is a valid hardware.exchange.
func validExchange(s string) bool {
	engine, path, named := strings.Cut(s, ":")
	if named {
		return path != "" && (engine == "mpi" || engine == "nccl")
	}
	return engine == "tcp" || engine == "auto" || engine == "mpi" || engine == "nccl"
}

func validDevice(s string) bool {
	if n, ok := strings.CutPrefix(s, "cuda:"); ok {
		_, err := strconv.ParseUint(n, 10, 16)
		return err == nil
	}
	return s == "auto" || s == "cpu" || s == "reference" || s == "cuda"
}
