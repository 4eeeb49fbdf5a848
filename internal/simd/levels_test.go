package simd

import (
	"slices"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// eachLevel runs f as a subtest at every level this CPU supports.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func(l isa.Level) { level = l }(level)
	for _, l := range Levels() {
		if err := Use(l); err != nil {
			t.Fatal(err)
		}
		t.Run(l.String(), f)
	}
}

func TestUseRefuses(t *testing.T) {
	before := Active()
	for l := isa.Portable; l <= isa.NEONBFMMLA; l++ {
		if !isa.Runs(l) && Use(l) == nil {
			t.Errorf("Use(%v) accepted a level that is not among %v", l, isa.Levels())
		}
	}
	if Active() != before {
		t.Errorf("a refused Use changed the level from %v to %v", before, Active())
	}
}

// TestUseExtended uses each level that this CPU runs: its own code, or that of a level that
// it extends.
func TestUseExtended(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	for _, l := range isa.Levels() {
		if err := Use(l); err != nil || !l.Includes(Active()) || !slices.Contains(Levels(), Active()) {
			t.Errorf("Use(%v) takes the code of %v: %v", l, Active(), err)
		}
	}
}
