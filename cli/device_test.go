package cli

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/train/checkpoint"
)

// TestEverySystemOnAnotherDevice: every system trains, saves and resumes on a device whose memory the host
// cannot access, and learns the same there as on the CPU, so nothing above package engine depends on the
// device. The card is simulated behind the driver's library.
func TestEverySystemOnAnotherDevice(t *testing.T) {
	if testing.Short() {
		t.Skip("float64 interpretation of five systems")
	}
	if !installT4(t) {
		t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}))
	}
	for name, r := range everySystem(t) {
		for _, device := range []string{"reference", "cuda"} {
			var more []string
			if device == "cuda" {
				more = tenUpdates(name)
			}
			t.Run(name+"/"+device, func(t *testing.T) {
				cpu := filepath.Join(t.TempDir(), "cpu")
				trainOn(t, r, cpu, "cpu", more...)
				trainsOn(t, r, device, cpu, more...)
			})
		}
	}
}

// tenUpdates are settings for ten updates, in each phase, where a tiny run of a system has four, with the fourth saved
// as there.
func tenUpdates(name string) []string {
	if name == "dynamo" {
		return []string{
			"--phases.encoder_steps", "10", "--tasks.sentiment.steps", "10", "--tasks.translation.steps", "10",
			"--phases.router_steps", "10", "--phases.joint_steps", "10", "--training.eval_steps", "5",
		}
	}
	return []string{"--training.max_steps", "10", "--training.eval_steps", "5", "--checkpoint.keep_last", "5"}
}

func trainOn(t *testing.T, r systemRun, out, device string, more ...string) {
	t.Helper()
	done(t, append([]string{"train", "--config", r.config, "--out", out, "--hardware.device", device}, more...)...)
}

// trainsOn checks that a run on a device has the same losses as on the CPU, and continues after a stop as if
// there had been none.
func trainsOn(t *testing.T, r systemRun, device, cpu string, more ...string) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	trainOn(t, r, whole, device, more...)
	n := 4
	if len(more) > 0 {
		n = 10
	}
	for _, of := range r.runs("") {
		want, got := losses(t, filepath.Join(cpu, of)), losses(t, filepath.Join(whole, of))
		if len(got) != n || len(want) != n {
			t.Fatalf("%s: %d updates on %s, %d on the CPU, want %d", of, len(got), device, len(want), n)
		}
		for i := range want {
			if d := math.Abs(want[i] - got[i]); d > 2e-3*math.Abs(want[i]) {
				t.Errorf("%s: the loss of update %d is %v on the CPU, %v on %s", of, i+1, want[i], got[i], device)
			}
		}
	}
	if r.phases != nil {
		return // a completed phase is not stopped
	}
	stopped := filepath.Join(dir, "stopped")
	until := func(update, code int) {
		args := slices.Concat([]string{"train", "--config", r.config, "--out", stopped, "--hardware.device", device, "--resume", "--until", strconv.Itoa(update)}, more)
		if x := snug(t, "", args...); x.code != code {
			t.Fatalf("--until %d: exit code %d, want %d\n%s", update, x.code, code, x.err)
		}
	}
	until(2, exitStopped)
	if len(more) > 0 {
		until(4, exitStopped)
	} else {
		trainOn(t, r, stopped, device, "--resume")
	}
	sameWeights(t, whole, stopped)
}

// sameWeights compares the last checkpoint of a run that was interrupted and resumed with that of an
// uninterrupted one.
func sameWeights(t *testing.T, whole, resumed string) {
	t.Helper()
	last := checkpoint.Name(4)
	d, err := checkpoint.Compare(filepath.Join(whole, checkpoint.Folder, last), filepath.Join(resumed, checkpoint.Folder, last))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range d.Tensors {
		if x.Note != "same" {
			t.Errorf("%s %s: resumed and unbroken: %s", x.File, x.Name, x.Note)
		}
	}
}

// TestPrecisionOfCards: cards train in the precision that suits them, fp16 with loss scaling on a T4 and bf16
// from compute capability 8.0, and learn what the CPU learns in fp32.
func TestPrecisionOfCards(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	cpu := filepath.Join(t.TempDir(), "cpu")
	trainOn(t, r, cpu, "cpu")
	want := lastLoss(t, cpu)
	for _, c := range []struct {
		card      driver.Card
		precision string
	}{{fakegpu.T4, "fp16"}, {fakegpu.A10, "bf16"}} {
		t.Run(c.card.Name, func(t *testing.T) {
			t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{c.card}}))
			out := filepath.Join(t.TempDir(), "card")
			x := snug(t, "", "train", "--config", r.config, "--out", out, "--hardware.device", "auto", "--training.mixed_precision", "auto")
			if x.code != 0 || !strings.Contains(x.out, c.precision+" on "+c.card.Name) {
				t.Fatalf("exit code %d\n%s%s", x.code, x.out, x.err)
			}
			if got := lastLoss(t, out); math.Abs(got-want) > 2e-2*want {
				t.Errorf("the last loss is %v, %v on the CPU", got, want)
			}
		})
	}
}

// lastLoss returns the loss of the last update of the run in dir.
func lastLoss(t *testing.T, dir string) float64 {
	t.Helper()
	c, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	loss := float64(c.Metadata.Metrics["loss"])
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return loss
}

// TestVerbsOnACard: commands that use or measure a model also run on a card.
func TestVerbsOnACard(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}))
	r := everySystem(t)["refocused"]
	run := filepath.Join(t.TempDir(), "run")
	trainOn(t, r, run, "cuda:0")
	for _, args := range [][]string{
		{"eval", run},
		{"generate", run, "--prompt", "the quick", "--tokens", "4"},
		{"plan", "--config", r.config},
		{"fit", "--config", r.config},
		{"bench", "--config", r.config, "--updates", "5", "--training.eval_steps", "0"},
		{"doctor"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Chdir(t.TempDir())
			if x := snug(t, "", args...); x.code != 0 {
				t.Errorf("exit code %d\n%s%s", x.code, x.out, x.err)
			} else {
				t.Log(x.out)
			}
		})
	}
}

// TestFewWaits: in an update the host waits for the card twice, for the losses and for the loss scale, which it copies from
// states, and once for each micro-batch before it fills the buffer of the next one: however many results it reads and
// inputs it writes.
func TestFewWaits(t *testing.T) {
	dir := t.TempDir()
	if err := tiny(dir); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	const micro = 2 // of tiny.yaml
	waits := func(updates int) map[string]int {
		n := map[string]int{}
		use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code {
			n[call]++
			return 0
		}})
		done(t, "train", "--config", "tiny.yaml", "--out", strconv.Itoa(updates), "--hardware.device", "cuda", "--training.max_steps", strconv.Itoa(updates), "--training.eval_steps", "0", "--training.save_steps", "0")
		return n
	}
	few, more := waits(4), waits(8)
	for call, want := range map[string]int{"cuStreamSynchronize": 2, "cuEventSynchronize": micro} {
		if n := more[call] - few[call]; n != 4*want {
			t.Errorf("%s: %d calls in 4 updates, want %d", call, n, 4*want)
		}
	}
}
