package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/checkpoint"
)

// crashSettings make a run save all the time: as often as the disk allows, with retention after each save.
var crashSettings = []string{
	"--training.batch_size", "16", "--training.max_steps", "80", "--training.save_steps", "1", "--training.eval_steps", "7",
	"--training.sample.tokens", "1", "--checkpoint.keep_last", "2",
}

// kills returns how many times TestKill9 kills: 12, or the value of SNUG_KILLS.
func kills(t *testing.T) int {
	s := os.Getenv("SNUG_KILLS")
	if s == "" {
		return 12
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SNUG_KILLS is %q, want a number of kills", s)
	}
	return n
}

// TestKill9 kills training with SIGKILL at random moments and resumes it until it is done. The finished run
// equals an undisturbed one in every logged number and every bit of every tensor, and no checkpoint that was
// reported as saved is ever lost.
func TestKill9(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	run := func(dir string) *victim { return start(t, work, dir, crashSettings...) }
	if code := run("whole").wait(); code != exitDone {
		t.Fatalf("the undisturbed run ended with code %d", code)
	}
	want := metricLines(t, filepath.Join(work, "whole"))

	rng := rand.New(rand.NewPCG(20, 26))
	todo, during := kills(t), map[string]int{}
	for round := 0; todo > 0; round++ {
		dir := fmt.Sprintf("killed-%d", round)
		full := filepath.Join(work, dir)
		for {
			v := run(dir)
			if todo == 0 || !v.ambush(rng) {
				if code := v.wait(); code != exitDone {
					t.Fatalf("the run ended with code %d:\n%s", code, v.output())
				}
				break
			}
			todo--
			during[v.left(full)]++
			nothingLost(t, full, v.saved())
		}
		sameLines(t, dir, metricLines(t, full), want)
		sameBits(t, filepath.Join(work, "whole"), full)
		if t.Failed() {
			return
		}
	}
	t.Logf("killed while: %v", during)
}

// TestKill9Formats kills runs whose optimizers and weights have other formats, each once: states other than
// float32 moments are in checkpoints too.
func TestKill9Formats(t *testing.T) {
	if testing.Short() {
		t.Skip("trains in processes of its own")
	}
	t.Parallel()
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	wide := []string{"--model.d_model", "64", "--model.d_ff", "128"} // makes matrices of at least 4,096 elements
	rng := rand.New(rand.NewPCG(20, 27))
	for _, c := range []struct{ optimizer, weights, gradients, precision, accumulation string }{
		{"adamw8bit", "stochastic", "bf16", "bf16", "1"},
		{"lion", "compensated", "bf16", "fp16", "2"},
		{"adafactor", "stochastic", "fp32", "fp32", "1"},
		{"muon", "stochastic", "bf16", "bf16", "2"},
	} {
		name := c.optimizer + "-" + c.weights
		settings := slices.Concat(wide, []string{
			"--training.max_steps", "16", "--training.save_steps", "2", "--training.sample.tokens", "1", "--training.optimizer", c.optimizer, "--training.master_weights", c.weights, "--training.gradient_dtype", c.gradients,
			"--training.mixed_precision", c.precision, "--training.gradient_accumulation_steps", c.accumulation,
		})
		if v := start(t, work, name, settings...); v.wait() != exitDone {
			t.Fatalf("%s ended with code %d:\n%s", name, v.code, v.output())
		}
		killed := name + "-killed"
		if start(t, work, killed, settings...).ambush(rng) {
			if v := start(t, work, killed, settings...); v.wait() != exitDone {
				t.Fatalf("%s, resumed, ended with code %d:\n%s", name, v.code, v.output())
			}
		}
		sameLines(t, killed, metricLines(t, filepath.Join(work, killed)), metricLines(t, filepath.Join(work, name)))
		sameBits(t, filepath.Join(work, name), filepath.Join(work, killed))
	}
}

// nothingLost checks that the checkpoint of an update that was reported as saved (-1 if none was), or a later
// one, exists and is intact.
func nothingLost(t *testing.T, dir string, saved int64) {
	t.Helper()
	if saved < 0 {
		return
	}
	c, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatalf("update %d was saved, after the kill there is nothing: %v", saved, err)
	}
	if c.State.Update < saved {
		t.Errorf("update %d was saved, after the kill the newest whole checkpoint is that of %d", saved, c.State.Update)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// left infers what a killed process was doing from what it left.
func (v *victim) left(dir string) string {
	if !strings.Contains(v.output(), "  loss ") {
		return "starting"
	}
	list, err := os.ReadDir(filepath.Join(dir, checkpoint.Folder))
	if err != nil {
		v.t.Fatal(err)
	}
	what := "training"
	for _, e := range list {
		switch filepath.Ext(e.Name()) {
		case ".del":
			return "cleaning up"
		case ".tmp":
			what = "writing"
			if _, err := os.Stat(filepath.Join(dir, checkpoint.Folder, e.Name(), checkpoint.ManifestFile)); err == nil {
				what = "renaming"
			}
		}
	}
	return what
}

// victim is a training process.
type victim struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	seen  bytes.Buffer
	code  int
	late  *time.Timer // ends the process if it hangs; nil if nothing does
}

// start runs `snug train` in the folder work, resuming the run in dir.
func start(t *testing.T, work, dir string, settings ...string) *victim {
	t.Helper()
	args := append([]string{"train", "--config", "tiny.yaml", "--resume", "--out", dir}, settings...)
	return launch(t, work, "snug", args...)
}

func launch(t *testing.T, work, name string, args ...string) *victim {
	t.Helper()
	v := &victim{t: t, cmd: exec.Command(name, args...), lines: make(chan string, 1<<16)}
	v.cmd.Dir = work
	v.cmd.Env = append(os.Environ(), "TERM=dumb")
	r, w := io.Pipe()
	v.cmd.Stdout, v.cmd.Stderr = w, w
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = v.cmd.Wait() // ProcessState says how it ended
		_ = w.Close()    // closing a pipe never fails
	}()
	go func() {
		defer close(v.lines)
		s := bufio.NewScanner(r)
		for s.Scan() {
			v.lines <- s.Text()
		}
	}()
	return v
}

// until reads lines up to one that contains text, and returns false if there is none.
func (v *victim) until(text string) bool {
	for l := range v.lines {
		fmt.Fprintln(&v.seen, l)
		if strings.Contains(l, text) {
			return true
		}
	}
	return false
}

// wait reads to the end and returns the exit code.
func (v *victim) wait() int {
	for v.until("\x00") {
	}
	v.code = v.cmd.ProcessState.ExitCode()
	return v.code
}

func (v *victim) output() string { return v.seen.String() }

// ambush kills the process at a random moment: while it starts, or within a tenth of a second after its first
// update, its first save or its second save. It reports whether the process was killed before it was done.
func (v *victim) ambush(rng *rand.Rand) bool {
	if rng.IntN(8) == 0 {
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	} else {
		for n := range 1 + rng.IntN(3) {
			if !v.until([]string{"  loss ", "checkpoint step-", "checkpoint step-"}[n]) {
				v.wait()
				return false
			}
		}
		time.Sleep(time.Duration(rng.IntN(100_000)) * time.Microsecond)
	}
	if err := v.cmd.Process.Kill(); err != nil {
		v.t.Log(err) // it was done before
	}
	return v.wait() == -1
}

// processFields returns the fields of /proc/ID/stat after the name: the state, the parent, and so on. It returns
// nil if the process has ended, or on systems other than Linux.
func processFields(id int) []string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id)) // nothing if it has ended
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)
}

// gone reports whether a process has ended, even if nobody has waited for it.
func gone(id int) bool {
	f := processFields(id)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

// childrenOf returns the processes that a process has started and that have not ended.
func childrenOf(parent int) (ids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		id, err := strconv.Atoi(filepath.Base(dir))
		if f := processFields(id); err == nil && len(f) > 1 && f[1] == strconv.Itoa(parent) && !gone(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// saved returns the update of the last reported save, -1 if there was none.
func (v *victim) saved() int64 {
	last := int64(-1)
	for l := range strings.Lines(v.output()) {
		if name, ok := strings.CutPrefix(l, "checkpoint "); ok && strings.Contains(l, "saved: ") {
			name, _, _ = strings.Cut(name, " ")
			if u, ok := checkpoint.ParseName(name); ok {
				last = u
			}
		}
	}
	return last
}

// metricLines returns the lines of a run's metrics without timings, leaving out those about saves or the
// run's identity.
func metricLines(t *testing.T, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for text := range bytes.Lines(raw) {
		var l map[string]any
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%s: %v: %s", dir, err, text)
		}
		if l["event"] == "checkpoint" || l["event"] == "run" {
			continue
		}
		for _, k := range []string{"seconds", "rate", "wait_seconds", "time", "since"} {
			delete(l, k)
		}
		short, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(short))
	}
	return lines
}

func sameLines(t *testing.T, dir string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: %d lines, the undisturbed run has %d; the next is %s", dir, len(got), len(want), want[i])
		case i >= len(want):
			t.Fatalf("%s: %d lines, the undisturbed run has %d; too much is %s", dir, len(got), len(want), got[i])
		case got[i] != want[i]:
			t.Fatalf("%s: line %d is\n%s\nthe undisturbed run has\n%s", dir, i+1, got[i], want[i])
		}
	}
}

// sameBits compares the newest checkpoints of two runs.
func sameBits(t *testing.T, a, b string) {
	t.Helper()
	var paths []string
	for _, dir := range []string{a, b} {
		c, rejected, err := checkpoint.Latest(dir)
		if err != nil || len(rejected) > 0 {
			t.Fatalf("%s: %v %v", dir, err, rejected)
		}
		paths = append(paths, c.Path)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cmp, err := checkpoint.Compare(paths[0], paths[1])
	if err != nil {
		t.Fatal(err)
	}
	if len(cmp.Tensors) < 10 {
		t.Fatalf("only %d tensors were compared", len(cmp.Tensors))
	}
	for _, x := range cmp.Tensors {
		if x.Note != "same" {
			t.Errorf("tensor %s: %s", x.Name, x.Note)
		}
	}
	if len(cmp.State) > 0 {
		t.Errorf("the states differ: %v", cmp.State)
	}
}
