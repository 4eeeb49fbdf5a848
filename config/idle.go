package config

import (
	"slices"
	"strings"
	"sync"
)

// usual returns the defaults of the common keys.
var usual = sync.OnceValue(func() map[string]string {
	c := defaults()
	c.bind()
	texts := map[string]string{}
	for _, k := range c.keys {
		texts[k.path] = k.text()
	}
	return texts
})

// given returns the common keys at or below the paths that were set: given as a flag, or with other values than their
// defaults.
func (c *Config) given(paths ...string) (keys []string) {
	for _, k := range c.keys {
		of := func(path string) bool { return k.path == path || strings.HasPrefix(k.path, path+".") }
		if text, common := usual()[k.path]; common && slices.ContainsFunc(paths, of) && (k.origin.Kind == Flag || k.text() != text) {
			keys = append(keys, k.path)
		}
	}
	return keys
}

// Unused rejects common keys, or groups of them, that do nothing for a system; why continues "does nothing for
// NAME, which".
func (r *Report) Unused(why string, paths ...string) {
	for _, key := range r.config.given(paths...) {
		r.Error(key, "does nothing for %s, which %s: remove it", r.config.System, why)
	}
}

// NoSamples rejects settings of samples, unless there are to be none, for a system that generates no text.
func (r *Report) NoSamples(why string) {
	if r.config.Training.Sample.Tokens > 0 {
		r.Unused(why, "training.sample")
	}
}

// checkIdle warns about keys that other keys leave without effect.
func (c *Config) checkIdle(r *Report) {
	t, d, k := &c.Training, &c.Data, &c.Checkpoint
	records := d.Format != "gotree" && d.Format != "text" && d.Format != "npz"
	for _, x := range []struct {
		idle  bool
		why   string
		paths []string
	}{
		{t.LRScheduler != "plateau", "training.lr_scheduler is not plateau", []string{"training.plateau"}},
		{t.LRScheduler == "constant" || t.LRScheduler == "noam", "training.lr_scheduler is " + t.LRScheduler, []string{"training.min_lr_ratio"}},
		{t.EarlyStoppingPatience == 0, "training.early_stopping_patience is 0", []string{"training.early_stopping_min_delta"}},
		{t.MixedPrecision != "fp16" && t.MixedPrecision != "auto", "only fp16 scales the loss", []string{"training.loss_scale"}},
		{t.Optimizer == "adafactor", "training.optimizer adafactor has its own", []string{"training.beta1", "training.beta2", "training.eps"}},
		{t.Optimizer == "lion", "training.optimizer lion has none", []string{"training.eps"}},
		{t.DiLoCo.InnerSteps == 0, "processes exchange gradients in every update as long as training.diloco.inner_steps is 0", []string{"training.diloco.outer_learning_rate", "training.diloco.outer_momentum", "training.diloco.exchange"}},
		{!records, "data.format " + d.Format + " has no fields", []string{"data.text_field", "data.array_key"}},
		{d.Format != "npz" && d.Format != "auto", "data.format " + d.Format + " has no rows of tokens", []string{"data.overlap"}},
		{d.Format != "text" && d.Format != "auto", "data.format " + d.Format + " is not text", []string{"data.documents"}},
		{k.Remote == "" && k.Compression != "none", k.Compression + " compresses uploads to checkpoint.remote, which is not set", []string{"checkpoint.compression"}},
	} {
		if !x.idle {
			continue
		}
		for _, key := range c.given(x.paths...) {
			r.Warn(key, "%s: it has no effect", x.why)
		}
	}
}
