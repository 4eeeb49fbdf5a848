package chat

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// filters are the supported filters, with the names of their arguments; a name that ends
// with "!" is required, "..." takes any number.
var filters = map[string][]string{
	"trim": {"chars"}, "length": nil, "count": nil, "tojson": {"indent"}, "upper": nil, "lower": nil, "title": nil, "capitalize": nil,
	"default": {"default_value", "boolean"}, "d": {"default_value", "boolean"}, "first": nil, "last": nil, "join": {"d", "attribute"},
	"list": nil, "string": nil, "replace": {"old!", "new!"}, "int": nil, "items": nil,
	"select": {"..."}, "reject": {"..."}, "selectattr": {"..."}, "rejectattr": {"..."}, "map": {"..."},
}

var filterNames = slices.Sorted(maps.Keys(filters))

type filter struct {
	name string
	of   expr
	arguments
	line int
}

func (f filter) eval(x *run) any {
	v := x.value(f.of)
	list, named := f.values(x)
	return x.filter(f.name, v, list, named, f.line)
}

// absent is an argument that was not passed.
type absent struct{}

// ordered puts arguments into the order of a filter's.
func ordered(filter string, list []any, named *dict, line int) []any {
	names := filters[filter]
	if len(list) > len(names) {
		failf(line, "the filter %q with %d arguments is not supported", filter, len(list))
	}
	args := slices.Repeat([]any{absent{}}, len(names))
	copy(args, list)
	for _, name := range named.keys {
		i := slices.IndexFunc(names, func(n string) bool { return strings.TrimSuffix(n, "!") == name })
		if i < len(list) {
			failf(line, "the argument %s of the filter %q is not supported", name, filter)
		}
		args[i] = named.of[name]
	}
	for i, name := range names {
		if args[i] == any(absent{}) && strings.HasSuffix(name, "!") {
			failf(line, "the filter %q wants %s", filter, strings.TrimSuffix(name, "!"))
		}
	}
	return args
}

func (x *run) filter(name string, v any, list []any, named *dict, line int) any {
	switch name {
	case "select", "reject", "selectattr", "rejectattr":
		return x.chosen(name, v, list, named, line)
	case "map":
		return x.mapped(v, list, named, line)
	}
	args := ordered(name, list, named, line)
	given := func(i int) bool { return args[i] != any(absent{}) }
	text := func(v any) string {
		s := shown(v, line)
		x.spend(len(s))
		return s
	}
	switch name {
	case "trim":
		if given(0) {
			return x.method(method{text(v), "strip"}, args, line)
		}
		return strings.TrimFunc(text(v), isSpace)
	case "length", "count":
		return x.length(v, line)
	case "tojson":
		return x.json(v, line)
	case "default", "d":
		_, missing := v.(undefined)
		switch {
		case !missing && (!given(1) || !truth(args[1]) || truth(v)):
			return v
		case given(0):
			return args[0]
		}
		return ""
	case "first", "last":
		l := x.list(v, line)
		switch {
		case len(l) == 0:
			return undefined{"the " + name + " of nothing"}
		case name == "first":
			return l[0]
		}
		return l[len(l)-1]
	case "join":
		between := ""
		if given(0) {
			between = text(args[0])
		}
		if given(1) {
			v = x.attributes(v, args[1], line)
		}
		return x.joined(v, between, line)
	case "list":
		return x.list(v, line)
	case "string":
		return text(v)
	case "replace":
		return x.replaced(text(v), text(args[0]), text(args[1]))
	case "int":
		n, ok := number(v)
		if !ok {
			failf(line, "the filter int of %s is not supported", kind(v))
		}
		return int64(n)
	case "items":
		switch v := v.(type) {
		case *dict:
			return &generator{x.entries(v, "items")}
		case undefined:
			return &generator{}
		}
		failf(line, "%s has no items", kind(v))
	case "title":
		return x.titled(text(v))
	}
	return x.cased(name, text(v))
}

// chosen returns the result of select, reject, selectattr and rejectattr: the elements for
// which a test holds, or does not, on them or on an attribute; without a test, whether
// they are true.
func (x *run) chosen(name string, v any, args []any, named *dict, line int) any {
	if len(named.keys) > 0 {
		failf(line, "named arguments of the filter %q are not supported", name)
	}
	items := x.list(v, line)
	values := items
	if strings.HasSuffix(name, "attr") {
		if len(args) == 0 {
			failf(line, "the filter %q wants the name of an attribute", name)
		}
		values, args = x.attributes(items, args[0], line), args[1:]
	}
	holds := truth
	if len(args) > 0 {
		test, _ := args[0].(string)
		if n, ok := tests[test]; !ok || n != len(args)-1 {
			failf(line, "the filter %q with the test %s of %d arguments is not supported; want one of %s", name, spelled(args[0]), len(args)-1, strings.Join(testNames, ", "))
		}
		holds = func(v any) bool { return x.test(test, v, args[1:], line) }
	}
	g := &generator{}
	for i, v := range values {
		x.spend(elementBytes)
		if holds(v) == strings.HasPrefix(name, "select") {
			g.items = append(g.items, items[i])
		}
	}
	return g
}

// mapped returns the result of the filter map: an attribute of each element, or a filter
// applied to it.
func (x *run) mapped(v any, args []any, named *dict, line int) any {
	items := x.list(v, line)
	if attribute, ok := named.of["attribute"]; ok && len(args) == 0 {
		out := x.attributes(items, attribute, line)
		otherwise, ok := named.of["default"]
		if len(named.keys) > 2 || len(named.keys) == 2 && !ok {
			failf(line, "the filter map takes attribute and default")
		}
		for i, v := range out {
			if _, missing := v.(undefined); missing && ok {
				out[i] = otherwise
			}
		}
		return &generator{out}
	}
	if len(args) == 0 {
		failf(line, "the filter map wants a filter, or attribute=")
	}
	name, _ := args[0].(string)
	if _, ok := filters[name]; !ok || name == "map" {
		failf(line, "the filter map with the filter %s is not supported; want one of %s", spelled(args[0]), strings.Join(filterNames, ", "))
	}
	out := make([]any, len(items))
	for i, v := range items {
		x.spend(elementBytes)
		out[i] = x.filter(name, v, args[1:], named, line)
	}
	return &generator{out}
}

// attributes returns an attribute of each element: a name, an index of a list, or several
// of them with dots in between.
func (x *run) attributes(v, attribute any, line int) []any {
	path, ok := attribute.(string)
	if i, whole := attribute.(int64); whole {
		path, ok = strconv.FormatInt(i, 10), true
	}
	if !ok {
		failf(line, "%s is no name of an attribute", kind(attribute))
	}
	parts := strings.Split(path, ".")
	var out []any
	for _, v := range x.list(v, line) {
		for _, p := range parts {
			x.spend(elementBytes)
			if i, err := strconv.ParseInt(p, 10, 64); err == nil {
				v = x.element(v, i, line)
			} else {
				v = x.memberOf(v, p, line)
			}
		}
		out = append(out, v)
	}
	return out
}

// json prints a text, a number, true, false or none in JSON, as transformers writes it.
func (x *run) json(v any, line int) string {
	switch v := v.(type) {
	case nil, bool, int64, float64:
	case string:
		x.spend(6 * len(v))
	default:
		failf(line, "the filter tojson of %s is not supported", kind(v))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		failf(line, "tojson: %v", err)
	}
	// Python does not escape these.
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\\`, `\\`).Replace(strings.TrimSuffix(b.String(), "\n"))
}

// tests are the supported tests, with the number of their arguments.
var tests = map[string]int{
	"defined": 0, "undefined": 0, "none": 0, "string": 0, "number": 0, "integer": 0, "float": 0, "boolean": 0, "mapping": 0,
	"iterable": 0, "sequence": 0, "true": 0, "false": 0, "odd": 0, "even": 0,
	"eq": 1, "equalto": 1, "==": 1, "ne": 1, "!=": 1, "lt": 1, "lessthan": 1, "<": 1, "le": 1, "<=": 1,
	"gt": 1, "greaterthan": 1, ">": 1, "ge": 1, ">=": 1, "in": 1,
}

var testNames = slices.Sorted(maps.Keys(tests))

// comparisons are the tests that are operators.
var comparisons = map[string]string{
	"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "!=": "!=", "lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
	"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=", "in": "in",
}

type test struct {
	of   expr
	name string
	args []expr
	not  bool
	line int
}

func (t test) eval(x *run) any {
	v := x.value(t.of)
	return x.test(t.name, v, x.values(t.args), t.line) != t.not
}

func (x *run) test(name string, v any, args []any, line int) bool {
	if op, ok := comparisons[name]; ok {
		return x.compare(op, v, args[0], line)
	}
	switch name {
	case "none":
		return v == nil
	case "true":
		return v == true
	case "false":
		return v == false
	case "odd", "even":
		n, ok := whole(v)
		if !ok {
			failf(line, "%s is neither odd nor even", kind(v))
		}
		return (n%2 != 0) == (name == "odd")
	}
	_, missing := v.(undefined)
	_, isText := v.(string)
	_, isBool := v.(bool)
	_, isWhole := v.(int64)
	_, isFloat := v.(float64)
	_, isMap := v.(*dict)
	_, isList := v.([]any)
	_, isGenerator := v.(*generator)
	switch name {
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
	case "float":
		return isFloat
	case "boolean":
		return isBool
	case "mapping":
		return isMap
	case "iterable":
		return isText || isMap || isList || missing || isGenerator
	}
	return isText || isMap || isList || missing // sequence
}
