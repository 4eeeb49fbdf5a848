package monitor

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a line of text in a snapshot, in characters.
const maxText = 2000

// Printable returns a text without what a terminal or a page would interpret: escape
// sequences, control characters, and those that change the direction of writing. Line
// breaks and tabs become spaces, and invalid UTF-8 becomes U+FFFD. The text is cut after
// 2000 characters.
func Printable(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	for n := 0; len(text) > 0 && n < maxText; n++ {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == '\x1b', r == '\u009b':
			size = escapeSequence(text)
		case r == '\n', r == '\t', r == '\r', r == '\u2028', r == '\u2029':
			b.WriteByte(' ')
		case unicode.Is(unicode.Cf, r), unicode.IsControl(r):
		default:
			b.WriteRune(r) // U+FFFD for a byte that is not UTF-8
		}
		text = text[size:]
	}
	return b.String()
}

// plain reports whether a text is printable ASCII of moderate length, as nearly all texts
// are.
func plain(text string) bool {
	if len(text) > maxText {
		return false
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// escapeSequence returns the length of the escape sequence that a text begins with
// (ECMA-48): a control sequence, a string that a terminator ends, or two characters.
func escapeSequence(text string) int {
	i := 2
	kind := byte('[') // U+009B begins a control sequence by itself
	if text[0] == '\x1b' {
		if len(text) < 2 {
			return len(text)
		}
		kind = text[1]
	}
	switch kind {
	case '[':
		for i < len(text) && text[i] >= ' ' && text[i] <= '?' { // parameters and intermediates
			i++
		}
		if i < len(text) && text[i] >= '@' && text[i] <= '~' {
			i++
		}
	case ']', 'P', 'X', '^', '_':
		if end := strings.IndexAny(text[2:], "\a\x1b\u009c\n"); end >= 0 {
			i = 2 + end
			switch {
			case strings.HasPrefix(text[i:], "\x1b\\"), strings.HasPrefix(text[i:], "\u009c"):
				i += 2
			case text[i] == '\a':
				i++
			}
		} else {
			i = len(text)
		}
	default:
		if kind >= utf8.RuneSelf || kind < ' ' {
			i = 1 // a lone escape character
		}
	}
	return i
}
