package cli

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/train/checkpoint"
)

// Every system trains, saves and goes on on a device whose memory is out of the
// host's reach, and learns there what it learns on the CPU: nothing above
// package engine can tell which device it runs on.
func TestEverySystemOnAnotherDevice(t *testing.T) {
	if testing.Short() {
		t.Skip("float64 interpretation of five systems")
	}
	for name, r := range everySystem(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			train := func(to, device string, more ...string) {
				done(t, append([]string{"train", "--config", r.config, "--out", filepath.Join(dir, to), "--hardware.device", device}, more...)...)
			}
			train("cpu", "cpu")
			train("reference", "reference")
			for _, of := range r.runs("") {
				cpu, reference := lastLoss(t, filepath.Join(dir, "cpu", of)), lastLoss(t, filepath.Join(dir, "reference", of))
				if d := math.Abs(cpu - reference); d > 2e-3*math.Abs(reference) {
					t.Errorf("%s: the last loss is %v on the CPU, %v by the reference", of, cpu, reference)
				}
			}
			if r.phases != nil {
				return // a phase that is done is not stopped
			}
			stopped := snug(t, "", "train", "--config", r.config, "--out", filepath.Join(dir, "stopped"), "--hardware.device", "reference", "--until", "4")
			if stopped.code != 4 {
				t.Fatalf("--until 4: exit code %d\n%s", stopped.code, stopped.err)
			}
			train("stopped", "reference", "--resume")
			last := checkpoint.Name(8)
			d, err := checkpoint.Compare(filepath.Join(dir, "reference", checkpoint.Folder, last), filepath.Join(dir, "stopped", checkpoint.Folder, last))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range d.Tensors {
				if x.Note != "same" {
					t.Errorf("%s %s: resumed and unbroken: %s", x.File, x.Name, x.Note)
				}
			}
		})
	}
}

// lastLoss is the loss of the last update of the run in dir.
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
