package token

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// regex is a regular expression that has no scanner. The reference runs it in Oniguruma
// with Ruby's syntax; here regexp2 runs it, whose syntax is that of .NET. translateRegex
// bridges what differs and refuses what it cannot bridge. Letters and numbers are those
// of chars.txt; the other categories are the Go release's, which lack characters that
// Unicode assigned later.
type regex struct{ *regexp2.Regexp }

func compileRegex(s string) (regex, error) {
	translated, err := translateRegex(s)
	if err != nil {
		return regex{}, fmt.Errorf("regular expression: %w", err)
	}
	re, err := regexp2.Compile(translated, regexp2.OptionMaxBacktrackingStackSize(maxBacktracking))
	if err != nil {
		return regex{}, fmt.Errorf("regular expression: %w", err)
	}
	re.MatchTimeout = matchTimeout
	return regex{re}, nil
}

func (re regex) find(s string) []Span {
	found, err := re.FindAllStringIndex(s, -1)
	if err != nil {
		exceed("has a pattern that tries too many ways to match a text of %d bytes: %.100q: %v", len(s), re.String(), err)
	}
	out := make([]Span, len(found))
	for i, m := range found {
		out[i] = Span{m[0], m[1]}
	}
	return out
}

// A regexTranslator walks through a pattern.
type regexTranslator struct {
	in  string
	at  int
	out strings.Builder
}

func translateRegex(s string) (string, error) {
	if len(s) > 1<<16 {
		return "", fmt.Errorf("%d bytes; at most %d are supported", len(s), 1<<16)
	}
	if err := checkFolding(s); err != nil {
		return "", err
	}
	t := &regexTranslator{in: s}
	for t.at < len(t.in) {
		if err := t.next(); err != nil {
			return "", fmt.Errorf("at byte %d: %w", t.at, err)
		}
	}
	return t.out.String(), nil
}

// checkFolding refuses case-insensitive text that Oniguruma also finds in ligatures and
// the like, such as ss in the sharp s.
func checkFolding(s string) error {
	if !strings.Contains(s, "(?i") {
		return nil
	}
	low := strings.ToLower(s)
	for _, pair := range [...]string{"ss", "st", "ff", "fi", "fl"} {
		if strings.Contains(low, pair) {
			return fmt.Errorf("%q without regard to case is not supported", pair)
		}
	}
	for _, r := range s {
		if r >= utf8.RuneSelf {
			return fmt.Errorf("%q without regard to case is not supported", r)
		}
	}
	return nil
}

// take copies n bytes.
func (t *regexTranslator) take(n int) {
	t.out.WriteString(t.in[t.at : t.at+n])
	t.at += n
}

// put writes s instead of n bytes.
func (t *regexTranslator) put(n int, s string) {
	t.out.WriteString(s)
	t.at += n
}

func (t *regexTranslator) next() error {
	switch b := t.in[t.at]; b {
	case '\\':
		return t.escape(false)
	case '[':
		return t.class()
	case '(':
		return t.group()
	case '^': // at every line, but not after the last line end
		t.put(1, `(?:\A|(?<=\n)(?!\z))`)
	case '$':
		t.put(1, `(?=\n|\z)`)
	case '*', '+', '?':
		t.take(1)
		if t.at < len(t.in) && (t.in[t.at] == '?' || t.in[t.at] == '+') {
			t.take(1)
		}
		return t.noMoreQuantifiers()
	case '{':
		return t.count()
	case '#', ' ': // ordinary characters, as nothing switches to the extended syntax
		t.take(1)
	default:
		_, n := utf8.DecodeRuneInString(t.in[t.at:])
		t.take(n)
	}
	return nil
}

// noMoreQuantifiers refuses a quantifier of a quantifier, which the two engines read
// differently.
func (t *regexTranslator) noMoreQuantifiers() error {
	if t.at < len(t.in) && strings.IndexByte("*+?{", t.in[t.at]) >= 0 {
		return fmt.Errorf("a quantifier after a quantifier is not supported")
	}
	return nil
}

// count translates {n}, {n,}, {n,m} or {,m}.
func (t *regexTranslator) count() error {
	end := strings.IndexByte(t.in[t.at:], '}')
	if end < 0 {
		return fmt.Errorf("an open { is not supported")
	}
	least, most, two := strings.Cut(t.in[t.at+1:t.at+end], ",")
	if least == "" && two {
		least = "0"
	}
	for _, s := range [...]string{least, most} {
		if n, err := strconv.Atoi(s); s != "" && (err != nil || n < 0 || n > 1000) || least == "" {
			return fmt.Errorf("the repetition %s is not supported", t.in[t.at:t.at+end+1])
		}
	}
	s := "{" + least
	if two {
		s += "," + most
	}
	t.put(end+1, s+"}")
	if two && t.at < len(t.in) && t.in[t.at] == '?' {
		t.take(1)
	}
	return t.noMoreQuantifiers()
}

// group translates the opening of a group.
func (t *regexTranslator) group() error {
	rest := t.in[t.at:]
	if !strings.HasPrefix(rest, "(?") {
		t.put(1, "(?:") // its capture could not be used
		return nil
	}
	for _, open := range [...]string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"} {
		if strings.HasPrefix(rest, open) {
			t.take(len(open))
			return nil
		}
	}
	if strings.HasPrefix(rest, "(?i)") && t.at == 0 {
		t.take(len("(?i)"))
		return nil
	}
	return fmt.Errorf("the group %.5q is not supported", rest)
}

// escape translates a backslash and what follows it.
func (t *regexTranslator) escape(inClass bool) error {
	rest := t.in[t.at+1:]
	if rest == "" {
		return fmt.Errorf("a backslash at the end is not supported")
	}
	r, n := utf8.DecodeRuneInString(rest)
	switch {
	case strings.ContainsRune("dDsSnrtfvae", r):
		t.take(2)
	case r == 'w' && inClass:
		t.put(2, wordInClass())
	case r == 'w':
		t.put(2, "["+wordAlone()+"]")
	case r == 'W' && !inClass:
		t.put(2, "[^"+wordAlone()+"]")
	case r == 'b' && !inClass:
		t.put(2, fmt.Sprintf(`(?:(?<=[%[1]s])(?![%[1]s])|(?<![%[1]s])(?=[%[1]s]))`, wordAlone()))
	case r == 'B' && !inClass:
		t.put(2, fmt.Sprintf(`(?:(?<=[%[1]s])(?=[%[1]s])|(?<![%[1]s])(?![%[1]s]))`, wordAlone()))
	case (r == 'A' || r == 'z') && !inClass:
		t.take(2)
	case r == 'p' || r == 'P':
		return t.property(rest, inClass)
	case r == 'u' && len(rest) >= 5:
		return t.code(6, rest[1:5])
	case r == 'x' && strings.HasPrefix(rest, "x{"):
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return fmt.Errorf(`an open \x{ is not supported`)
		}
		return t.code(end+2, rest[2:end])
	case r == 'x' && len(rest) >= 3 && rest[1] < '8':
		return t.code(4, rest[1:3])
	case r >= utf8.RuneSelf || !syntax.IsWordChar(r):
		t.put(1+n, literalRune(r))
	default:
		return fmt.Errorf(`\%c is not supported`, r)
	}
	return nil
}

// literalRune spells a character so that it means itself anywhere.
func literalRune(r rune) string {
	if r > 0xFFFF {
		return string(r)
	}
	return fmt.Sprintf(`\u%04X`, r)
}

// code replaces n bytes by the character of a hexadecimal number.
func (t *regexTranslator) code(n int, hex string) error {
	v, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || !utf8.ValidRune(rune(v)) {
		return fmt.Errorf("%q is not a character code", hex)
	}
	t.put(n, literalRune(rune(v)))
	return nil
}

// property translates p or P with a general category or a script.
func (t *regexTranslator) property(rest string, inClass bool) error {
	end := strings.IndexByte(rest, '}')
	if len(rest) < 2 || rest[1] != '{' || end < 0 {
		return fmt.Errorf(`\%c needs {...}`, rest[0])
	}
	name, not := strings.CutPrefix(rest[2:end], "^")
	_, category := unicode.Categories[name]
	_, script := unicode.Scripts[name]
	if !category && !script {
		return fmt.Errorf(`\p{%s} is not supported; a general category or a script is`, name)
	}
	not = not != (rest[0] == 'P')
	later := ""
	switch name {
	case "L":
		later = laterLetters()
	case "N":
		later = laterNumbers()
	}
	switch {
	case not && inClass:
		t.put(end+2, `\P{`+name+`}`)
	case not:
		t.put(end+2, `[^\p{`+name+`}`+later+`]`)
	case inClass:
		t.put(end+2, `\p{`+name+`}`+later)
	default:
		t.put(end+2, `[\p{`+name+`}`+later+`]`)
	}
	return nil
}

// laterOnes returns the characters of a class that the tables of the Go release lack, as
// members of a class in brackets.
func laterOnes(want class, tables ...*unicode.RangeTable) string {
	var out strings.Builder
	for first := rune(utf8.RuneSelf); first <= unicode.MaxRune; first++ {
		last := first
		for classOf(last)&want != 0 && !unicode.In(last, tables...) {
			last++
		}
		if last > first {
			fmt.Fprintf(&out, "%s-%s", literalRune(first), literalRune(last-1))
			first = last
		}
	}
	return out.String()
}

var (
	laterLetters = sync.OnceValue(func() string { return laterOnes(letter, unicode.L) })
	laterNumbers = sync.OnceValue(func() string { return laterOnes(number, unicode.N) })

	// The members of \w: outside brackets, Oniguruma includes some characters of Latin-1
	// that it leaves out within brackets.
	wordInClass = sync.OnceValue(func() string {
		return `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\p{Other_Alphabetic}` + laterOnes(word, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
			unicode.Other_Alphabetic, unicode.Join_Control)
	})
	wordAlone = sync.OnceValue(func() string { return wordInClass() + `\u00B2\u00B3\u00B9\u00BC-\u00BE` })
)

// class translates a class of characters in brackets.
func (t *regexTranslator) class() error {
	t.take(1)
	if t.at < len(t.in) && t.in[t.at] == '^' {
		t.take(1)
	}
	for first := true; t.at < len(t.in); first = false {
		switch b := t.in[t.at]; {
		case b == ']' && !first:
			t.take(1)
			return nil
		case b == ']' || b == '[':
			return fmt.Errorf("%q within brackets is not supported; write \\%c", b, b)
		case strings.HasPrefix(t.in[t.at:], "&&"):
			return fmt.Errorf("the intersection && is not supported")
		case b == '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		case b == '-':
			t.take(1)
		default:
			r, n := utf8.DecodeRuneInString(t.in[t.at:])
			t.put(n, literalRune(r))
		}
	}
	return fmt.Errorf("an open [ is not supported")
}
