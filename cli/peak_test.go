package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/monitor"
)

// snugPeak is snug, but prints the peak memory of the process at its end, as counted by the system.
func snugPeak() {
	code := Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmHWM:") {
			fmt.Print(line)
		}
	}
	os.Exit(code)
}

// TestPeakWithinPlan: once its data is prepared, a process that trains, evaluates, saves and generates never
// uses more memory than its plan says. A machine with just that much memory is enough from start to end: a
// control group with this limit also counts what VmHWM does not, such as the kernel's page tables, and kills
// a process that needs more.
func TestPeakWithinPlan(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("trains the quickstarts in processes of their own, whose peak Linux counts")
	}
	t.Parallel()
	for preset, settings := range shortQuickstarts() {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			args := append([]string{"train", preset, "--out", "run"}, settings...)
			planned := peakWithinPlan(t, work, args...)
			args[3] = "limited"
			code := exitNoFit
			for range 6 {
				var short int64
				if code, short = limitedRun(t, work, planned, args); code != exitNoFit {
					break
				}
				planned += short // the heap of this run was just above a whole MiB, and below it before
			}
			if code == exitNoFit {
				t.Errorf("six runs in a row needed more than those before, the last of them more than %d bytes", planned)
			}
		})
	}
}

// limitedRun trains in a control group of limit bytes. If the run does not begin, as its own plan needs more, it
// returns how much more.
func limitedRun(t *testing.T, work string, limit int64, args []string) (code int, short int64) {
	t.Helper()
	group, err := memoryGroup(limit)
	if err != nil {
		t.Skipf("not tried with the plan as a limit, for which a control group is needed that can be made (by root, where there is a memory controller): %v", err)
	}
	v := launch(t, work, "sh", append([]string{"-c", `echo $$ > "$0" && exec snug "$@"`, filepath.Join(group, "cgroup.procs")}, args...)...)
	code = v.wait()
	if code == exitNoFit {
		if missing := regexp.MustCompile(`\(([0-9.]+) ([KM]i|)B short\)`).FindStringSubmatch(v.output()); missing != nil {
			n, err := strconv.ParseFloat(missing[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			short = int64((n+0.01)*float64(map[string]int{"": 1, "Ki": 1 << 10, "Mi": 1 << 20}[missing[2]])) + 1 // rounded to hundredths
		}
	}
	if code != exitDone && short == 0 {
		t.Errorf("in a control group of %d bytes: %v\n%s", limit, v.cmd.ProcessState, v.output())
	}
	if err := os.Remove(group); err != nil {
		t.Error(err)
	}
	return code, short
}

// shortQuickstarts returns the flags for a few updates of each quickstart, with evaluations and saves, by
// preset.
func shortQuickstarts() map[string][]string {
	updates := "--training.max_steps 4 --training.warmup_steps 1 --training.save_steps 2 --training.eval_steps 2"
	dynamo := "--training.eval_batches 2 --phases.encoder_steps 3 --phases.router_steps 3 --phases.joint_steps 2 --phases.min_encoder_gain=-100 --phases.min_gain=-100 --phases.min_routing 0"
	for _, task := range []string{"sentiment", "qa", "summarization", "code_generation", "translation"} {
		dynamo += fmt.Sprintf(" --tasks.%s.steps 2 --tasks.%[1]s.held_out 16", task)
	}
	text := " --training.eval_batches 2 --training.sample.tokens 4"
	settings := map[string][]string{}
	for preset, line := range map[string]string{
		"quickstart": updates + text, "agiformer-quickstart": updates + text, "moderation-quickstart": updates,
		"cloudbase-quickstart": updates, "dynamo-quickstart": dynamo,
	} {
		settings[preset] = strings.Fields(line)
	}
	return settings
}

// memoryGroup creates a control group that limits the memory of its processes, below that of this process
// (version 1), or below the innermost enclosing one that delegates memory (version 2).
func memoryGroup(limit int64) (dir string, err error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own := ""
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && parts[0] == "0" {
			own = parts[2]
		}
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), "memory") {
			return limited(filepath.Join("/sys/fs/cgroup/memory", parts[2]), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limit)
		}
	}
	for own = filepath.Clean("/" + own); ; own = filepath.Dir(own) {
		above := filepath.Join("/sys/fs/cgroup", own)
		handed, err := os.ReadFile(filepath.Join(above, "cgroup.subtree_control"))
		if err == nil && slices.Contains(strings.Fields(string(handed)), "memory") {
			return limited(above, "memory.max", "memory.swap.max", limit)
		}
		if own == "/" {
			return "", errors.New("no control group around this process hands its memory on")
		}
	}
}

// limited creates a control group in a folder, without swap. The kernel counts in whole pages and would round
// the limit down.
func limited(above, memory, swap string, limit int64) (dir string, err error) {
	page := int64(os.Getpagesize())
	limit = (limit + page - 1) / page * page
	if dir, err = os.MkdirTemp(above, "snug-test-"); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, memory), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	most := "0" // of version 2, which counts swap separately
	if swap == "memory.memsw.limit_in_bytes" {
		most = strconv.FormatInt(limit, 10)
	}
	if _, err := os.Stat(filepath.Join(dir, swap)); err == nil {
		if err := os.WriteFile(filepath.Join(dir, swap), []byte(most), 0); err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
	}
	return dir, nil
}

// TestPeakOfResumeWithinPlan: a process that resumes also stays within its plan, here with states that are
// nearly all of the plan, so they cannot be in memory twice.
func TestPeakOfResumeWithinPlan(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("trains in a process of its own, whose peak Linux counts")
	}
	t.Parallel()
	work := t.TempDir()
	text := filepath.Join(work, "a.txt")
	if err := os.WriteFile(text, []byte(lines()), 0o600); err != nil {
		t.Fatal(err)
	}
	peakWithinPlan(t, work, append([]string{"train", "quickstart", "--out", "run", "--data.source", text}, strings.Fields(`--data.format text --data.documents line
		--data.split_by document --data.held_out_fraction 0.2 --data.tokenizer.vocab_size 300 --model.vocab_size 300 --model.d_model 512 --model.n_heads 8 --model.n_layers 6
		--model.d_ff 2048 --model.max_seq_len 32 --data.seq_len 32 --training.batch_size 1 --training.max_steps 1 --training.warmup_steps 0 --training.sample.tokens 0`)...)...)
	peakWithinPlan(t, work, "train", "--out", "run", "--resume", "--training.max_steps", "2")
}

// TestDataIsPlanned: a program that fits, but not with its data, is refused once the data is open, or computed
// with settings that fit if these were left to the planner.
func TestDataIsPlanned(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	text := filepath.Join(work, "a.txt")
	if err := os.WriteFile(text, []byte(lines()), 0o600); err != nil {
		t.Fatal(err)
	}
	train := func(out string, code int, settings ...string) string {
		t.Helper()
		v := launch(t, work, "snug", slices.Concat([]string{"train", "quickstart", "--out", out, "--data.source", text}, strings.Fields(`--data.format text --data.documents line
			--data.split_by document --data.held_out_fraction 0.2 --data.tokenizer.vocab_size 300 --model.vocab_size 300 --model.d_model 64 --model.n_heads 2 --model.n_layers 8
			--model.d_ff 256 --model.max_seq_len 64 --data.seq_len 64 --training.batch_size 32 --training.max_steps 1 --training.warmup_steps 0 --training.sample.tokens 0`), settings)...)
		if got := v.wait(); got != code {
			t.Fatalf("%s: exit code %d, want %d\n%s", settings, got, code, v.output())
		}
		return v.output()
	}
	train("whole", exitDone)
	p := planOf(t, filepath.Join(work, "whole", monitor.InfoFile))
	of := map[string]int64{}
	for _, c := range p.Components {
		of[c.Name] = c.Bytes
	}
	heap := of["data in the heap"]
	if heap == 0 {
		t.Fatalf("the plan of a run has nothing in the heap: %+v", p.Components)
	}
	budget := []string{"--hardware.memory_budget", strconv.FormatInt(p.Total-of["mapped data"]-heap/2, 10)}
	if said := train("refused", exitNoFit, append(budget, "--training.gradient_checkpointing", "none")...); !strings.Contains(said, "of it for its data") || !strings.Contains(said, "smallest change that fits") {
		t.Errorf("the refusal does not speak of data and changes:\n%s", said)
	}
	if said := train("refused", exitDone, append(budget, "--training.gradient_checkpointing", "auto")...); !strings.Contains(said, " does not fit with the data: ") {
		t.Errorf("nothing about other settings:\n%s", said)
	}
}

// planOf reads the plan of a run.
func planOf(t *testing.T, file string) monitor.Plan {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var info monitor.Info
	if err := json.Unmarshal(text, &info); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return info.Plan
}

// peakWithinPlan trains in work/run and returns the largest plan found there.
func peakWithinPlan(t *testing.T, work string, args ...string) (planned int64) {
	t.Helper()
	v := launch(t, work, "snug-peak", args...)
	if code := v.wait(); code != exitDone {
		t.Fatalf("ended with code %d:\n%s", code, v.output())
	}
	_, after, ok := strings.Cut(v.output(), "VmHWM:")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(after), "kB")), 10, 64)
	if !ok || err != nil {
		t.Fatalf("no peak in the output (%v):\n%s", err, v.output())
	}
	for _, pattern := range []string{"run", "run/*"} { // each phase may have its own folder
		files, err := filepath.Glob(filepath.Join(work, pattern, monitor.InfoFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			planned = max(planned, planOf(t, file).Total)
		}
	}
	peak := kib << 10
	if peak > planned {
		t.Errorf("the process had %d bytes, the plan has %d", peak, planned)
	}
	t.Logf("peak %d bytes, %.0f %% of the plan", peak, 100*float64(peak)/float64(planned))
	return planned
}
