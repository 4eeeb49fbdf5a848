package session

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/train"
)

// TestPlannedTraffic: processes send exactly as much as the plan says, in either format.
func TestPlannedTraffic(t *testing.T) {
	for format, size := range map[string]int64{"fp32": 4, "bf16": 2} {
		for sums, exchanges := range map[string]int64{"ordered": 2, "fast": 1, "tree": 1} {
			if sums == "tree" && format == "bf16" {
				continue // rejected
			}
			t.Run(format+" "+sums, func(t *testing.T) { plannedTraffic(t, format, sums, size, exchanges) })
		}
	}
}

func plannedTraffic(t *testing.T, format, sums string, size, exchanges int64) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(tinyConfigs(t)["refocused"]), 0o666); err != nil {
		t.Fatal(err)
	}
	const world, updates = 2, 2
	from := config.Sources{File: file, NeedData: true, Overrides: []config.Override{
		{Key: "training.gradient_accumulation_steps", Text: "4"}, {Key: "training.max_steps", Text: "2"},
		{Key: "training.eval_steps", Text: "0"}, {Key: "hardware.threads", Text: "1"},
		{Key: "training.gradient_exchange", Text: format}, {Key: "training.gradient_sums", Text: sums},
	}}
	s, err := LoadShared(t.Context(), from, world, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	targets, err := s.Targets(nil)
	if err != nil {
		t.Fatal(err)
	}
	report, _, err := s.Plan(targets[0])
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := s.Cluster(targets[0], "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Scale(targets[0], report, cluster); err != nil {
		t.Fatal(err)
	}
	var scattered, gathered atomic.Int64
	errs := make([]error, world)
	var all sync.WaitGroup
	for r, g := range dist.InProcess(world) {
		g = disttest.Counted{Group: g, Scattered: &scattered, Gathered: &gathered}
		all.Go(func() {
			if r == 0 {
				_, errs[0] = Train(t.Context(), Options{Dir: filepath.Join(dir, "run"), Sources: from, Group: g})
			} else {
				errs[r] = Follow(t.Context(), g, Local{}, nil)
			}
			if !errors.Is(errs[r], train.ErrStopped) {
				errs[r] = errors.Join(errs[r], g.Leave(errs[r]))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	p := report.Scaling
	half := p.GradientBytes * size / 4 * (world - 1) / world
	if got, want := scattered.Load()/updates/world, exchanges*half; got != want {
		t.Errorf("a rank sends %d bytes of gradients in an update, planned are %d", got, want)
	}
	// A few more words are gathered.
	if got := gathered.Load() / updates / world; got < half || got > half+half/10 {
		t.Errorf("a rank spreads %d bytes in an update, planned are %d", got, half)
	}
	if want := (exchanges + 1) * half; p.Sends != want {
		t.Errorf("the plan sends %d, in %d exchanges of %d and one more", p.Sends, exchanges, half)
	}
}
