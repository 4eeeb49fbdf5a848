package cloudbase_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
)

// TestAdapters trains adapters on a run. Scales and running statistics are kept, except those of norms that
// are trained as a whole. Adapters resume bit for bit, predict, are exported in PEFT's layout and loaded
// again, and are merged into an equivalent checkpoint.
func TestAdapters(t *testing.T) {
	for name, c := range map[string]struct{ model, lora string }{
		"attention": {"", "{targets: [all-linear], variant: dora, rank: 2, alpha: 4}"},
		"ssm":       {"model: {architecture: ssm, state_size: 4, layers: 1}", "{targets: ['*_proj', dense.1.linear], rank: 2, alpha: 16, modules_to_save: [output, dense.0]}"},
	} {
		t.Run(name, func(t *testing.T) {
			config := small(t, "")
			out := t.TempDir()
			at := func(name ...string) string { return filepath.Join(append([]string{out}, name...)...) }
			text, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			write := func(name, text string) string {
				if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
				return at(name)
			}
			model := strings.Replace(string(text), "model: {", "model: {"+strings.TrimSuffix(strings.TrimPrefix(c.model, "model: {"), "}")+map[bool]string{true: ", "}[c.model != ""], 1)
			config = write("base.yaml", model)
			on := write("on.yaml", strings.Replace(string(text), "model: {height: 16, width: 16, frames: 3, view: 2, channels: [4, 8], ", "lora: "+c.lora+"\nmodel: {folder: "+at("base")+", ", 1))
			snug(t, 0, "train", "--config", config, "--out", at("base"))
			said := snug(t, 0, "train", "--config", on, "--out", at("whole"))
			if strings.Contains(said, "warning: parameter") || !strings.Contains(said, "model.folder: loaded") {
				t.Errorf("the run said:\n%s", said)
			}
			snug(t, 4, "train", "--config", on, "--out", at("parts"), "--until", "7")
			snug(t, 0, "train", "--out", at("parts"), "--resume")
			last := filepath.Join("checkpoints", "step-00000012")
			read := func(name ...string) []byte {
				raw, err := os.ReadFile(at(name...))
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			if !bytes.Equal(read("whole", last, "model.safetensors"), read("parts", last, "model.safetensors")) {
				t.Error("the resumed run has other adapters")
			}
			var scales [2]struct{ CBH struct{ Mean, Std float64 } }
			for i, run := range []string{"base", "whole"} {
				if err := json.Unmarshal(read(run, last, "scaler.json"), &scales[i]); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := scales[0].CBH, scales[1].CBH; math.Abs(a.Mean-b.Mean) > 1e-6 || math.Abs(a.Std-b.Std) > 1e-6 {
				t.Errorf("the scales are %v, those of the run that is adapted %v", b, a)
			}
			saved, err := safetensors.Open(at("whole", last, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer saved.Close()
			for _, x := range saved.Tensors() {
				whole := strings.HasPrefix(x.Name, "output.") || name == "ssm" && strings.HasPrefix(x.Name, "dense.0.")
				if !whole && !strings.Contains(x.Name, ".lora.") {
					t.Errorf("the checkpoint has %s", x.Name)
				}
			}
			if got := saved.Has("dense.0.norm.running_mean"); got != (name == "ssm") {
				t.Errorf("that the checkpoint has the statistics of dense.0 is %v", got)
			}

			snug(t, 0, "export", at("whole"), at("adapter"))
			snug(t, 0, "export", "--merge", at("whole"), at("merged"))
			// With a tiny learning rate the loaded adapter does not change, except for statistics, which move
			// with every update.
			again := []string{"train", "--config", on, "--out", at("again"), "--lora.folder", at("adapter"), "--training.learning_rate", "1e-12", "--training.max_steps", "1"}
			if said := snug(t, 0, again...); !strings.Contains(said, "lora.folder: loaded") {
				t.Errorf("the run said:\n%s", said)
			}
			rmse := func(dir string) float64 {
				var r struct {
					Metrics map[string]float64 `json:"metrics"`
				}
				if err := json.Unmarshal([]byte(snug(t, 0, "eval", at(dir), "--json")), &r); err != nil {
					t.Fatal(err)
				}
				return r.Metrics["rmse"]
			}
			base, unmerged := rmse("base"), rmse("whole")
			if math.Abs(base-unmerged) < 1e-3 {
				t.Errorf("the adapters change the rmse from %v to %v: too little to compare", base, unmerged)
			}
			for _, dir := range []string{"merged", "again"} {
				if dir == "again" && name == "ssm" {
					continue
				}
				if got := rmse(dir); math.Abs(got-unmerged) > 1e-5 {
					t.Errorf("the rmse of %s is %v, with adapters %v", dir, got, unmerged)
				}
			}
			flight := filepath.Join(t.TempDir(), "f.npz")
			rewrite(t, at("whole"), "flight-05", flight)
			heights := func(dir string) []float64 {
				var r struct {
					Answers []struct{ CBH float64 }
				}
				if err := json.NewDecoder(strings.NewReader(snug(t, 0, "predict", at(dir), flight, "--json"))).Decode(&r); err != nil {
					t.Fatal(err)
				}
				var list []float64
				for _, a := range r.Answers {
					list = append(list, a.CBH)
				}
				return list
			}
			a, b := heights("whole"), heights("merged")
			if len(a) == 0 || !slices.EqualFunc(a, b, func(a, b float64) bool { return math.Abs(a-b) < 1e-5 }) {
				t.Errorf("with adapters it predicts %v, merged %v", a, b)
			}
		})
	}
}
