package cloudbase_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/cli"
	"github.com/snug-ml/snug/data/npz/npztest"
	"github.com/snug-ml/snug/system/cloudbase"
)

// snug runs the command line and returns what it prints.
func snug(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(args, strings.NewReader(""), &out, &errs); code != want {
		t.Fatalf("snug %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, &out, &errs)
	}
	return out.String() + errs.String()
}

// small returns the configuration of a run that takes seconds.
func small(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(path, []byte(`system: cloudbase
model: {height: 16, width: 16, frames: 3, view: 2, channels: [4, 8], dropout: 0.1, dense_dropout: [0.1, 0.1], mask_patch: 4}
training: {batch_size: 4, gradient_accumulation_steps: 2, max_steps: 12, learning_rate: 3e-3, warmup_steps: 2, log_steps: 3, eval_steps: 12, save_steps: 4, mixed_precision: fp32}
data: {source: [synthetic], cbh_min: 0}
split: {validation: [flight-03], calibration: [flight-04], test: [flight-05], confidence: 0.8}
augment: {flip: 0.5, noise: 0.05, erase: 0.3}
loss: {hard_mining_k: 0.35}
synthetic: {flights: 5, bursts: 4, burst_frames: 4}
hardware: {threads: 2}
`+more), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func outcome(t *testing.T, path string) (o cloudbase.Outcome) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestRun: a run that is stopped and resumed ends with the same bits as an uninterrupted one. Its report,
// evaluation and predictions agree with each other.
func TestRun(t *testing.T) {
	config := small(t, "")
	out := t.TempDir()
	whole, parts := filepath.Join(out, "whole"), filepath.Join(out, "parts")
	said := snug(t, 0, "train", "--config", config, "--out", whole)
	for _, want := range []string{"test", "R2", "for the mean of the training flights", "skill"} {
		if !strings.Contains(said, want) {
			t.Errorf("the run does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "warning: parameter") {
		t.Errorf("the audit found parameters that do not learn:\n%s", said)
	}
	snug(t, 4, "train", "--config", config, "--out", parts, "--until", "7")
	snug(t, 0, "train", "--config", config, "--out", parts, "--resume")
	last := filepath.Join("checkpoints", "step-00000012")
	for _, name := range []string{filepath.Join(last, "model.safetensors"), filepath.Join(last, "scaler.json"), cloudbase.PredictionsFile, cloudbase.OutcomeFile} {
		a, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(parts, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("the resumed run has another %s", name)
		}
	}
	o := outcome(t, filepath.Join(whole, cloudbase.OutcomeFile))
	if len(o.Trained) != 2 || o.Sides["test"].Samples != 8 || o.Interval.Examples != 8 {
		t.Errorf("trained on %v, tested on %d windows, calibrated on %d", o.Trained, o.Sides["test"].Samples, o.Interval.Examples)
	}
	if c := float64(o.Sides["calibration"].Coverage); c < 0.8 {
		t.Errorf("the intervals hold %v of what they were calibrated on for 0.8", c)
	}

	// The evaluation of the checkpoint equals that of its run, and uses the scales of the checkpoint even if
	// the training flights are different.
	var said1, said2 struct {
		Metrics map[string]float64 `json:"metrics"`
	}
	if err := json.Unmarshal([]byte(snug(t, 0, "eval", filepath.Join(whole, last), "--json")), &said1); err != nil {
		t.Fatal(err)
	}
	moved := snug(t, 0, "eval", filepath.Join(whole, last), "--json", "--split.test", "flight-01,flight-05")
	if err := json.Unmarshal([]byte(moved), &said2); err != nil {
		t.Fatal(err)
	}
	if said1.Metrics["rmse"] != said2.Metrics["rmse"] || said1.Metrics["skill"] != said2.Metrics["skill"] {
		t.Errorf("with other training flights the checkpoint says %v, before %v", said2.Metrics, said1.Metrics)
	}
	predictFlight(t, whole)
}

// predictFlight compares the output of `predict` for a flight in a file with the report.
func predictFlight(t *testing.T, run string) {
	t.Helper()
	file, err := os.Open(filepath.Join(run, cloudbase.PredictionsFile))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, r := range rows[1:] {
		if r[1] == "flight-05" {
			said[r[2]] = r[7]
		}
	}
	path := filepath.Join(t.TempDir(), "f.npz")
	rewrite(t, run, "flight-05", path)
	list := filepath.Join(t.TempDir(), "flights.jsonl")
	if err := os.WriteFile(list, fmt.Appendf(nil, "{\"flight\": %q}\n{\"flight\": %q}\n", path, path+"#1"), 0o666); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Input, Flight        string
		Frame                int
		Time, CBH, Low, High float64
	}
	answers := func(of string) (all []answer) {
		to := filepath.Join(t.TempDir(), "a.jsonl")
		snug(t, 0, "predict", run, of, "-o", to)
		raw, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(raw) {
			var a answer
			if err := json.Unmarshal(line, &a); err != nil {
				t.Fatal(err)
			}
			all = append(all, a)
		}
		return all
	}
	all := answers(path)
	if len(all) != len(said) || len(all) != 8 {
		t.Fatalf("%d answers, the report has %d windows", len(all), len(said))
	}
	for _, a := range all {
		if got, want := fmt.Sprintf("%.4g", a.CBH), said[fmt.Sprint(a.Frame)]; !strings.HasPrefix(want, got[:4]) {
			t.Errorf("frame %d: predict says %s, the report %s", a.Frame, got, want)
		}
		if a.Input != path || a.Flight != "f" || a.Low >= a.CBH || a.High <= a.CBH {
			t.Errorf("%+v", a)
		}
	}
	// A pattern, a folder, and a list of the flight and one of its windows give the same.
	for _, of := range []string{filepath.Join(filepath.Dir(path), "*.npz"), filepath.Dir(path)} {
		if got := answers(of); !slices.Equal(got, all) {
			t.Errorf("%s gives %v, the file %v", of, got, all)
		}
	}
	listed := answers(list)
	for i, a := range append(slices.Clone(all), all[0]) {
		a.Input = listed[i].Input
		if len(listed) != len(all)+1 || listed[i] != a {
			t.Errorf("answer %d of the list is %+v, of the file %+v", i, listed[i], a)
		}
	}
	csv := snug(t, 0, "predict", run, path, "--format", "csv")
	if lines := strings.Split(csv, "\n"); lines[0] != "input,flight,frame,time,cbh,low,high" || !strings.HasPrefix(lines[1], path+",f,1,") || !strings.HasPrefix(lines[8], path+",f,") {
		t.Errorf("as CSV:\n%s", csv)
	}
	for _, x := range []struct {
		args []string
		says string
	}{
		{[]string{path, list}, "name only one kind"},
		{[]string{path, "--text-field", "x"}, "is an input as a whole: --text-field"},
		{[]string{path, "--keep", "x"}, "without a field \"x\""},
		{[]string{"none.npz"}, "none.npz: no such file"},
	} {
		if said := snug(t, 1, append([]string{"predict", run}, x.args...)...); !strings.Contains(said, x.says) {
			t.Errorf("%v says\n%swant %s", x.args, said, x.says)
		}
	}
}

// rewrite writes a stored flight of a run as an NPZ file.
func rewrite(t *testing.T, run, flight, path string) {
	t.Helper()
	index, err := filepath.Glob(filepath.Join(run, "data", "frames-*", "index.json"))
	if err != nil || len(index) != 1 {
		t.Fatalf("%v, %v", index, err)
	}
	raw, err := os.ReadFile(index[0])
	if err != nil {
		t.Fatal(err)
	}
	var store struct {
		Flights []struct {
			Name           string
			Time, SZA, SAA []float64
		}
	}
	if err := json.Unmarshal(raw, &store); err != nil {
		t.Fatal(err)
	}
	for _, f := range store.Flights {
		if f.Name != flight {
			continue
		}
		pixels, err := os.ReadFile(filepath.Join(filepath.Dir(index[0]), flight+".u16"))
		if err != nil {
			t.Fatal(err)
		}
		frames := make([]float32, len(pixels)/2)
		for i := range frames {
			frames[i] = float32(uint16(pixels[2*i])|uint16(pixels[2*i+1])<<8) / math.MaxUint16
		}
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := npztest.NewWriter(file)
		n := len(f.Time)
		for name, data := range map[string][]float64{"time": f.Time, "sza": f.SZA, "saa": f.SAA} {
			if err := w.Write(name, []int{n}, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Write("frames", []int{n, 16, 16}, frames); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAllPhases: all phases run one after the other, each from the weights of the previous one, and the folds
// are collected.
func TestAllPhases(t *testing.T) {
	config := small(t, "phases: {run: all, masked: true, pretrain_flight: flight-01, overweight_factor: 1.5, loo: true, masked_steps: 4, pretrain_steps: 4, loo_steps: 4}\n")
	out := filepath.Join(t.TempDir(), "run")
	said := snug(t, 0, "train", "--config", config, "--out", out, "--training.max_steps", "6", "--training.warmup_steps", "0", "--data.held_out_fraction", "0.3")
	for _, want := range []string{"[1/5] masked", "[2/5] pretrain", "[3/5] final", "[4/5] loo-flight-01", "[5/5] loo-flight-02", "tensors from"} {
		if !strings.Contains(said, want) {
			t.Errorf("the run does not say %q:\n%s", want, said)
		}
	}
	raw, err := os.ReadFile(filepath.Join(out, cloudbase.FoldsFile))
	if err != nil {
		t.Fatal(err)
	}
	var folds map[string]cloudbase.Side
	if err := json.Unmarshal(raw, &folds); err != nil || len(folds) != 2 || folds["flight-02"].Samples != 8 {
		t.Errorf("folds %v, %v", folds, err)
	}
	// Finished phases are skipped.
	if said := snug(t, 0, "train", "--config", config, "--out", out, "--resume", "--training.max_steps", "6", "--training.warmup_steps", "0", "--data.held_out_fraction", "0.3"); strings.Count(said, ": done") != 5 {
		t.Errorf("a second time:\n%s", said)
	}
}

// TestArchitectures: every architecture can be trained, evaluated and planned.
func TestArchitectures(t *testing.T) {
	for _, a := range []string{"transformer", "ssm", "gnn", "cnn"} {
		out := filepath.Join(t.TempDir(), a)
		snug(t, 0, "train", "--config", small(t, ""), "--out", out, "--model.architecture", a, "--model.view", "1", "--training.max_steps", "3", "--training.warmup_steps", "0")
		if o := outcome(t, filepath.Join(out, cloudbase.OutcomeFile)); o.Sides["test"].Samples != 8 || math.IsNaN(float64(o.Sides["test"].RMSE)) {
			t.Errorf("%s: %+v", a, o.Sides["test"])
		}
	}
}

// TestPlans: the guide's networks are planned on a T4 with their true parameter counts.
func TestPlans(t *testing.T) {
	for preset, want := range map[string]string{"cloudbase-guide": "536,846 parameters", "cloudbase-memory-optimised": "143,886 parameters", "cloudbase-t4": "fits"} {
		if said := snug(t, 0, "plan", preset, "--card", "t4"); !strings.Contains(said, want) {
			t.Errorf("%s does not say %q:\n%s", preset, want, said)
		}
	}
}

// TestQuickstart: the quickstart predicts the cloud base of flights that it has never seen, with an R2 of at
// least 0.8 and intervals that have their coverage. It takes two minutes, and runs with SNUG_LONG=1.
func TestQuickstart(t *testing.T) {
	if os.Getenv("SNUG_LONG") == "" {
		t.Skip("SNUG_LONG=1 runs it")
	}
	out := t.TempDir()
	t.Log(snug(t, 0, "train", "cloudbase-quickstart", "--out", out))
	o := outcome(t, filepath.Join(out, cloudbase.OutcomeFile))
	s := o.Sides["test"]
	if s.R2 < 0.8 || s.Skill < 0.8 || s.Collapsed {
		t.Errorf("R2 %v, skill %v, spread %v on the test flights", s.R2, s.Skill, s.Spread)
	}
	if c := float64(s.Coverage); c < 0.8 || c > 0.98 {
		t.Errorf("intervals for 90 %% hold %v", c)
	}
}
