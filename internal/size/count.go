package size

import "fmt"

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
