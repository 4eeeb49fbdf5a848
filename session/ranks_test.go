package session

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// together trains with the given number of ranks, each on one thread.
func together(t *testing.T, world int, o Options) error {
	t.Helper()
	groups := dist.InProcess(world)
	errs := make([]error, world)
	var all sync.WaitGroup
	for r, g := range groups {
		all.Go(func() {
			if r == 0 {
				o := o
				o.Group = g
				_, errs[0] = Train(t.Context(), o)
			} else {
				errs[r] = Follow(t.Context(), g, Local{}, nil)
			}
			if !errors.Is(errs[r], train.ErrStopped) {
				errs[r] = errors.Join(errs[r], g.Leave(errs[r]))
			}
		})
	}
	all.Wait()
	for r, err := range errs[1:] {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r+1, world, err)
		}
	}
	return errs[0]
}

// states returns the tensors of a run's last checkpoint that decide how it continues. It skips running
// statistics, which follow rank 0's micro-batches.
func states(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	c, err := checkpoint.Choose(dir, checkpoint.Last)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		f, err := safetensors.Open(filepath.Join(c.Path, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Tensors() {
			if !strings.Contains(i.Name, "running_") {
				x, err := f.Tensor(i.Name)
				if err != nil {
					t.Fatal(err)
				}
				all[i.Name] = bytes.Clone(x.Data)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func same(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// reported is what a run reports about its updates and evaluations.
type reported struct {
	steps       []train.Step
	evaluations []train.Evaluated
}

// of returns the options of a run that reports to f.
func (f *reported) of(o Options) Options {
	o.OnEvent = func(e Event) {
		switch e := e.(type) {
		case train.Step:
			f.steps = append(f.steps, e)
		case train.Evaluated:
			f.evaluations = append(f.evaluations, e)
		}
	}
	return o
}

// equal compares every reported number with those of a single rank: losses, norms, and evaluations that are
// split among ranks. exact says that they do not depend on running statistics, which are those of rank 0's
// micro-batches.
func (f *reported) equal(t *testing.T, who string, one *reported, exact bool) {
	t.Helper()
	if len(f.steps) != len(one.steps) || len(f.steps) == 0 || len(f.evaluations) != len(one.evaluations) || len(f.evaluations) == 0 {
		t.Fatalf("%s report %d updates and %d evaluations, one %d and %d", who, len(f.steps), len(f.evaluations), len(one.steps), len(one.evaluations))
	}
	for i, s := range f.steps {
		if o := one.steps[i]; s.Loss != o.Loss || s.GradNorm != o.GradNorm || s.Tokens != o.Tokens || s.Skipped != o.Skipped {
			t.Errorf("%s: update %d has loss %v and norm %v, that of one %v and %v", who, s.Update, s.Loss, s.GradNorm, o.Loss, o.GradNorm)
		}
	}
	for i, e := range f.evaluations {
		if exact && !maps.Equal(e.Metrics, one.evaluations[i].Metrics) {
			t.Errorf("%s: the evaluation after update %d has %v, that of one %v", who, e.Update, e.Metrics, one.evaluations[i].Metrics)
		}
	}
}

// TestRanksShareUpdates: any number of ranks computes the same bits as one that exchanges gradients with
// itself, in every system, even if it is resumed with another number.
func TestRanksShareUpdates(t *testing.T) {
	if testing.Short() {
		t.Skip("trains every system several times")
	}
	for name, yaml := range tinyConfigs(t) {
		switch name {
		case "dynamo/sentiment", "dynamo/translation", "dynamo/router", "dynamo/joint":
			continue // these follow dynamo/encoder in a single run of all phases
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "config.yaml")
			if err := os.WriteFile(file, []byte(yaml), 0o666); err != nil {
				t.Fatal(err)
			}
			options := func(out string, more ...config.Override) Options {
				return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: append([]config.Override{
					{Key: "training.gradient_accumulation_steps", Text: "4"}, {Key: "training.max_steps", Text: "4"},
					{Key: "training.eval_steps", Text: "2"}, {Key: "hardware.threads", Text: "1"},
				}, more...)}}
			}
			var one reported
			if err := together(t, 1, one.of(options("1"))); err != nil {
				t.Fatal(err)
			}
			want := states(t, filepath.Join(dir, "1"))
			for _, world := range []int{2, 3, 4} {
				out := fmt.Sprint(world)
				var all reported
				if err := together(t, world, all.of(options(out))); err != nil {
					t.Fatal(err)
				}
				if !same(states(t, filepath.Join(dir, out)), want) {
					t.Errorf("%d ranks train to other states", world)
				}
				all.equal(t, fmt.Sprint(world, " ranks"), &one, !strings.HasPrefix(name, "cloudbase"))
			}
			for i, world := range []int{4, 2, 3} {
				o := options("resumed")
				o.Resume, o.Until = i > 0, []int64{1, 2, 0}[i]
				if err := together(t, world, o); err != nil && !errors.Is(err, train.ErrStopped) {
					t.Fatal(err)
				}
			}
			if !same(states(t, filepath.Join(dir, "resumed")), want) {
				t.Error("4, then 2, then 3 ranks train to other states")
			}
		})
	}
}

// TestProcessAloneIsNearAGroup: a process alone adds up each micro-batch inside its matmuls, which rounds
// other partial sums than a group that adds up in order. In the first update only the gradients differ, their
// norm by at most 2^-20 of it. The effect on later losses stays below 2^-16 of them.
func TestProcessAloneIsNearAGroup(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)["refocused"]), 0o666); err != nil {
		t.Fatal(err)
	}
	options := func(out string) Options {
		return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: []config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "4"}, {Key: "training.max_steps", Text: "6"}, {Key: "training.batch_size", Text: "16"},
			{Key: "training.learning_rate", Text: "1e-3"}, {Key: "data.cache_dir", Text: filepath.Join(dir, "data")}, {Key: "hardware.threads", Text: "1"},
		}}}
	}
	var group, alone reported
	if err := together(t, 2, group.of(options("group"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Train(t.Context(), alone.of(options("alone"))); err != nil {
		t.Fatal(err)
	}
	if same(states(t, filepath.Join(dir, "group")), states(t, filepath.Join(dir, "alone"))) {
		t.Error("they have the same bits: the test shows nothing")
	}
	for i, s := range alone.steps {
		g := group.steps[i]
		loss, norm := math.Abs(s.Loss/g.Loss-1), math.Abs(s.GradNorm/g.GradNorm-1)
		if i == 0 && (loss != 0 || norm > 0x1p-20) || loss > 0x1p-16 {
			t.Errorf("update %d: the loss is %v, that of a group %v; the norm %v, that of a group %v", s.Update, s.Loss, g.Loss, s.GradNorm, g.GradNorm)
		}
	}
}

// TestRanksAddUpAsATree: tree sums have the same bits for 1, 2 and 4 ranks, even if a run is resumed with
// another number of ranks or with a shared optimizer.
func TestRanksAddUpAsATree(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)["refocused"]), 0o666); err != nil {
		t.Fatal(err)
	}
	options := func(out string, more ...config.Override) Options {
		return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: append([]config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "8"}, {Key: "training.max_steps", Text: "3"}, {Key: "training.gradient_sums", Text: "tree"},
			{Key: "training.eval_steps", Text: "2"}, {Key: "hardware.threads", Text: "1"}, {Key: "data.cache_dir", Text: filepath.Join(dir, "data")},
		}, more...)}}
	}
	if err := together(t, 1, options("1")); err != nil {
		t.Fatal(err)
	}
	want := states(t, filepath.Join(dir, "1"))
	for i, world := range []int{4, 1, 2} {
		o := options("resumed", config.Override{Key: "training.zero", Text: []string{"0", "0", "1"}[i]})
		o.Resume, o.Until = i > 0, []int64{1, 2, 0}[i]
		if err := together(t, world, o); err != nil && !errors.Is(err, train.ErrStopped) {
			t.Fatal(err)
		}
	}
	if !same(states(t, filepath.Join(dir, "resumed")), want) {
		t.Error("4, then 1, then 2 ranks train to other states than one")
	}
}

// TestRanksShareTheOptimizer: ranks that share the optimizer compute the same bits as ranks that do not, in
// every system, even if a run is resumed with another number of ranks or without sharing.
func TestRanksShareTheOptimizer(t *testing.T) {
	for name, yaml := range tinyConfigs(t) {
		switch name {
		case "dynamo/sentiment", "dynamo/translation", "dynamo/router", "dynamo/joint":
			continue // these follow dynamo/encoder in a single run of all phases
		}
		worlds := []int{2, 3, 4}
		if testing.Short() {
			worlds = []int{3}
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "config.yaml")
			if err := os.WriteFile(file, []byte(yaml), 0o666); err != nil {
				t.Fatal(err)
			}
			options := func(out, zero string) Options {
				return Options{Dir: filepath.Join(dir, out), Sources: config.Sources{File: file, NeedData: true, Overrides: []config.Override{
					{Key: "training.gradient_accumulation_steps", Text: "4"}, {Key: "training.max_steps", Text: "4"}, {Key: "training.zero", Text: zero},
					{Key: "training.eval_steps", Text: "2"}, {Key: "training.save_steps", Text: "1"}, {Key: "hardware.threads", Text: "1"},
				}}}
			}
			if err := together(t, 1, options("0", "0")); err != nil {
				t.Fatal(err)
			}
			want := states(t, filepath.Join(dir, "0"))
			for _, world := range worlds {
				out := fmt.Sprint(world)
				if err := together(t, world, options(out, "1")); err != nil {
					t.Fatal(err)
				}
				if !same(states(t, filepath.Join(dir, out)), want) {
					t.Errorf("%d ranks that share the optimizer train to other states", world)
				}
			}
			if testing.Short() {
				return
			}
			for i, world := range []int{3, 2, 4} {
				o := options("resumed", []string{"1", "0", "1"}[i])
				o.Resume, o.Until = i > 0, []int64{1, 2, 0}[i]
				if err := together(t, world, o); err != nil && !errors.Is(err, train.ErrStopped) {
					t.Fatal(err)
				}
			}
			if !same(states(t, filepath.Join(dir, "resumed")), want) {
				t.Error("3 that share, 2 that do not, and 4 that do train to other states")
			}
		})
	}
}

// TestRanksShareFrozenWeights: weights that later phases freeze are the same on every rank as on rank 0.
func TestRanksShareFrozenWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("trains every phase twice")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	yaml := strings.Replace(tinyConfigs(t)["dynamo/encoder"], ", max_steps: 8", "", 1) // each phase has its own number
	if err := os.WriteFile(file, []byte(yaml), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, world := range []int{1, 2} {
		o := Options{Dir: filepath.Join(dir, fmt.Sprint(world)), Phase: "all", Sources: config.Sources{File: file, NeedData: true}}
		for key, text := range map[string]string{
			"phases.stage": "", "phases.router_steps": "4", "phases.joint_steps": "4", "tasks.sentiment.steps": "4", "tasks.translation.steps": "4",
			"phases.min_routing": "0", "phases.min_encoder_gain": "-100", "phases.min_gain": "-100",
			"training.gradient_accumulation_steps": "2", "hardware.threads": "1",
		} {
			o.Sources.Overrides = append(o.Sources.Overrides, config.Override{Key: key, Text: text})
		}
		if err := together(t, world, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, phase := range []string{"phase0-encoder", "phase1-sentiment", "phase1-translation", "phase2-router", "phase3-joint"} {
		if !same(states(t, filepath.Join(dir, "1", phase)), states(t, filepath.Join(dir, "2", phase))) {
			t.Errorf("%s: two ranks train to other states", phase)
		}
	}
}

// planned returns what a setup needs where it is to run.
func planned(t *testing.T, s *Setup) (plan.Target, *plan.Report) {
	t.Helper()
	target, err := s.Target()
	if err != nil {
		t.Fatal(err)
	}
	report, no, err := s.Plan(target)
	if err != nil || no != nil {
		t.Fatal(err, no)
	}
	return target, report
}

// TestPlanOfASharedOptimizer: the plan contains only this process's part of a shared optimizer, and all of
// everything else.
func TestPlanOfASharedOptimizer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)["refocused"]), 0o666); err != nil {
		t.Fatal(err)
	}
	components := func(zero string) map[string]plan.Component {
		s, err := Load(t.Context(), config.Sources{File: file, NeedData: true, Overrides: []config.Override{
			{Key: "training.gradient_accumulation_steps", Text: "4"}, {Key: "training.zero", Text: zero}, {Key: "hardware.threads", Text: "1"},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.World = 3
		_, report := planned(t, s)
		all := map[string]plan.Component{}
		for _, c := range report.Components {
			all[c.Name] = c
		}
		return all
	}
	const moments = "optimizer moments"
	whole, shared := components("0"), components("1")
	if w, s := whole[moments].Bytes, shared[moments].Bytes; 3*s < w || 2*s > w {
		t.Errorf("moments take %d bytes, of %d that 3 processes share", s, w)
	}
	if note := shared[moments].Note; !strings.Contains(note, "the largest part of 3") {
		t.Errorf("the moments are %q", note)
	}
	for _, name := range []string{"weights", "gradient accumulators", "checkpoint staging"} {
		if w, s := whole[name].Bytes, shared[name].Bytes; w != s || w == 0 {
			t.Errorf("%s take %d bytes, %d where the optimizer is shared", name, w, s)
		}
	}
}
