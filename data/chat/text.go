package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Texts are created here, and counted before they are created: one expression can demand
// more than the memory there is.

// concat joins two texts.
func (x *run) concat(s, t string) string {
	x.spend(len(s) + len(t))
	return s + t
}

func (x *run) repeated(s string, n int64) string {
	if s == "" || n <= 0 {
		return ""
	}
	x.spendProduct(int64(len(s)), n)
	return strings.Repeat(s, int(n))
}

func (x *run) replaced(s, old, with string) string {
	x.spend(len(s))
	x.spendProduct(int64(strings.Count(s, old)), int64(len(with)))
	return strings.ReplaceAll(s, old, with)
}

func (x *run) joined(v any, with string, line int) string {
	l := x.list(v, line)
	x.spendProduct(int64(len(l)), int64(len(with)))
	texts := make([]string, len(l))
	for i, v := range l {
		texts[i] = shown(v, line)
		x.spend(elementBytes + len(texts[i]))
	}
	return strings.Join(texts, with)
}

// parts splits s at each at, making at most n cuts from the left; n < 0: all.
func (x *run) parts(s, at string, n int64) []any {
	x.spend(len(s))
	cuts := int64(strings.Count(s, at))
	if n >= 0 {
		cuts = min(cuts, n)
	}
	x.spendProduct(cuts+1, 2*elementBytes)
	return anys(strings.SplitN(s, at, int(cuts)+1))
}

func (x *run) words(s string) []any {
	x.spendProduct(int64(len(s)), 2*elementBytes)
	return anys(strings.FieldsFunc(s, isSpace))
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// isPrefix says whether s begins (or, from the end, ends) with t, or with any text of t.
func (x *run) isPrefix(s string, t any, atEnd bool, line int) bool {
	options, ok := t.([]any)
	if !ok {
		options = []any{t}
	}
	for _, o := range options {
		t, ok := o.(string)
		if !ok {
			failf(line, "%s is no text to look for", kind(o))
		}
		x.spend(len(t))
		if !atEnd && strings.HasPrefix(s, t) || atEnd && strings.HasSuffix(s, t) {
			return true
		}
	}
	return false
}

// cased returns s in another case, like Python's method of that name.
func (x *run) cased(how, s string) string {
	x.spend(3 * len(s))
	switch how {
	case "upper":
		return cases.Upper(language.Und).String(s)
	case "lower":
		return cases.Lower(language.Und).String(s)
	case "capitalize":
		return capitalized(s)
	}
	cased := func(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) }
	return eachRun(s, cased, capitalized)
}

// titled is the filter title, which handles apostrophes, unlike the method.
func (x *run) titled(s string) string {
	x.spend(3 * len(s))
	inside := func(r rune) bool { return !isSpace(r) && !strings.ContainsRune("-({[<", r) }
	return eachRun(s, inside, func(s string) string { return withFirst(s, cases.Upper(language.Und)) })
}

// eachRun returns s with each maximal run of certain characters in another case.
func eachRun(s string, inside func(rune) bool, in func(string) string) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, inside)
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		if n = strings.IndexFunc(s, func(r rune) bool { return !inside(r) }); n < 0 {
			n = len(s)
		}
		b.WriteString(in(s[:n]))
		s = s[n:]
	}
	return b.String()
}

func capitalized(s string) string { return withFirst(s, cases.Title(language.Und)) }

// withFirst returns s in lower case except for its first character.
func withFirst(s string, first cases.Caser) string {
	_, n := utf8.DecodeRuneInString(s)
	lower := cases.Lower(language.Und)
	// The last sigma of a word is its own letter, so s is lowered as a whole.
	return first.String(s[:n]) + lower.String(s)[len(lower.String(s[:n])):]
}
