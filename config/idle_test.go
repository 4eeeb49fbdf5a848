package config

import (
	"strings"
	"testing"
)

// TestIdle: keys that others leave without effect are warned about, once they are set and only then.
func TestIdle(t *testing.T) {
	for _, test := range []struct{ flags, warning string }{
		{"--training.plateau.factor 0.3", "training.plateau.factor: training.lr_scheduler is not plateau: it has no effect"},
		{"--training.plateau.factor 0.3 --training.lr_scheduler plateau --training.eval_steps 5", ""},
		{"--training.min_lr_ratio 0.3", ""},
		{"--training.min_lr_ratio 0.3 --training.lr_scheduler constant", "training.min_lr_ratio: training.lr_scheduler is constant: it has no effect"},
		{"--training.early_stopping_min_delta 0.1", "training.early_stopping_min_delta: training.early_stopping_patience is 0: it has no effect"},
		{"--training.loss_scale.init 64", ""},
		{"--training.loss_scale.init 64 --training.mixed_precision bf16", "training.loss_scale.init: only fp16 scales the loss: it has no effect"},
		{"--training.beta2 0.9 --training.optimizer adafactor", "training.beta2: training.optimizer adafactor has its own: it has no effect"},
		{"--training.eps 1e-6 --training.optimizer lion", "training.eps: training.optimizer lion has none: it has no effect"},
		{"--training.diloco.outer_momentum 0.3", "training.diloco.outer_momentum: processes exchange gradients in every update as long as training.diloco.inner_steps is 0: it has no effect"},
		{"--data.text_field body --data.format text", "data.text_field: data.format text has no fields: it has no effect"},
		{"--data.text_field body", ""},
		{"--data.overlap 4 --data.format text", "data.overlap: data.format text has no rows of tokens: it has no effect"},
		{"--data.documents line --data.format jsonl", "data.documents: data.format jsonl is not text: it has no effect"},
	} {
		c := mustLoad(t, "small", "", strings.Fields(test.flags)...)
		var said []string
		for _, w := range c.Warnings {
			said = append(said, strings.TrimPrefix(w.String(), "--"))
		}
		if got := strings.Join(said, "\n"); got != test.warning {
			t.Errorf("%s: %q, want %q", test.flags, got, test.warning)
		}
	}
}
