package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryLengthIsUsed: every length from the shortest that a key allows is trained on, evaluated and used.
// A shorter one is rejected by the name of its key before any training.
func TestEveryLengthIsUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("trains ten models")
	}
	every := everySystem(t)
	for _, k := range []struct {
		system, key string
		with        string // the other settings; %d is the length
		lengths     []int
		refused     []int
	}{
		{"moderation", "data.seq_len", "--data.buckets=[%d] --model.max_seq_len=40", []int{3, 33}, []int{1, 2}},
		{"moderation", "model.max_seq_len", "--data.buckets=[]", []int{3}, []int{1, 2}},
		{"dynamo", "data.seq_len", "--model.max_seq_len=40", []int{3}, []int{1, 2}},
		{"dynamo", "tasks.sentiment.length", "", nil, []int{1, 2, 31}},
		{"dynamo", "tasks.translation.length", "", nil, []int{1, 2, 31}},
		{"dynamo", "tasks.qa.length", "--model.tasks=[qa]", nil, []int{1, 2, 3, 31}},
		{"dynamo", "tasks.translation.target_length", "", []int{2}, []int{1}},
		{"agiformer", "data.seq_len", "--model.use_memory=false", []int{1, 33}, nil},
		{"agiformer", "data.seq_len", "--model.memory_segment=1", []int{2}, []int{1}},
		{"cloudbase", "model.frames", "", []int{1, 4}, []int{5}},
	} {
		run := every[k.system]
		settings := func(n int) []string {
			with := strings.ReplaceAll(k.with, "%d", fmt.Sprint(n))
			return append(strings.Fields(with), fmt.Sprintf("--%s=%d", k.key, n), "--training.eval_steps=1", "--training.save_steps=1", "--training.warmup_steps=0")
		}
		steps := []string{"--training.max_steps=1"}
		if k.system == "dynamo" {
			steps = strings.Fields("--phases.min_encoder_gain=-10 --phases.encoder_steps=1 --phases.router_steps=1 --phases.joint_steps=1 --tasks.sentiment.steps=1 --tasks.translation.steps=1")
		}
		for _, n := range k.refused {
			s := snug(t, "", append([]string{"train", "--config", run.config, "--out", filepath.Join(t.TempDir(), "run")}, append(settings(n), steps...)...)...)
			if s.code != exitUsage || !strings.Contains(s.err, k.key) && !strings.Contains(s.err, "model.memory_segment") && !strings.Contains(s.err, "synthetic.burst_frames") {
				t.Errorf("%s: %s %d: code %d, %s", k.system, k.key, n, s.code, s.err)
			}
		}
		for _, n := range k.lengths {
			dir := filepath.Join(t.TempDir(), "run")
			said := func(args ...string) {
				t.Helper()
				if s := snug(t, run.input, args...); s.code != exitDone || strings.Contains(s.out+s.err, "loss NaN") {
					t.Errorf("%s: %s %d: %s: code %d\n%s%s", k.system, k.key, n, args[0], s.code, s.out, s.err)
				}
			}
			said(append([]string{"train", "--config", run.config, "--out", dir}, append(settings(n), steps...)...)...)
			last := run.runs(dir)
			said("eval", last[len(last)-1])
			switch k.system {
			case "agiformer":
				said("generate", dir, "--prompt", run.input, "--tokens", "40")
			default:
				said("predict", dir)
			}
		}
	}
}
