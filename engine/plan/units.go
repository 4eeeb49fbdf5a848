package plan

import (
	"fmt"
	"math"
	"strings"
)

// Bytes prints as a person reads it: in binary units, with two decimals where they say something.
type Bytes int64

func (b Bytes) String() string {
	x, sign := float64(b), ""
	if x < 0 {
		x, sign = -x, "-"
	}
	if x < 1024 {
		return fmt.Sprintf("%s%.0f B", sign, x)
	}
	units := [...]string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	i := -1
	for i < len(units)-1 && (i < 0 || x >= 999.5) {
		x /= 1024
		i++
	}
	if x == math.Trunc(x) || x >= 99.995 {
		return fmt.Sprintf("%s%.0f %s", sign, x, units[i])
	}
	return fmt.Sprintf("%s%.2f %s", sign, x, units[i])
}

// FLOPRate prints FLOP/s, ByteRate bytes/s, in decimal units.
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

// digits gives three significant digits.
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

// count prints an integer with thousands apart.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func join(s []string) string { return strings.Join(s, ", ") }
