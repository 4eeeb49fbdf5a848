package token

import (
	"strings"
)

// A pattern finds its matches in a text: in order, without overlap.
type pattern interface {
	find(s string) []Span
}

// readPattern reads {"String": s} or {"Regex": s}.
func readPattern(n node) pattern {
	o := n.object()
	text, regex := o.get("String"), o.get("Regex")
	o.done()
	switch {
	case o.err != nil:
	case regex.isNull():
		s := text.str()
		if s == "" && o.err == nil {
			text.fail("an empty pattern is not supported")
		}
		return literal(s)
	case !text.isNull():
		n.fail("expected String or Regex, found both")
	default:
		return readRegex(regex)
	}
	return literal("")
}

func readRegex(n node) pattern {
	s := n.str()
	if f, ok := scanners[s]; ok {
		return f
	}
	re, err := compileRegex(s)
	if err != nil {
		n.fail("%v", err)
		return literal("")
	}
	return re
}

// literal is a string that is searched literally.
type literal string

func (p literal) find(s string) (out []Span) {
	if p == "" {
		return nil
	}
	for i := 0; ; {
		n := strings.Index(s[i:], string(p))
		if n < 0 {
			return out
		}
		out = append(out, Span{i + n, i + n + len(p)})
		i += n + len(p)
	}
}

func (f scanner) find(s string) (out []Span) {
	for i := 0; i < len(s); {
		end := f(s, i)
		out = append(out, Span{i, end})
		i = end
	}
	return out
}
