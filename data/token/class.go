package token

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is the set of properties of a character that components use.
type class uint16

const (
	letter        class = 1 << iota // \p{L}
	number                          // \p{N}
	space                           // \s, the property White_Space
	newline                         // [\r\n], also space
	upper                           // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                           // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	word                            // \w
	digit                           // numeric, for Digits
	punctuation                     // for Punctuation and BertPreTokenizer
	control                         // removed by BertNormalizer's clean_text
	nonspacing                      // removed by BertNormalizer's strip_accents
	mark                            // removed by StripAccents
	canonical                       // has a canonical decomposition
	compatibility                   // has a decomposition of any kind
	moving                          // has a combining class other than 0
)

var classNames = map[string]class{
	"letter": letter, "number": number, "upper": upper, "lower": lower, "word": word, "digit": digit, "punctuation": punctuation,
	"control": control, "nonspacing": nonspacing, "mark": mark, "canonical": canonical, "compatibility": compatibility, "moving": moving,
}

// charsText lists the characters of each class. They are those of Hugging Face's
// library, whose parts carry Unicode tables of different ages, and so they do not
// change with the tables of the Go release.
//
//go:embed chars.txt
var charsText string

// charTable holds the class of every character, in pages of 256, equal pages kept once,
// and the lower case of those that have one.
type charTable struct {
	page  [unicode.MaxRune>>8 + 1]uint16
	class [][256]class
	lower map[rune]rune
}

var chars = sync.OnceValue(func() *charTable {
	t, err := parseChars(charsText)
	if err != nil {
		panic(err) // the text is part of this package and tested
	}
	return t
})

func parseChars(text string) (*charTable, error) {
	flat := make([]class, unicode.MaxRune+1)
	for r := range rune(unicode.MaxLatin1 + 1) {
		if unicode.IsSpace(r) {
			flat[r] |= space
		}
	}
	for _, r := range [...]rune{0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000} {
		flat[r] |= space
	}
	for r := rune(0x2000); r <= 0x200A; r++ {
		flat[r] |= space
	}
	flat['\n'] |= newline
	flat['\r'] |= newline

	t := &charTable{lower: map[rune]rune{}}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if head, ok := strings.CutSuffix(line, ":"); ok {
			name = head
			continue
		}
		for item := range strings.FieldsSeq(line) {
			r, err := parseRun(item)
			if err != nil {
				return nil, fmt.Errorf("chars.txt: %s: %q: %w", name, item, err)
			}
			for c := r.first; c <= r.last; c += r.step {
				if name == "lowercase" {
					t.lower[c] = c + r.delta
				} else {
					flat[c] |= classNames[name]
				}
			}
		}
	}
	seen := map[[256]class]uint16{}
	for p := range t.page {
		page := [256]class(flat[p<<8:])
		n, ok := seen[page]
		if !ok {
			n = uint16(len(t.class))
			seen[page] = n
			t.class = append(t.class, page)
		}
		t.page[p] = n
	}
	return t, nil
}

// A charRun is first-last or first-last/step in hex, followed by the distance to the
// lower case: +32, or _32 for 32 down.
type charRun struct{ first, last, step, delta rune }

func parseRun(s string) (r charRun, err error) {
	number := func(s string, base int) rune {
		v, e := strconv.ParseInt(s, base, 32)
		if e != nil {
			err = e
		}
		return rune(v)
	}
	r.step = 1
	if run, up, ok := strings.Cut(s, "+"); ok {
		s, r.delta = run, number(up, 10)
	} else if run, down, ok := strings.Cut(s, "_"); ok {
		s, r.delta = run, -number(down, 10)
	}
	s, step, ok := strings.Cut(s, "/")
	if ok {
		r.step = number(step, 10)
	}
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		last = first
	}
	r.first, r.last = number(first, 16), number(last, 16)
	if err == nil && (r.first > r.last || r.last > unicode.MaxRune || r.step < 1) {
		err = fmt.Errorf("not a run of characters")
	}
	return r, err
}

// asciiClass is the start of the table, known without it.
var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		switch {
		case 'A' <= r && r <= 'Z':
			t[r] = letter | upper | word
		case 'a' <= r && r <= 'z':
			t[r] = letter | lower | word
		case '0' <= r && r <= '9':
			t[r] = number | digit | word
		case r == '\n' || r == '\r':
			t[r] = space | newline
		case r == ' ' || r == '\t':
			t[r] = space
		case r == '\v' || r == '\f':
			t[r] = space | control
		case r < ' ' || r == 0x7F:
			t[r] = control
		case r == '_':
			t[r] = punctuation | word
		default:
			t[r] = punctuation
		}
	}
	return t
}()

// classOf returns the class of a character.
func classOf(r rune) class {
	if uint32(r) < utf8.RuneSelf {
		return asciiClass[r]
	}
	t := chars()
	return t.class[t.page[r>>8]][r&0xFF]
}

// classAt returns the class and the size in bytes of the character at s[i]. A byte that
// is not UTF-8 is U+FFFD of size 1.
func classAt(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return classOf(r), n
}

func isSpace(r rune) bool { return classOf(r)&space != 0 }
