package session

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/mlflow"
	"github.com/snug-ml/snug/train/rundir"
)

// appended adds text to a file of the run.
func appended(t *testing.T, dir *rundir.Dir, name, text string) {
	t.Helper()
	f, err := dir.Append(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func heldDir(t *testing.T) *rundir.Dir {
	t.Helper()
	dir, err := rundir.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

func names(list []mlflow.Metric) (out []string) {
	for _, m := range list {
		out = append(out, m.Key)
	}
	return out
}

// TestPoints: records of a run become points with their update and time. A line is read once it is complete.
func TestPoints(t *testing.T) {
	dir := heldDir(t)
	p := &runPoints{dir: dir, unit: "tokens"}
	if list, err := p.Metrics(10); list != nil || err != nil {
		t.Fatalf("%v %v of no file", list, err)
	}
	rec, err := train.NewRecorder(dir, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	step := train.Step{Update: 3, Loss: math.NaN(), LR: 0.5, GradNorm: 2, Scale: 8, NewTokens: 100, Took: 2 * time.Second, Wait: time.Second, Log: true}
	for _, e := range []train.Event{
		step,
		train.Evaluated{Update: 3, Metrics: map[string]float64{"eval_loss": 1.5, "accuracy": 0.25}},
		checkpoint.Event{Kind: checkpoint.Saved, Update: 3, Path: "step-00000003"},
		train.Warned{Update: 3, Text: "hot"},
	} {
		if err := rec.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := p.Metrics(1000)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"train/loss", "train/learning_rate", "train/grad_norm", "train/loss_scale", "speed/tokens_per_second", "speed/update_seconds", "speed/data_wait_seconds", "eval/accuracy", "eval/eval_loss"}
	if got := names(list); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i, v := range []float64{math.NaN(), 0.5, 2, 8, 50, 2, 1, 0.25, 1.5} {
		m := list[i]
		if m.Step != 3 || m.Value != v && !math.IsNaN(v) || math.IsNaN(v) && !math.IsNaN(m.Value) || time.Since(m.At) > time.Hour || time.Since(m.At) < -time.Second {
			t.Errorf("%s: %v at %v of step %d, want %v", m.Key, m.Value, m.At, m.Step, v)
		}
	}
	if b := p.began(time.Now().Add(time.Hour)); !b.Equal(list[0].At) {
		t.Errorf("began %v, want %v", b, list[0].At)
	}
	if list, err = p.Metrics(1000); list != nil || err != nil {
		t.Errorf("again %v %v", list, err)
	}
	appended(t, dir, train.MetricsFile, `{"event":"update","update":4,`)
	if list, err = p.Metrics(1000); list != nil || err != nil {
		t.Errorf("of half a line %v %v", list, err)
	}
	appended(t, dir, train.MetricsFile, `"loss":1}`+"\nnot JSON\n"+`{"event":"update","update":5,"loss":1}`+"\n")
	if list, err = p.Metrics(1); err != nil || len(list) != 1 || list[0].Step != 4 {
		t.Errorf("%v %v, want that of update 4", list, err)
	}
	if list, err = p.Metrics(1); err != nil || len(list) != 1 || list[0].Step != 5 {
		t.Errorf("%v %v, want that of update 5", list, err)
	}
}

// TestPointsOfALink: a log that is a link is not followed.
func TestPointsOfALink(t *testing.T) {
	dir := heldDir(t)
	if err := os.Symlink(filepath.Join(t.TempDir(), "secret"), dir.Join(train.MetricsFile)); err != nil {
		t.Skip(err)
	}
	if _, err := (&runPoints{dir: dir}).Metrics(1); err == nil {
		t.Error("read through a link")
	}
}

// TestMachinePoints: points of the machine are ten seconds apart, and each is returned once.
func TestMachinePoints(t *testing.T) {
	dir := heldDir(t)
	head, err := json.Marshal(map[string]string{"run": dir.ID()})
	if err != nil {
		t.Fatal(err)
	}
	text := string(head) + "\n"
	used, total := 4e9, 16e9
	for s := range 35 {
		x := monitor.Sample{Time: 1000 + float64(s), Update: int64(s), ProcessCPU: 150, MachineCPU: 80, RSS: 5e8, MemoryTotal: 8e9, MemoryAvailable: 6e9}
		if s == 30 {
			x.GPU = &monitor.GPUSample{Used: &used, Total: &total}
		}
		line, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		text += string(line) + "\n"
	}
	appended(t, dir, monitor.SamplesFile, text)
	p := &runPoints{dir: dir}
	list, until, err := p.Samples(0)
	if err != nil || until != 1030 || len(list) != 4*5+2 {
		t.Fatalf("%d points until %v, %v", len(list), until, err)
	}
	want := map[string]float64{
		"system/cpu_utilization_percentage": 80, "system/process_cpu_percentage": 150, "system/process_memory_usage_megabytes": 500,
		"system/system_memory_usage_megabytes": 2000, "system/system_memory_usage_percentage": 25,
		"system/gpu_0_memory_usage_megabytes": 4000, "system/gpu_0_memory_usage_percentage": 25,
	}
	for _, m := range list[15:] {
		if v, ok := want[m.Key]; !ok || v != m.Value || m.Step != 30 || m.At.Unix() != 1030 {
			t.Errorf("%s: %v of step %d at %v, want %v", m.Key, m.Value, m.Step, m.At, v)
		}
	}
	if list, until, err = p.Samples(until); len(list) > 0 || until != 1030 || err != nil {
		t.Errorf("again %d points until %v, %v", len(list), until, err)
	}
}

// TestTrackedName: a run is named after its directory, and a phase also after that of the whole run.
func TestTrackedName(t *testing.T) {
	for _, c := range []struct{ path, phase, want string }{
		{"runs/a", "", "a"}, {"runs/a/final", "final", "a/final"}, {"runs/a", "final", "a"},
	} {
		if got := trackedName(filepath.FromSlash(c.path), c.phase); got != c.want {
			t.Errorf("%s of phase %q: %q, want %q", c.path, c.phase, got, c.want)
		}
	}
}
