package conformance_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/refdevice"
	"github.com/snug-ml/snug/internal/isa"
)

// The CPU with all its kernels: each operation alone, then with the passes applied.
func TestCPU(t *testing.T) {
	t.Cleanup(func() {
		if err := cpu.Configure(os.Getenv("SNUG_CPU_ISA")); err != nil {
			t.Error(err)
		}
	})
	for _, setting := range isa.Settings() {
		if err := cpu.Configure(string(setting)); err != nil {
			t.Fatal(err)
		}
		for name, dev := range map[string]conformance.Device{
			fmt.Sprintf("%s/plain", setting): conformance.On(backend.CPU(1), "fuse"),
			string(setting):                  conformance.On(backend.CPU(2)),
		} {
			t.Run(name, func(t *testing.T) {
				conformance.Run(t, dev)
				conformance.RunGoldens(t, dev, goldens)
			})
		}
	}
}

// All results have the same bits with and without BFMMLA: checkpoints use one name for
// both.
func TestQuads(t *testing.T) {
	if !isa.Runs(isa.NEONBFMMLA) {
		t.Skip("this processor has no BFMMLA")
	}
	t.Cleanup(func() {
		if err := cpu.Configure(os.Getenv("SNUG_CPU_ISA")); err != nil {
			t.Error(err)
		}
	})
	dev, compared := conformance.On(backend.CPU(2)), 0
	for _, c := range conformance.Cases() {
		if !strings.Contains(c.Name, graph.BF16.String()) {
			continue
		}
		var results []map[string][]float64
		for _, setting := range []string{"neon", "neon-bfdot"} {
			if err := cpu.Configure(setting); err != nil {
				t.Fatal(err)
			}
			out, err := dev.Run(c.Func, c.In)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			results = append(results, out)
		}
		if !maps.EqualFunc(results[0], results[1], sameBits) {
			t.Errorf("%s has other bits with BFMMLA", c.Name)
		}
		compared++
	}
	if compared == 0 {
		t.Error("no case computes in bf16")
	}
}

// A device whose memory is out of the host's reach, which fuses only loops and aligns
// tensors more widely, computes the same.
func TestReferenceDevice(t *testing.T) {
	conformance.Run(t, conformance.On(refdevice.Backend{}))
	conformance.RunGoldens(t, conformance.On(refdevice.Backend{}), goldens)
}
