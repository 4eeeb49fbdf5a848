package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSageMaker: SageMaker's `train` trains what the file of hyperparameters says, leaves the model where
// SageMaker looks for it, and continues from restored checkpoints.
func TestSageMaker(t *testing.T) {
	work := t.TempDir()
	t.Chdir(work)
	config, err := filepath.Abs(everySystem(t)["refocused"].config)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(work, "ml")
	sageMakerRoot = root
	t.Cleanup(func() { sageMakerRoot = "/opt/ml" })
	t.Setenv("TRAINING_JOB_NAME", "job-1")
	for _, dir := range []string{"input/config", "model", "checkpoints"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(parameters any) said {
		b, err := json.Marshal(parameters)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, "input/config/hyperparameters.json"), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		return snug(t, "", "train")
	}
	for want, parameters := range map[string]any{
		`"learning_rate" is no setting: want preset, config, nproc`: map[string]string{"learning_rate": "1"},
		`want texts by name`:          map[string]int{"training.max_steps": 3},
		`preset none: no such preset`: map[string]string{"preset": "none"},
		`--training.no_such_key`:      map[string]string{"config": config, "training.no_such_key": "1"},
	} {
		if s := ask(parameters); s.code != 2 || !strings.Contains(s.err, want) {
			t.Errorf("%v: exit code %d, want 2 and %q\n%s", parameters, s.code, want, s.err)
		}
	}
	s := ask(map[string]string{"config": config, "training.max_steps": "3"})
	if s.code != 0 || !strings.Contains(s.err, "SageMaker's job job-1: snug train --config") {
		t.Fatalf("exit code %d\n%s%s", s.code, s.out, s.err)
	}
	for _, file := range []string{"model/huggingface/config.json", "model/huggingface/model.safetensors", "checkpoints/run/metrics.jsonl"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	// Another job, with the checkpoints of the previous one.
	if err := os.RemoveAll(filepath.Join(root, "model/huggingface")); err != nil {
		t.Fatal(err)
	}
	if s := ask(map[string]string{"config": config, "training.max_steps": "5"}); s.code != 0 || !strings.Contains(s.out, "5 of 5 updates") {
		t.Errorf("exit code %d\n%s%s", s.code, s.out, s.err)
	}
	if _, err := os.Stat(filepath.Join(root, "model/huggingface/model.safetensors")); err != nil {
		t.Error(err)
	}
	// With other arguments, or elsewhere, SageMaker's files are ignored.
	if s := snug(t, "", "train", "--help"); s.code != 0 || strings.Contains(s.err, "SageMaker's") {
		t.Errorf("exit code %d\n%s", s.code, s.err)
	}
}
