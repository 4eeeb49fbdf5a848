package cpu_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/simd"
)

func TestConfigure(t *testing.T) {
	t.Cleanup(func() {
		if err := cpu.Configure(os.Getenv("SNUG_CPU_ISA")); err != nil {
			t.Error(err)
		}
	})
	for level := simd.Portable; level <= simd.NEON; level++ {
		err := cpu.Configure(level.String())
		if !slices.Contains(simd.Levels(), level) {
			if err == nil || !strings.Contains(err.Error(), "does not run "+level.String()) {
				t.Errorf("%v, which this CPU lacks: %v", level, err)
			}
		} else if err != nil || simd.Active() != level {
			t.Errorf("%v gives %v, %v", level, simd.Active(), err)
		}
	}
	if slices.Contains(gemm.Levels(), gemm.NEONBFMMLA) {
		// Both have the same bits, and so the same name.
		var names []string
		for _, isa := range []string{"neon", "neon-bfdot"} {
			if err := cpu.Configure(isa); err != nil {
				t.Error(err)
			}
			names = append(names, cpu.Kernels())
		}
		if names[0] != "neon+neonbf16" || names[1] != names[0] {
			t.Errorf("with BFMMLA and without it kernels are %q", names)
		}
	}
	for _, isa := range []string{"", "auto"} {
		if err := cpu.Configure(isa); err != nil || simd.Active() != simd.Best() {
			t.Errorf("%q gives %v, %v", isa, simd.Active(), err)
		}
	}
	if err := cpu.Configure("mmx"); err == nil || !strings.Contains(err.Error(), "use auto, portable, avx2, avx512, neon or neon-bfdot") {
		t.Errorf("mmx: %v", err)
	}
}
