package conformance_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/refdevice"
	"github.com/snug-ml/snug/internal/simd"
)

// The CPU with all its kernels: each operation alone, then as the passes leave it.
func TestCPU(t *testing.T) {
	t.Cleanup(func() {
		if err := cpu.Configure(os.Getenv("SNUG_CPU_ISA")); err != nil {
			t.Error(err)
		}
	})
	for _, level := range simd.Levels() {
		if err := cpu.Configure(level.String()); err != nil {
			t.Fatal(err)
		}
		for name, dev := range map[string]conformance.Device{
			fmt.Sprintf("%v/plain", level): conformance.On(backend.CPU(1), "fuse"),
			level.String():                 conformance.On(backend.CPU(2)),
		} {
			t.Run(name, func(t *testing.T) {
				conformance.Run(t, dev)
				conformance.RunGoldens(t, dev, goldens)
			})
		}
	}
}

// A device whose memory is out of the host's reach, which fuses nothing but
// loops and aligns tensors more widely, computes the same.
func TestReferenceDevice(t *testing.T) {
	conformance.Run(t, conformance.On(refdevice.Backend{}))
	conformance.RunGoldens(t, conformance.On(refdevice.Backend{}), goldens)
}
