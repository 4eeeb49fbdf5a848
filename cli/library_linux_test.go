//go:build (amd64 || arm64) && !nocuda

package cli

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/fakegpu/libcuda"
)

// installT4 installs a driver library with a simulated T4 for this process and those that it starts. It returns false if
// there is no C compiler.
func installT4(t *testing.T) bool {
	return libcuda.Install(t, func() *fakegpu.Driver { return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}} })
}

// TestKill9OnACard kills training on a card, in a process that has loaded the driver's library: checkpoints are whole, and
// the finished run has the same bits as an undisturbed one.
func TestKill9OnACard(t *testing.T) {
	if testing.Short() {
		t.Skip("trains in processes of its own, with interpreted kernels")
	}
	if !installT4(t) {
		t.Skip("no C compiler is installed")
	}
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	settings := []string{"--hardware.device", "cuda:0", "--training.max_steps", "12", "--training.save_steps", "1", "--training.eval_steps", "5", "--training.sample.tokens", "1"}
	if v := start(t, work, "whole", settings...); v.wait() != exitDone {
		t.Fatalf("the undisturbed run ended with code %d:\n%s", v.code, v.output())
	}
	rng := rand.New(rand.NewPCG(20, 28))
	killed := 0
	for range 3 {
		v := start(t, work, "killed", settings...)
		if !v.ambush(rng) {
			break
		}
		killed++
		nothingLost(t, filepath.Join(work, "killed"), v.saved())
	}
	if v := start(t, work, "killed", settings...); v.wait() != exitDone {
		t.Fatalf("after %d kills the run ended with code %d:\n%s", killed, v.code, v.output())
	}
	t.Logf("killed %d times", killed)
	sameLines(t, "killed", metricLines(t, filepath.Join(work, "killed")), metricLines(t, filepath.Join(work, "whole")))
	sameBits(t, filepath.Join(work, "whole"), filepath.Join(work, "killed"))
}
