package chat

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

var filterNames = []string{"trim", "length", "count", "tojson", "upper", "lower", "title", "capitalize", "default", "d", "first", "last", "join", "list", "string", "replace", "int", "items"}

type filter struct {
	name  string
	of    expr
	args  []expr
	named map[string]expr
	line  int
}

func (f filter) eval(x *run) any {
	v := f.of.eval(x)
	args := make([]any, len(f.args))
	for i, a := range f.args {
		args[i] = a.eval(x)
	}
	if len(f.named) > 0 {
		failf(f.line, "named arguments of the filter %q are not supported", f.name)
	}
	most := map[string]int{"trim": 1, "default": 2, "d": 2, "join": 1, "replace": 2}[f.name]
	if len(args) > most || f.name == "replace" && len(args) < 2 {
		failf(f.line, "%d arguments of the filter %q are not supported", len(args), f.name)
	}
	text := func(v any) string { return shown(v, f.line) }
	switch f.name {
	case "trim":
		if len(args) == 1 {
			return strings.Trim(text(v), text(args[0]))
		}
		return strings.TrimFunc(text(v), unicode.IsSpace)
	case "length", "count":
		if s, ok := v.(string); ok {
			return int64(utf8.RuneCountInString(s))
		}
		return int64(len(list(v, f.line)))
	case "tojson":
		return f.json(v)
	case "default", "d":
		_, missing := v.(undefined)
		if missing || len(args) == 2 && truth(args[1]) && !truth(v) {
			return append(args, "")[0]
		}
		return v
	case "first", "last":
		l := list(v, f.line)
		switch {
		case len(l) == 0:
			return undefined{"the " + f.name + " of nothing"}
		case f.name == "first":
			return l[0]
		}
		return l[len(l)-1]
	case "join":
		return joined(v, text(append(args, "")[0]), f.line)
	case "list":
		return list(v, f.line)
	case "string":
		return text(v)
	case "replace":
		return strings.ReplaceAll(text(v), text(args[0]), text(args[1]))
	case "int":
		n, ok := number(v)
		if !ok {
			failf(f.line, "the filter int of %s is not supported", kind(v))
		}
		return int64(n)
	case "items":
		m, ok := v.(map[string]any)
		if !ok {
			failf(f.line, "%s has no items", kind(v))
		}
		return entries(m, "items")
	}
	return cased(f.name, text(v))
}

// json is a text, a number, true, false or none in JSON. What has keys is not supported:
// their order is not kept.
func (f filter) json(v any) string {
	switch v.(type) {
	case nil, bool, int64, float64, string:
	default:
		failf(f.line, "the filter tojson of %s is not supported", kind(v))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		failf(f.line, "tojson: %v", err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var testNames = []string{"defined", "undefined", "none", "string", "number", "integer", "boolean", "mapping", "iterable", "sequence", "true", "false", "odd", "even"}

type test struct {
	of   expr
	name string
	not  bool
	line int
}

func (t test) eval(x *run) any { return t.holds(t.of.eval(x)) != t.not }

func (t test) holds(v any) bool {
	switch t.name {
	case "none":
		return v == nil
	case "true":
		return v == true
	case "false":
		return v == false
	case "odd", "even":
		n, ok := v.(int64)
		if !ok {
			failf(t.line, "%s is neither odd nor even", kind(v))
		}
		return (n%2 != 0) == (t.name == "odd")
	}
	_, missing := v.(undefined)
	_, isText := v.(string)
	_, isBool := v.(bool)
	_, isWhole := v.(int64)
	_, isFloat := v.(float64)
	_, isMap := v.(map[string]any)
	_, isList := v.([]any)
	switch t.name {
	case "defined":
		return !missing
	case "undefined":
		return missing
	case "string":
		return isText
	case "number":
		return isWhole || isFloat || isBool
	case "integer":
		return isWhole
	case "boolean":
		return isBool
	case "mapping":
		return isMap
	}
	return isText || isMap || isList || missing // iterable, sequence
}
