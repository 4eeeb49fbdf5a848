package simd

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/internal/isa"
)

// level is the level whose code is in use.
var level = column(isa.Best())

// column returns the level whose code serves l: its own or that of one it extends.
func column(l isa.Level) isa.Level {
	for l != isa.Portable && !slices.Contains(columns, l) {
		l = l.Extends()
	}
	return l
}

// Levels returns the levels with code of their own that this CPU runs, lowest first.
func Levels() []isa.Level {
	return slices.DeleteFunc(isa.Levels(), func(l isa.Level) bool { return column(l) != l })
}

// Active returns the level whose code is in use.
func Active() isa.Level { return level }

// Use makes every later call run the code of level l, or of the one it extends if the
// package has none for l. It must not run concurrently with other calls of the package, unless
// that is the level in use.
func Use(l isa.Level) error {
	if !isa.Runs(l) {
		return fmt.Errorf("simd: this CPU does not run %v code (its best level is %v)", l, isa.Best())
	}
	if c := column(l); c != level {
		level = c
	}
	return nil
}
