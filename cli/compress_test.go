package cli

import (
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// TestRunsWithCompressedActivations: a run with activations in 8 bits ends with the same bits if it is
// stopped and resumed, or if more is recomputed, and with other bits than a run without them.
func TestRunsWithCompressedActivations(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}))
	for _, c := range []struct{ system, device string }{{"refocused", "cuda"}, {"moderation", "reference"}, {"moderation", "cpu"}, {"agiformer", "cpu"}} {
		t.Run(c.system+"/"+c.device, func(t *testing.T) {
			r, dir := everySystem(t)[c.system], t.TempDir()
			whole, stopped, without := filepath.Join(dir, "whole"), filepath.Join(dir, "stopped"), filepath.Join(dir, "without")
			int8 := []string{"--training.activation_compression", "int8"}
			trainOn(t, r, whole, c.device, int8...)
			x := snug(t, "", append([]string{"train", "--config", r.config, "--out", stopped, "--hardware.device", c.device, "--until", "2"}, int8...)...)
			if x.code != 4 {
				t.Fatalf("exit code %d\n%s%s", x.code, x.out, x.err)
			}
			trainOn(t, r, stopped, c.device, append([]string{"--resume", "--training.gradient_checkpointing", "selective"}, int8...)...)
			sameWeights(t, whole, stopped)
			trainOn(t, r, without, c.device)
			if x := snug(t, "", "ckpt", "compare", whole, without); x.code != 1 {
				t.Errorf("the run without ends with the same weights: exit code %d\n%s", x.code, x.out)
			}
		})
	}
}
