package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/monitor"
)

// snugPeak is snug; at its end it prints the most memory that the process had, as the
// system counted it.
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

// From when its data is prepared on, a process that trains, evaluates, saves and
// generates never has more memory than its plan says.
func TestPeakWithinPlan(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("trains the quickstart in a process of its own, whose peak Linux counts")
	}
	t.Parallel()
	peakWithinPlan(t, t.TempDir(), "train", "quickstart", "--out", "run",
		"--training.max_steps", "6", "--training.save_steps", "2", "--training.eval_steps", "3", "--training.eval_batches", "2", "--training.sample.tokens", "4")
}

// Nor does one that resumes, here where the states are nearly all that is planned: they are
// not in memory twice.
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

func peakWithinPlan(t *testing.T, work string, args ...string) {
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
	text, err := os.ReadFile(filepath.Join(work, "run", monitor.InfoFile))
	if err != nil {
		t.Fatal(err)
	}
	var info monitor.Info
	if err := json.Unmarshal(text, &info); err != nil {
		t.Fatal(err)
	}
	peak, planned := kib<<10, info.Plan.Total
	if peak > planned {
		t.Errorf("the process had %d bytes, the plan has %d", peak, planned)
	}
	t.Logf("peak %d bytes, %.0f %% of the plan", peak, 100*float64(peak)/float64(planned))
}
