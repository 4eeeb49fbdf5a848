// Package few shows lists and texts in messages, however long they are.
package few

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// most is how many items of a list are shown.
const most = 10

// Of returns the items separated by commas; of a long list, only the first ones and how
// many more there are. An item that begins or ends with a space is quoted.
func Of[T any](items []T) string {
	if len(items) == 0 {
		return "none"
	}
	var parts []string
	for _, x := range items[:min(len(items), most)] {
		text := fmt.Sprint(x)
		if text != strings.TrimSpace(text) {
			text = strconv.Quote(text)
		}
		parts = append(parts, Text(text, 80))
	}
	text := strings.Join(parts, ", ")
	if n := len(items) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Text returns s, cut after at most longest bytes: a hostile file may have a name of
// megabytes.
func Text(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	for longest > 0 && !utf8.RuneStart(s[longest]) {
		longest--
	}
	return fmt.Sprintf("%s... (%d bytes)", s[:longest], len(s))
}
