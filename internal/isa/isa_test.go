package isa

import (
	"slices"
	"strings"
	"testing"
)

// TestList checks that each level extends an earlier one, and gives the same bits as
// levels that it includes.
func TestList(t *testing.T) {
	names := map[string]bool{}
	for l := Portable; int(l) < len(list); l++ {
		if names[l.String()] {
			t.Errorf("two levels are called %v", l)
		}
		names[l.String()] = true
		if l.Extends() >= l || l != Portable && !l.Includes(Portable) {
			t.Errorf("%v extends %v", l, l.Extends())
		}
		for _, same := range []Level{l.Vectors(), l.Products()} {
			if !l.Includes(same) {
				t.Errorf("%v has the bits of %v, which it does not include", l, same)
			}
		}
		if s := l.Setting(); s == Setting(list[Auto].name) {
			t.Errorf("no setting means %v", l)
		}
	}
}

// TestSettings requests each value of hardware.cpu_isa: it means a level that this machine
// runs, or is refused with the name of the best.
func TestSettings(t *testing.T) {
	for _, name := range Setting("").Enum() {
		level, err := Setting(name).Level()
		switch {
		case name == "auto":
			if err != nil || level != Best() {
				t.Errorf("auto means %v: %v", level, err)
			}
		case slices.Contains(Settings(), Setting(name)):
			if err != nil || !Runs(level) {
				t.Errorf("%s means %v, of %v: %v", name, level, Levels(), err)
			}
		case err == nil || !strings.Contains(err.Error(), "its best are "+string(Best().Setting())):
			t.Errorf("%s, which this machine lacks: %v, %v", name, level, err)
		}
	}
	if level, err := Best().Setting().Level(); err != nil || level != Best() {
		t.Errorf("%s means %v, not the best level: %v", Best().Setting(), level, err)
	}
	if _, err := Setting("mmx").Level(); err == nil || !strings.Contains(err.Error(), "use auto, portable, ") || !strings.Contains(err.Error(), " or neon-bfdot") {
		t.Errorf("mmx: %v", err)
	}
}

// TestWithout removes levels from a machine that has all of them: whatever is missing, a
// level falls back to one that it includes.
func TestWithout(t *testing.T) {
	defer func(r []Level) { running = r }(running)
	for without := AVX2; int(without) < len(list); without++ {
		running = running[:0:0]
		for l := Portable; int(l) < len(list); l++ {
			if !l.Includes(without) {
				running = append(running, l)
			}
		}
		for l := Portable; int(l) < len(list); l++ {
			got := l.Resolve()
			if !Runs(got) || !l.Includes(got) || Runs(l) && got != l {
				t.Errorf("without %v, %v is lowered to %v", without, l, got)
			}
		}
	}
}
