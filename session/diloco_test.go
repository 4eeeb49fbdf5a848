package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
)

// onTheirOwn returns options for ranks that synchronize every 2 updates.
func onTheirOwn(t *testing.T, dir, yaml string) func(out string, more ...config.Override) Options {
	t.Helper()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o666); err != nil {
		t.Fatal(err)
	}
	return func(out string, more ...config.Override) Options {
		return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: Overridden([]config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "6"}, {Key: "training.max_steps", Text: "7"}, {Key: "training.diloco.inner_steps", Text: "2"},
			{Key: "training.eval_steps", Text: "4"}, {Key: "training.save_steps", Text: "2"}, {Key: "hardware.threads", Text: "1"},
			{Key: "data.cache_dir", Text: filepath.Join(dir, "data")},
		}, more)}}
	}
}

// TestRanksTrainOnTheirOwn: in every system, ranks that synchronize now and then give the same bits when the run is
// repeated, and when it is stopped and resumed.
func TestRanksTrainOnTheirOwn(t *testing.T) {
	for name, yaml := range tinyConfigs(t) {
		switch {
		case name == "dynamo/sentiment", name == "dynamo/translation", name == "dynamo/router", name == "dynamo/joint":
			continue // these follow dynamo/encoder in a single run of all phases
		case testing.Short() && name != "refocused":
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			options := onTheirOwn(t, dir, yaml)
			for world, format := range map[int]string{2: "int8", 3: "fp32"} {
				if world == 3 && name != "refocused" {
					continue
				}
				sent := config.Override{Key: "training.diloco.exchange", Text: format}
				out := func(what string) string { return fmt.Sprint(what, world) }
				var one, again reported
				if err := together(t, world, one.of(options(out("one"), sent))); err != nil {
					t.Fatal(err)
				}
				want := states(t, filepath.Join(dir, out("one")))
				if len(want) == 0 || want["rank.1.optimizer.step"] == nil {
					t.Fatal("the checkpoint has no optimizer of rank 1")
				}
				for i, until := range []int64{2, 6, 0} {
					o := again.of(options(out("resumed"), sent))
					o.Resume, o.Until = i > 0, until
					if err := together(t, world, o); err != nil && !errors.Is(err, train.ErrStopped) {
						t.Fatal(err)
					}
				}
				if !same(states(t, filepath.Join(dir, out("resumed"))), want) {
					t.Errorf("%d ranks that were resumed train to other states", world)
				}
				again.equal(t, fmt.Sprint(world, " ranks that were resumed"), &one, true)
			}
		})
	}
}

// TestRanksOnTheirOwnInOtherNumber: another number of ranks resumes, and is told that it gets other results.
func TestRanksOnTheirOwnInOtherNumber(t *testing.T) {
	dir := t.TempDir()
	options := onTheirOwn(t, dir, tinyConfigs(t)["refocused"])
	for i, c := range []struct {
		world int
		until int64
		want  string
	}{{2, 2, ""}, {2, 4, ""}, {3, 6, "updates up to 4 of this run were computed by 2 processes that trained on their own (DiLoCo), later ones are by 3: results differ from those of an uninterrupted run. The checkpoint has the optimizers of 2; process r continues with that of r modulo 2"}} {
		o := options("run")
		o.Resume, o.Until = i > 0, c.until
		var said []string
		o.OnEvent = func(e Event) {
			if w, ok := e.(train.Warned); ok && strings.Contains(w.Text, "updates up to") {
				said = append(said, w.Text)
			}
		}
		if err := together(t, c.world, o); !errors.Is(err, train.ErrStopped) {
			t.Fatal(err)
		}
		if got := strings.Join(said, "\n"); got != c.want {
			t.Errorf("%d ranks say %q, want %q", c.world, got, c.want)
		}
	}
	o := options("run", config.Override{Key: "training.diloco.inner_steps", Text: "0"})
	o.Resume = true
	o.Group = dist.InProcess(1)[0]
	if _, err := Train(t.Context(), o); err == nil || !strings.Contains(err.Error(), "training.diloco.inner_steps is 0, the run has 2") {
		t.Errorf("without DiLoCo: %v", err)
	}
	o = options("alone")
	if _, err := Train(t.Context(), o); err == nil || !strings.Contains(err.Error(), "training.diloco.inner_steps: 2 averages the weights of processes, and this one trains alone: want 0, or --nproc N") {
		t.Errorf("alone: %v", err)
	}
}

// TestPlanOfRanksOnTheirOwn: the plan has the synchronized weights and their momentum, to the byte, and the traffic of one
// exchange in so many updates.
func TestPlanOfRanksOnTheirOwn(t *testing.T) {
	dir := t.TempDir()
	options := onTheirOwn(t, dir, tinyConfigs(t)["refocused"])
	plan := func(more ...config.Override) (components map[string]int64, sends int64, p *engine.Program) {
		s, err := Load(t.Context(), options("none", more...).Sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.World, s.Local.World = 2, 2
		target, report := planned(t, s)
		cluster, err := s.Cluster(target, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Scale(target, report, cluster); err != nil {
			t.Fatal(err)
		}
		if p, err = s.Planner(target).Program(report.Run.Settings); err != nil {
			t.Fatal(err)
		}
		components = map[string]int64{}
		for _, c := range report.Components {
			components[c.Name] += c.Bytes
		}
		return components, report.Scaling.Sends, p
	}
	usual, gradients, _ := plan(config.Override{Key: "training.diloco.inner_steps", Text: "0"}, config.Override{Key: "training.gradient_sums", Text: "fast"})
	own, changes, p := plan()
	weights := int64(0)
	for _, w := range p.TrainedWeights() {
		weights += p.Align(w.Type.Bytes())
	}
	if usual["synchronized weights"] != 0 || own["synchronized weights"] != weights || own["outer momentum"] != weights {
		t.Errorf("the plan has %d bytes of synchronized weights and %d of outer momentum, weights have %d", own["synchronized weights"], own["outer momentum"], weights)
	}
	if own["gradient accumulators"] != usual["gradient accumulators"] || own["gradient exchange"] != usual["gradient exchange"] {
		t.Errorf("gradients and their exchange take %d and %d bytes, without DiLoCo %d and %d", own["gradient accumulators"], own["gradient exchange"], usual["gradient accumulators"], usual["gradient exchange"])
	}
	if changes != gradients/2 {
		t.Errorf("a process sends %d bytes an update, half of %d is wanted", changes, gradients)
	}
	_, coded, _ := plan(config.Override{Key: "training.diloco.exchange", Text: "int8"}, config.Override{Key: "training.diloco.inner_steps", Text: "2"})
	if want := changes * 260 / 1024; coded < want-1 || coded > want+1 {
		t.Errorf("a process sends %d bytes an update in int8, want %d", coded, want)
	}
}
