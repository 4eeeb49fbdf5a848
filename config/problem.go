package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is the layer that a value came from. Later layers win.
type Kind int

// The layers, in the order in which they apply.
const (
	Default Kind = iota
	Preset
	File
	Flag
	Derived // computed from other values at the end, because it was left open
)

// Origin says where a value came from.
type Origin struct {
	Kind Kind
	Name string // of the preset, file or flag; for Derived, the source
	Line int    // in the preset or file; 0 if unknown
}

func (o Origin) String() string {
	s := o.Name
	switch o.Kind {
	case Default:
		return "default"
	case Preset:
		s = "preset " + s
	case Derived:
		return "from " + s
	}
	if o.Line > 0 {
		s += fmt.Sprintf(":%d", o.Line)
	}
	return s
}

// Problem is a fault or a warning in a configuration.
type Problem struct {
	Origin Origin
	Key    string // dotted; "" if the fault is not about one key
	Text   string // what was expected, what was found, what to do
}

func (p Problem) String() string {
	var parts []string
	if p.Origin.Kind != Default {
		parts = append(parts, p.Origin.String())
	}
	if p.Key != "" && p.Origin.Name != "--"+p.Key {
		parts = append(parts, p.Key)
	}
	return strings.Join(append(parts, p.Text), ": ")
}

// Error lists all faults of a configuration.
type Error struct{ Problems []Problem }

// shown limits the faults printed, because a file in a foreign format would give hundreds.
const shown = 20

func (e *Error) Error() string {
	var lines []string
	for _, p := range e.Problems[:min(len(e.Problems), shown)] {
		lines = append(lines, p.String())
	}
	if n := len(e.Problems) - shown; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(lines, "\n")
}

// ExitCode is the exit code for this error: 2, wrong usage.
func (*Error) ExitCode() int { return 2 }

// problems collects faults while a configuration is read.
type problems []Problem

func (ps *problems) add(o Origin, key, format string, args ...any) {
	*ps = append(*ps, Problem{o, key, fmt.Sprintf(format, args...)})
}

// err returns the faults in the order of the layers, by line, or nil if there are none.
func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Origin.Kind, b.Origin.Kind), cmp.Compare(a.Origin.Line, b.Origin.Line))
	})
	return &Error{ps}
}
