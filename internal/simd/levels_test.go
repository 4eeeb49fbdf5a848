package simd

import (
	"slices"
	"testing"
)

// eachLevel runs f as a subtest at every level this CPU supports.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func(l Level) { level = l }(level)
	for _, l := range Levels() {
		if err := Use(l); err != nil {
			t.Fatal(err)
		}
		t.Run(l.String(), f)
	}
}

func TestUseRefuses(t *testing.T) {
	before := Active()
	for _, l := range []Level{-1, NEON + 1} {
		if Use(l) == nil {
			t.Errorf("Use(%v) accepted a level that does not exist", l)
		}
	}
	for l := Portable; l <= NEON; l++ {
		if !slices.Contains(Levels(), l) && Use(l) == nil {
			t.Errorf("Use(%v) accepted a level that is not among %v", l, Levels())
		}
	}
	if Active() != before {
		t.Errorf("a refused Use changed the level from %v to %v", before, Active())
	}
}
