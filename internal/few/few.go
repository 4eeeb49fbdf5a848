// Package few shows lists in messages, however long they are.
package few

import (
	"fmt"
	"strings"
)

// most is how many items of a list are shown.
const most = 10

// Of is the items separated by commas; of a long list, the first ones and how
// many more there are.
func Of[T any](items []T) string {
	if len(items) == 0 {
		return "none"
	}
	var parts []string
	for _, x := range items[:min(len(items), most)] {
		parts = append(parts, clip(fmt.Sprint(x)))
	}
	text := strings.Join(parts, ", ")
	if n := len(items) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// clip shortens an item: the names of files' columns may be of any length.
func clip(s string) string {
	const longest = 80
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-3]) + "..."
	}
	return s
}
