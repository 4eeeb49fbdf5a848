package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// methodsOf names the methods that a value has.
func methodsOf(v any) []string {
	switch v.(type) {
	case string:
		return []string{"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "title", "capitalize", "replace", "find", "count", "join", "removeprefix", "removesuffix"}
	case *dict:
		return []string{"items", "keys", "values", "get"}
	}
	return nil
}

func (x *run) method(m method, args []any, line int) any {
	want := func(least, most int) {
		if len(args) < least || len(args) > most {
			failf(line, "%s() does not take %d arguments", m.name, len(args))
		}
	}
	text := func(i int) string {
		s, ok := args[i].(string)
		if !ok {
			failf(line, "%s() wants a text, got %s", m.name, kind(args[i]))
		}
		return s
	}
	if d, ok := m.of.(*dict); ok {
		if m.name != "get" {
			want(0, 0)
			return x.entries(d, m.name)
		}
		want(1, 2)
		if v, ok := d.of[text(0)]; ok {
			return v
		}
		return append(args, nil)[1]
	}
	s := m.of.(string) // methodsOf has no others
	x.spend(len(s))
	switch m.name {
	case "strip", "lstrip", "rstrip":
		want(0, 1)
		cut := isSpace
		if len(args) == 1 && args[0] != nil {
			set := text(0)
			x.spendProduct(int64(len(s)), int64(len(set)))
			cut = func(r rune) bool { return strings.ContainsRune(set, r) }
		}
		if m.name != "rstrip" {
			s = strings.TrimLeftFunc(s, cut)
		}
		if m.name != "lstrip" {
			s = strings.TrimRightFunc(s, cut)
		}
		return s
	case "split":
		want(0, 2)
		if len(args) == 0 {
			return x.words(s)
		}
		n := int64(-1)
		if len(args) == 2 {
			var ok bool
			if n, ok = args[1].(int64); !ok {
				failf(line, "split() wants a whole number of cuts, got %s", kind(args[1]))
			}
		}
		at := text(0)
		if at == "" {
			failf(line, "split() wants a text to split at")
		}
		return x.parts(s, at, n)
	case "startswith", "endswith":
		want(1, 1)
		return x.isPrefix(s, args[0], m.name == "endswith", line)
	case "removeprefix":
		want(1, 1)
		return strings.TrimPrefix(s, text(0))
	case "removesuffix":
		want(1, 1)
		return strings.TrimSuffix(s, text(0))
	case "replace":
		want(2, 2)
		return x.replaced(s, text(0), text(1))
	case "find":
		want(1, 1)
		i := strings.Index(s, text(0))
		if i < 0 {
			return int64(i)
		}
		return int64(utf8.RuneCountInString(s[:i]))
	case "count":
		want(1, 1)
		return int64(strings.Count(s, text(0)))
	case "join":
		want(1, 1)
		return x.joined(args[0], s, line)
	}
	want(0, 0)
	return x.cased(m.name, s)
}

// memberOf returns of.name or of[name].
func (x *run) memberOf(of any, name string, line int) any {
	switch of := of.(type) {
	case undefined:
		failf(line, "%s is not defined, and has no %s", of.name, few(name))
	case *dict:
		if v, ok := of.of[name]; ok {
			return v
		}
	case *namespace:
		if v, ok := of.m[name]; ok {
			return v
		}
	case *state:
		return of.member(name, line)
	case *macro:
		failf(line, "%s.%s is not supported: a macro can be called and no more", of.name, few(name))
	}
	if slices.Contains(methodsOf(of), name) {
		return method{of, name}
	}
	return undefined{few(name)}
}

// member returns an attribute of a template's loop.
func (s *state) member(name string, line int) any {
	switch name {
	case "index":
		return int64(s.index + 1)
	case "index0":
		return int64(s.index)
	case "revindex":
		return int64(len(s.items) - s.index)
	case "revindex0":
		return int64(len(s.items) - s.index - 1)
	case "length":
		return int64(len(s.items))
	case "first":
		return s.index == 0
	case "last":
		return s.index == len(s.items)-1
	case "previtem":
		if s.index > 0 {
			return s.items[s.index-1]
		}
	case "nextitem":
		if s.index+1 < len(s.items) {
			return s.items[s.index+1]
		}
	case "cycle", "changed", "depth", "depth0":
		failf(line, "loop.%s is not supported", name)
	}
	return undefined{"loop." + few(name)}
}
