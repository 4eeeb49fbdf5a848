package plan

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/size"
)

// FLOPRate prints FLOP/s in decimal units.
func FLOPRate(x float64) string { return si(x) + "FLOP/s" }

// ByteRate prints bytes per second in decimal units.
func ByteRate(x float64) string { return si(x) + "B/s" }

func si(x float64) string {
	units := [...]string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for i < len(units)-1 && x >= 999.5 {
		x /= 1000
		i++
	}
	return digits(x) + " " + units[i]
}

// digits prints three significant digits.
func digits(x float64) string {
	switch {
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// seconds prints a duration.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return digits(s*1e6) + " us"
	case s < 1:
		return digits(s*1e3) + " ms"
	case s < 120:
		return digits(s) + " s"
	}
	return digits(s/60) + " min"
}

// between prints a range, or one figure if both ends read the same.
func between(show func(float64) string, from, to float64) string {
	a, b := show(from), show(to)
	if a == b {
		return a
	}
	number, unit, _ := strings.Cut(a, " ")
	if _, other, ok := strings.Cut(b, " "); ok && other == unit {
		a = number
	}
	return a + " to " + b
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// rounded prints the nearest integer with thousands separators.
func rounded(x float64) string { return size.Thousands(int64(x + .5)) }

func join(s []string) string { return strings.Join(s, ", ") }
