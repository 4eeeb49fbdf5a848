package size

import (
	"fmt"
	"strings"
)

// Count prints a number in about three digits, a large one in thousands (k), millions (M)
// or billions (B).
func Count(x float64) string {
	switch {
	case x >= 1e9:
		return fmt.Sprintf("%.2fB", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Thousands prints an integer with separators: 1,234,567.
func Thousands[T ~int | ~int32 | ~int64 | ~uint64](n T) string {
	s := fmt.Sprintf("%d", n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Of prints a count with its noun, which is passed in the singular: 1 thread, 2 threads,
// 3 batches, 4,000 rows.
func Of[T ~int | ~int32 | ~int64 | ~uint64](n T, one string) string {
	if n == 1 {
		return "1 " + one
	}
	many := one + "s"
	for _, end := range []string{"ch", "sh", "s", "x"} {
		if strings.HasSuffix(one, end) {
			many = one + "es"
		}
	}
	if root, ok := strings.CutSuffix(one, "y"); ok && !strings.ContainsAny(root[len(root)-1:], "aeiou") {
		many = root + "ies"
	}
	return Thousands(n) + " " + many
}
