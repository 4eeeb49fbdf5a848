package token

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class says what a split pattern can ask about a character.
type class uint8

const (
	letter  class = 1 << iota // \p{L}
	number                    // \p{N}
	space                     // \s
	newline                   // [\r\n], also space
	upper                     // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                     // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
)

var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		t[r] = classify(r)
	}
	return t
}()

func classify(r rune) (c class) {
	switch {
	case unicode.Is(unicode.L, r):
		c = letter
	case unicode.Is(unicode.N, r):
		c = number
	case unicode.Is(unicode.White_Space, r):
		c = space
	}
	if r == '\r' || r == '\n' {
		c |= newline
	}
	if unicode.In(r, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M) {
		c |= upper
	}
	if unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M) {
		c |= lower
	}
	return c
}

// classTable holds the class of every character: pages of 256, equal pages kept once.
type classTable struct {
	page  [unicode.MaxRune>>8 + 1]uint16
	class [][256]class
}

var wideClass = sync.OnceValue(func() *classTable {
	flat := make([]class, unicode.MaxRune+1)
	mark := func(c class, tables ...*unicode.RangeTable) {
		for _, t := range tables {
			for _, r := range t.R16 {
				for v := rune(r.Lo); v <= rune(r.Hi); v += rune(r.Stride) {
					flat[v] |= c
				}
			}
			for _, r := range t.R32 {
				for v := rune(r.Lo); v <= rune(r.Hi); v += rune(r.Stride) {
					flat[v] |= c
				}
			}
		}
	}
	mark(letter, unicode.L)
	mark(number, unicode.N)
	mark(space, unicode.White_Space)
	mark(upper, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M)
	mark(lower, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M)

	t := &classTable{}
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
	return t
})

// classAt gives the class and the size in bytes of the character at s[i]. A byte that is not UTF-8 is a character of no class.
func classAt(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	t := wideClass()
	return t.class[t.page[r>>8]][r&0xFF], n
}
