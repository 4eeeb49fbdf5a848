package chat

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// part is a part of a template: text, {{ an expression }} or {% a tag %}.
type part struct {
	kind byte // 't', '{' or '%'
	text string
	line int
}

// Error is a mistake in a template or in its input.
type Error struct {
	Line int // 0: the template as a whole
	Text string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "chat template: " + e.Text
	}
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Text)
}

func failf(line int, format string, args ...any) { panic(&Error{line, fmt.Sprintf(format, args...)}) }

// caught turns a panic of failf into an error.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		panic(r)
	}
}

// split cuts a template into parts, without comments, and with the whitespace around
// tags removed as trim_blocks and lstrip_blocks say.
func split(src string) (parts []part) {
	src = strings.TrimSuffix(strings.ReplaceAll(src, "\r\n", "\n"), "\n")
	line, trim := 1, byte(0) // how the previous tag affects the text after it
	for src != "" {
		open := opening(src)
		text := src[:open]
		rest := src[open:]
		shown := text
		switch trim {
		case '-':
			shown = strings.TrimLeft(shown, " \t\n\r\f\v")
		case '%':
			shown = strings.TrimPrefix(shown, "\n")
		}
		if rest == "" {
			parts = append(parts, part{'t', shown, line})
			return parts
		}
		kind, mark := rest[1], byte(0)
		if len(rest) > 2 && (rest[2] == '-' || rest[2] == '+') {
			mark = rest[2]
		}
		switch {
		case mark == '-':
			shown = strings.TrimRight(shown, " \t\n\r\f\v")
		case kind != '{' && mark != '+':
			// A tag that is first on its line in the template.
			bare := strings.TrimRight(shown, " \t")
			if strings.HasSuffix(bare, "\n") || bare == "" && (strings.HasSuffix(strings.TrimRight(text, " \t"), "\n") || len(parts) == 0 && trim == 0) {
				shown = bare
			}
		}
		if shown != "" {
			parts = append(parts, part{'t', shown, line})
		}
		line += strings.Count(text, "\n")
		body, length, end := inside(rest, kind, line)
		if mark != 0 {
			body = body[1:]
		}
		if strings.HasSuffix(body, "-") || strings.HasSuffix(body, "+") {
			trim, body = body[len(body)-1], body[:len(body)-1]
			if trim == '+' {
				trim = 'x' // a mark, so that no line is taken for the first
			}
		} else if kind != '{' {
			trim = '%'
		} else {
			trim = 'x'
		}
		if kind != '#' {
			parts = append(parts, part{kind, body, line})
		}
		line += strings.Count(rest[:length], "\n")
		src = rest[end:]
	}
	return parts
}

// opening returns where the next {{, {% or {# begins.
func opening(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && strings.IndexByte("{%#", s[i+1]) >= 0 {
			return i
		}
	}
	return len(s)
}

// inside returns the content of the tag that s begins with, and where the tag ends.
func inside(s string, kind byte, line int) (body string, length, end int) {
	closing := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[kind]
	quote := byte(0)
	depth := 0
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case kind == '#':
			if strings.HasPrefix(s[i:], closing) {
				return s[2:i], i + 2, i + 2
			}
		case quote != 0:
			switch c {
			case '\\':
				i++
			case quote:
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.HasPrefix(s[i:], closing) && depth <= 0:
			return s[2:i], i + 2, i + 2
		case c == '{' || c == '[' || c == '(':
			depth++
		case c == '}' || c == ']' || c == ')':
			depth--
		}
	}
	failf(line, "%q is not closed", "{"+string(kind))
	return "", 0, 0
}

// lexeme is a word of an expression.
type lexeme struct {
	kind byte // 'n' a name, 's' a string, '0' a number, 'o' an operator, 0 the end
	text string
}

var words = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_]*)|([0-9]+(?:\.[0-9]+)?)|('(?s:\\.|[^'\\])*'|"(?s:\\.|[^"\\])*")|(==|!=|<=|>=|//|\*\*|[-+*/%~<>()\[\]{},.:|=]))`)

func lex(s string, line int) (out []lexeme) {
	for {
		s = strings.TrimLeft(s, " \t\n\r")
		if s == "" {
			return append(out, lexeme{})
		}
		m := words.FindStringSubmatch(s)
		switch {
		case m == nil:
			failf(line, "cannot read %q", few(s))
		case m[1] != "":
			out = append(out, lexeme{'n', m[1]})
		case m[2] != "":
			out = append(out, lexeme{'0', m[2]})
		case m[3] != "":
			out = append(out, lexeme{'s', unquote(m[3][1 : len(m[3])-1])})
		default:
			out = append(out, lexeme{'o', m[4]})
		}
		s = s[len(m[0]):]
	}
}

// unquote reads escapes like Python.
func unquote(s string) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexByte(s, '\\')
		if n < 0 || n+1 == len(s) {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:n])
		s = s[n+1:]
		if i := strings.IndexByte("abfnrtv\\'\"\n", s[0]); i >= 0 {
			b.WriteString([]string{"\a", "\b", "\f", "\n", "\r", "\t", "\v", "\\", "'", "\"", ""}[i])
			s = s[1:]
			continue
		}
		digits, base := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]], 16
		skip := 1
		if s[0] >= '0' && s[0] <= '7' {
			skip, base = 0, 8
			for digits < 3 && digits < len(s) && s[digits] >= '0' && s[digits] <= '7' {
				digits++
			}
		}
		if digits > 0 && len(s) >= skip+digits {
			if v, err := strconv.ParseUint(s[skip:skip+digits], base, 32); err == nil && utf8.ValidRune(rune(v)) {
				b.WriteRune(rune(v))
				s = s[skip+digits:]
				continue
			}
		}
		b.WriteByte('\\')
	}
	return b.String()
}

// few returns the beginning of a text.
func few(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
