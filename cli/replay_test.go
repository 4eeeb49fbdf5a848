package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/session"
)

// replayHere is [replayElsewhere] within this process, whose driver opens the card again.
func replayHere(_ context.Context, dir string, update int64, on string) (*session.Replayed, error) {
	var out, errw bytes.Buffer
	code := Main(replayArguments(dir, update, on), strings.NewReader(""), &out, &errw)
	return replayed(out.Bytes(), errw.String(), exitError(code))
}

// faulty is a card on which a kernel fails the n-th time that it runs and, once the card is opened again, the
// again-th time.
type faulty struct {
	*fakegpu.Driver
	kernel   string
	n, again int
	runs     map[string]int // for all kernels
}

func newFaulty(kernel string, code driver.Code, n, again int) *faulty {
	f := &faulty{Driver: &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}, kernel: kernel, n: n, again: again, runs: map[string]int{}}
	opened := 0
	f.Fail = func(call string) driver.Code {
		if call == "cuDevicePrimaryCtxRetain" {
			if opened++; opened > 1 {
				f.n, f.runs = f.again, map[string]int{}
			}
		}
		return 0
	}
	f.Break = func(kernel string) driver.Code {
		f.runs[kernel]++
		if kernel == f.kernel && f.runs[kernel] == f.n {
			return code
		}
		return 0
	}
	return f
}

// TestFaultsHaveNames: a kernel that fails in a run is named with its operation and shapes, even though the
// driver only says that something in the update failed.
func TestFaultsHaveNames(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	dir := t.TempDir()
	short := []string{"--training.max_steps", "4", "--training.eval_steps", "0", "--training.save_steps", "2", "--training.sample.tokens", "0"}
	whole := newFaulty("", 0, 0, 0)
	use(t, whole.Driver)
	trainOn(t, r, filepath.Join(dir, "whole"), "cuda", short...)
	// Kernels of the update, of the micro-batches and of both, each with how often it runs in an update.
	const updates = 4
	var kernels []string
	for _, name := range slices.Sorted(maps.Keys(whole.runs)) {
		if whole.runs[name]%updates == 0 {
			kernels = append(kernels, name)
		}
	}
	t.Logf("%d kernels", len(kernels))
	codes := []driver.Code{driver.IllegalAddress, driver.Assert, driver.ECCUncorrectable, driver.Unknown}
	for i, code := range codes {
		kernel := kernels[i*(len(kernels)-1)/(len(codes)-1)]
		t.Run(fmt.Sprintf("%s %d", kernel, code), func(t *testing.T) {
			each := whole.runs[kernel] / updates
			f := newFaulty(kernel, code, 3*each+1, each+1) // in update 4, two after the checkpoint
			use(t, f.Driver)
			out := filepath.Join(dir, kernel)
			x := snug(t, "", append([]string{"train", "--config", r.config, "--out", out, "--hardware.device", "cuda"}, short...)...)
			wants(t, x, exitLost, "update 4: in ", "computed again from step-00000002, one operation at a time, updates 3 to 4 failed in update 4, at ",
				", kernel "+kernel+": cuStreamSynchronize: "+code.Meaning(), fmt.Sprintf("(CUDA error %d)", code), ") of ", " to ",
				"the newest checkpoint is step-00000002, of update 2", "snug train --resume --out "+out)
		})
	}
	t.Run("not again", func(t *testing.T) {
		each := whole.runs[kernels[0]] / updates
		use(t, newFaulty(kernels[0], driver.ECCUncorrectable, 3*each+1, 0).Driver)
		out := filepath.Join(dir, "once")
		x := snug(t, "", append([]string{"train", "--config", r.config, "--out", out, "--hardware.device", "cuda"}, short...)...)
		wants(t, x, exitLost, "updates 3 to 4 succeeded: no kernel fails each time, so suspect the card")
		wants(t, snug(t, "", "check", out, "--faults", "--update", "4"), 0, "Tesla T4: computed again from step-00000002", "succeeded")
		wants(t, snug(t, "", "check", out, "--faults", "--update", "5"), exitUsage, "--update 5: the run has 4")
		wants(t, snug(t, "", "check", "quickstart", "--faults"), exitUsage, "run directory")
	})
	t.Run("not at all", func(t *testing.T) {
		each := whole.runs[kernels[0]] / updates
		f := newFaulty(kernels[0], driver.Unknown, 3*each+1, 0)
		fail, opened := f.Fail, 0
		f.Fail = func(call string) driver.Code {
			if call == "cuDevicePrimaryCtxRetain" {
				if opened++; opened > 1 {
					return driver.DeviceUnavailable
				}
			}
			return fail(call)
		}
		use(t, f.Driver)
		out := filepath.Join(dir, "gone")
		x := snug(t, "", append([]string{"train", "--config", r.config, "--out", out, "--hardware.device", "cuda"}, short...)...)
		wants(t, x, exitLost, "what the card fails at was not found: ", "exclusive use", "`snug check "+out+" --faults --update 4` tries again", "the newest checkpoint is step-00000002")
	})
}

// TestFaultsAreFoundInAnotherProcess: the replay is a separate process with the configuration of the run.
func TestFaultsAreFoundInAnotherProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	out := filepath.Join(t.TempDir(), "run")
	c := exec.Command("snug", "train", "--config", r.config, "--out", out, "--hardware.device", "cuda", "--training.max_steps", "3", "--training.eval_steps", "0")
	c.Env = append(os.Environ(), "SNUG_TEST_CARDS=1", "SNUG_TEST_FAULT=sum_squares:2")
	text, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != exitLost || !strings.Contains(string(text), "computed again from the first weights, one operation at a time, updates 1 to 2 failed in update 2, at ") ||
		!strings.Contains(string(text), "kernel sum_squares: cuStreamSynchronize: a kernel read or wrote outside its memory (CUDA error 700)\n") {
		t.Errorf("exit code %d\n%s", c.ProcessState.ExitCode(), text)
	}
	var found session.Replayed
	c = exec.Command("snug", "check", out, "--faults", "--update", "3", "--json")
	c.Env = append(os.Environ(), "SNUG_TEST_CARDS=1", "SNUG_TEST_FAULT=sum_squares:3")
	raw, _ := c.Output()
	if err := json.Unmarshal(raw, &found); err != nil || found.First != 1 || found.Last != 3 || found.Failed != 3 || !strings.Contains(found.Fault, "sum_squares") || c.ProcessState.ExitCode() != exitFailed {
		t.Errorf("exit code %d, %v, %+v", c.ProcessState.ExitCode(), err, found)
	}
}
