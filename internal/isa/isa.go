// Package isa lists the instruction set levels that snug has kernels for, and says which
// of them this processor runs. Everything that names one uses this list: packages of
// kernels, the configuration, printed output.
package isa

import (
	"fmt"
	"slices"
	"strings"
)

// Level is an instruction set level. It includes those that it extends.
type Level uint8

// The levels. Auto, when requested, means the best that this processor runs.
const (
	Auto       Level = iota
	Portable         // Go, any processor
	AVX2             // amd64: AVX2, FMA, F16C, BMI (x86-64-v3)
	AVX512           // adds AVX-512 F, BW, DQ and VL (x86-64-v4)
	AVX512BF16       // adds AVX512_BF16
	NEON             // arm64
	NEONBF16         // adds BFDOT and BFCVTN, of FEAT_BF16
	NEONBFMMLA       // adds BFMMLA, of the same feature
)

// list describes the levels.
var list = [...]struct {
	name    string
	extends Level
	// The levels whose vector functions and matmuls give the same bits.
	vectors, products Level
}{
	Auto:       {name: "auto"},
	Portable:   {"portable", Auto, Portable, Portable},
	AVX2:       {"avx2", Portable, AVX2, AVX2},
	AVX512:     {"avx512", AVX2, AVX512, AVX512},
	AVX512BF16: {"avx512bf16", AVX512, AVX512, AVX512BF16},
	NEON:       {"neon", Portable, NEON, NEON},
	NEONBF16:   {"neonbf16", NEON, NEON, NEONBF16},
	NEONBFMMLA: {"neonbfmmla", NEONBF16, NEON, NEONBF16},
}

// Setting is a value of hardware.cpu_isa.
type Setting string

// settings are the values except auto: each means the best level that this processor runs,
// up to most, if it runs least.
var settings = [...]struct {
	name        Setting
	least, most Level
}{
	{"portable", Portable, Portable},
	{"avx2", AVX2, AVX2},
	{"avx512", AVX512, AVX512BF16},
	{"neon", NEON, NEONBFMMLA},
	{"neon-bfdot", NEON, NEONBF16},
}

// Enum returns all values.
func (Setting) Enum() []string {
	all := []string{list[Auto].name}
	for _, s := range settings {
		all = append(all, string(s.name))
	}
	return all
}

// Settings returns the values, except auto, that this machine runs.
func Settings() []Setting {
	var all []Setting
	for _, s := range settings {
		if _, err := s.name.Level(); err == nil {
			all = append(all, s.name)
		}
	}
	return all
}

// Level returns the level that the setting means on this machine.
func (s Setting) Level() (Level, error) {
	if s == "" || string(s) == list[Auto].name {
		return Best(), nil
	}
	for _, x := range settings {
		if x.name != s {
			continue
		}
		if l := x.most.running(); l.Includes(x.least) {
			return l, nil
		}
		return 0, fmt.Errorf("this CPU does not run %s kernels (SNUG_CPU_ISA or hardware.cpu_isa): its best are %s", s, Best().Setting())
	}
	names := s.Enum()
	return 0, fmt.Errorf("unknown CPU kernels %q (SNUG_CPU_ISA or hardware.cpu_isa): use %s or %s", string(s), strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
}

// Setting returns the value of hardware.cpu_isa that means the level if it is the best.
func (l Level) Setting() Setting {
	for _, s := range settings {
		if l.Includes(s.least) && s.most.Includes(l) {
			return s.name
		}
	}
	return Setting(list[Auto].name)
}

// String returns the level's name.
func (l Level) String() string {
	if int(l) < len(list) {
		return list[l].name
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}

// MarshalText returns the name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Extends returns the level that l adds instructions to; Auto: none.
func (l Level) Extends() Level { return list[l].extends }

// Includes reports whether l is m or extends it.
func (l Level) Includes(m Level) bool {
	for ; l != Auto; l = l.Extends() {
		if l == m {
			return true
		}
	}
	return false
}

// Vectors returns the level whose vector functions give the same bits as l's.
func (l Level) Vectors() Level { return list[l].vectors }

// Products returns the level whose matmuls give the same bits as l's.
func (l Level) Products() Level { return list[l].products }

// running returns l, or the first of those that it extends that this machine runs.
func (l Level) running() Level {
	for l != Portable && !slices.Contains(running, l) {
		l = l.Extends()
	}
	return l
}

// Resolve replaces Auto by the best level, and a level that this machine lacks by the one
// it extends.
func (l Level) Resolve() Level {
	if l == Auto {
		return Best()
	}
	return l.running()
}

// running are the levels that this machine runs, each after the one that it extends.
var running = func() []Level {
	has, all := supported(), []Level{Portable}
	for l := Portable + 1; int(l) < len(list); l++ {
		if has[l] && slices.Contains(all, l.Extends()) {
			all = append(all, l)
		}
	}
	return all
}()

// Levels returns the levels that this machine runs, the lowest first.
func Levels() []Level { return slices.Clone(running) }

// Best returns the highest level that this machine runs.
func Best() Level { return running[len(running)-1] }

// Runs reports whether this machine runs the level.
func Runs(l Level) bool { return slices.Contains(running, l) }
