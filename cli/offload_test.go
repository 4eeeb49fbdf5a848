package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/plan"
)

// shortOf returns the memory that a plan without recomputation needs, less a quarter of the activations that
// it keeps.
func shortOf(t *testing.T, args ...string) (bytes int64) {
	t.Helper()
	r := reportOf(t, args...)
	i := slices.IndexFunc(r.Components, func(c plan.Component) bool { return c.Name == plan.Saved.String() })
	if i < 0 {
		t.Fatalf("%v keeps no activations", args)
	}
	return r.Total - r.Components[i].Bytes/4
}

// away returns the arguments of a run that keeps activations in main memory in order to need at most bytes.
func away(bytes int64) []string {
	return []string{"--training.offload", "activations", "--hardware.memory_budget", fmt.Sprint(bytes)}
}

// offloadPlan is the part of a plan that these tests read.
type offloadPlan struct {
	Components []plan.Component `json:"components"`
	Total      int64            `json:"planned_total_bytes"`
	Fits       bool             `json:"fits"`
	Host       *plan.MainMemory `json:"host"`
	Time       plan.Timing      `json:"time"`
}

// reportOf returns the plan of a run without recomputation.
func reportOf(t *testing.T, args ...string) (r offloadPlan) {
	t.Helper()
	x := done(t, slices.Concat([]string{"plan", "--json", "--training.gradient_checkpointing", "none"}, args)...)
	if err := json.Unmarshal([]byte(x.out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestQuickstartsPlanOffloadedActivations: each quickstart has a plan with activations in main memory that
// fits where the plan without does not.
func TestQuickstartsPlanOffloadedActivations(t *testing.T) {
	for _, name := range []string{"quickstart", "agiformer-quickstart", "dynamo-quickstart", "cloudbase-quickstart", "moderation-quickstart"} {
		t.Run(name, func(t *testing.T) {
			args := []string{name, "--card", "t4", "--training.mixed_precision", "fp32"}
			budget := shortOf(t, args...)
			r := reportOf(t, append(args, away(budget)...)...)
			if !r.Fits || r.Total > budget || r.Host == nil || r.Host.Components[0].Name != "activations" || r.Time.Transfer <= 0 {
				t.Errorf("fits %v: %d bytes of %d, in main memory %v, transfers take %g s", r.Fits, r.Total, budget, r.Host, r.Time.Transfer)
			}
		})
	}
}

// TestRunsWithOffloadedActivations: a run with activations in main memory ends with the bits of one without,
// and can be continued either way.
func TestRunsWithOffloadedActivations(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}))
	for name, device := range map[string]string{"refocused": "cuda", "moderation": "reference"} {
		t.Run(name+"/"+device, func(t *testing.T) {
			r, dir := everySystem(t)[name], t.TempDir()
			whole, stopped := filepath.Join(dir, "whole"), filepath.Join(dir, "stopped")
			trainOn(t, r, whole, device, "--training.gradient_checkpointing", "none")
			chosen := []string{"--config", r.config, "--hardware.device", device}
			budget := shortOf(t, chosen...)
			if p := reportOf(t, append(chosen, away(budget)...)...); !p.Fits {
				t.Errorf("needs %d of %d bytes", p.Total, budget)
			}
			if device == "reference" { // its memory is the process's, where the data needs more
				budget = 0
			}
			with := append(away(budget), "--training.gradient_checkpointing", "none")
			x := snug(t, "", slices.Concat([]string{"train", "--config", r.config, "--out", stopped, "--hardware.device", device, "--until", "2"}, with)...)
			if x.code != 4 {
				t.Fatalf("exit code %d\n%s%s", x.code, x.out, x.err)
			}
			trainOn(t, r, stopped, device, "--resume", "--training.offload", "none", "--hardware.memory_budget", "0")
			sameWeights(t, whole, stopped)
			trainOn(t, r, filepath.Join(dir, "away"), device, with...)
			sameWeights(t, whole, filepath.Join(dir, "away"))
		})
	}
}
