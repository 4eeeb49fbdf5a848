package cpu_test

import (
	"os"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/internal/isa"
	"github.com/snug-ml/snug/internal/simd"
)

func TestConfigure(t *testing.T) {
	t.Cleanup(func() {
		if err := cpu.Configure(os.Getenv("SNUG_CPU_ISA")); err != nil {
			t.Error(err)
		}
	})
	for _, setting := range isa.Setting("").Enum()[1:] {
		err := cpu.Configure(setting)
		level, lacking := isa.Setting(setting).Level()
		if lacking != nil {
			if err == nil || !strings.Contains(err.Error(), "does not run "+setting) {
				t.Errorf("%s, which this CPU lacks: %v", setting, err)
			}
		} else if err != nil || !level.Includes(simd.Active()) || simd.Active() == isa.Portable && level != isa.Portable {
			t.Errorf("%s, which is %v, gives %v, %v", setting, level, simd.Active(), err)
		}
	}
	if isa.Runs(isa.NEONBFMMLA) {
		// Both have the same bits, and so the same name.
		var names []string
		for _, setting := range []string{"neon", "neon-bfdot"} {
			if err := cpu.Configure(setting); err != nil {
				t.Error(err)
			}
			names = append(names, cpu.Kernels())
		}
		if names[0] != "neon+neonbf16" || names[1] != names[0] {
			t.Errorf("with BFMMLA and without it kernels are %q", names)
		}
	}
	for _, setting := range []string{"", "auto"} {
		if err := cpu.Configure(setting); err != nil || !isa.Best().Includes(simd.Active()) {
			t.Errorf("%q gives %v, %v", setting, simd.Active(), err)
		}
	}
	if err := cpu.Configure("mmx"); err == nil || !strings.Contains(err.Error(), "use auto, portable, avx2, avx512, neon or neon-bfdot") {
		t.Errorf("mmx: %v", err)
	}
}
