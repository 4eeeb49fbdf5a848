package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is an amount of memory. It parses 14GiB, 512 MiB, 16GB, 1.5GiB and plain numbers of bytes.
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// mostBytes is the largest valid size, more than the memory or disks of any machine.
const mostBytes = 1 << 50

// UnmarshalText parses a size. Units follow SI and IEC (GB = 1e9, GiB = 2^30), ignoring case.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, unit := splitUnit(string(text))
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > mostBytes/unit {
			return fmt.Errorf("size out of range")
		}
		*b = Bytes(n * unit)
		return nil
	}
	x, err := strconv.ParseFloat(number, 64)
	if x *= float64(unit); err != nil || !(x >= 0 && x <= mostBytes) {
		return fmt.Errorf("not a size")
	}
	*b = Bytes(x)
	return nil
}

// splitUnit splits a size into its number and the number of bytes in its unit.
func splitUnit(s string) (number string, unit int64) {
	s = strings.TrimSpace(s)
	for _, u := range byteUnits {
		if len(s) > len(u.name) && strings.EqualFold(s[len(s)-len(u.name):], u.name) {
			return strings.TrimSpace(s[:len(s)-len(u.name)]), u.size
		}
	}
	return s, 1
}

// excess describes the bound that a size exceeds.
func (Bytes) excess(text string) string {
	number, unit := splitUnit(text)
	x, _ := strconv.ParseFloat(number, 64) // infinite if float64 cannot hold it
	if x*float64(unit) > mostBytes {
		return fmt.Sprintf("at most %v (more than any machine has)", Bytes(mostBytes))
	}
	return ""
}

// MarshalText uses the largest unit that is exact.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// expects describes the format for error messages.
func (Bytes) expects() string { return "a size such as 14GiB or 512MiB" }
