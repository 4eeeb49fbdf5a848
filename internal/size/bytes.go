package size

import (
	"fmt"
	"math"
)

// Bytes prints in binary units, with two decimals where they matter.
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
