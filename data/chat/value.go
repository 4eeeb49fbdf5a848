package chat

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Values of expressions are nil (none), undefined, bool, int64, float64, string, []any,
// *dict, span, *generator, *namespace, *state (of a loop), method, builtin and *macro.
type (
	undefined struct{ name string }
	namespace struct{ m map[string]any }
	builtin   string
	// dict keeps its keys in order of insertion, as Python does.
	dict struct {
		keys []string
		of   map[string]any
	}
	// generator is the result of filters such as selectattr: it can be iterated once, and
	// is true even if it is empty.
	generator struct{ items []any }
	// state is the variable `loop` of a loop.
	state struct {
		index int
		items []any
	}
	method struct {
		of   any
		name string
	}
)

func newDict() *dict { return &dict{of: map[string]any{}} }

func (d *dict) set(key string, v any) {
	if _, ok := d.of[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.of[key] = v
}

// entries returns the items, keys or values of a dict.
func (x *run) entries(d *dict, which string) []any {
	x.spend(len(d.keys) * elementBytes)
	out := make([]any, len(d.keys))
	for i, k := range d.keys {
		switch which {
		case "keys":
			out[i] = k
		case "values":
			out[i] = d.of[k]
		default:
			out[i] = []any{k, d.of[k]}
		}
	}
	return out
}

// list returns the elements that a loop iterates over.
func (x *run) list(v any, line int) []any {
	switch v := v.(type) {
	case []any:
		return v
	case *dict:
		return x.entries(v, "keys")
	case *generator:
		l := v.items
		v.items = nil
		return l
	case string:
		x.spend(utf8.RuneCountInString(v) * 2 * elementBytes)
		out := []any{}
		for _, r := range v {
			out = append(out, string(r))
		}
		return out
	case undefined:
		failf(line, "%s is not defined", v.name)
	}
	failf(line, "%s is no list", kind(v))
	return nil
}

// length returns the length of a text in characters, or of any value that has a length.
func (x *run) length(v any, line int) int64 {
	switch v := v.(type) {
	case string:
		x.spend(len(v))
		return int64(utf8.RuneCountInString(v))
	case *generator:
		failf(line, "what a filter such as selectattr gives has no length: put `| list` after it")
	case undefined:
		return 0
	}
	return int64(len(x.list(v, line)))
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// number returns a number as a float64; true is 1, as in Python.
func number(v any) (float64, bool) {
	if i, ok := whole(v); ok {
		return float64(i), true
	}
	f, ok := v.(float64)
	return f, ok
}

func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// compared compares a with b, if both are numbers or both are texts.
func (x *run) compared(a, b any) (c int, ok bool) {
	if i, ok := whole(a); ok {
		if j, ok := whole(b); ok {
			return cmp.Compare(i, j), true
		}
	}
	if f, ok := number(a); ok {
		g, ok := number(b)
		return cmp.Compare(f, g), ok
	}
	s, ok1 := a.(string)
	t, ok2 := b.(string)
	x.spend(min(len(s), len(t)))
	return cmp.Compare(s, t), ok1 && ok2
}

func (x *run) equal(a, b any) bool {
	x.spend(0)
	if c, ok := x.compared(a, b); ok {
		return c == 0
	}
	if x.depth++; x.depth > maxNested {
		failf(0, "it compares lists of more than %d levels", maxNested)
	}
	defer func() { x.depth-- }()
	switch a := a.(type) {
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, x.equal)
	case *dict:
		d, ok := b.(*dict)
		if !ok || len(a.keys) != len(d.keys) {
			return false
		}
		return !slices.ContainsFunc(a.keys, func(k string) bool {
			v, ok := d.of[k]
			return !ok || !x.equal(a.of[k], v)
		})
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case *namespace:
		n, ok := b.(*namespace)
		return ok && a == n
	}
	return false
}

// arithmetic computes with whole numbers like Python, up to 64 bits.
func arithmetic(op string, i, j int64, line int) any {
	if j == 0 && (op == "/" || op == "//" || op == "%") {
		failf(line, "division by zero")
	}
	var v int64
	var fits bool
	switch op {
	case "+":
		v = i + j
		fits = (v > i) == (j > 0)
	case "-":
		v = i - j
		fits = (v < i) == (j > 0)
	case "*":
		hi, lo := bits.Mul64(uint64(max(i, -i)), uint64(max(j, -j)))
		v, fits = i*j, hi == 0 && lo < 1<<63
	case "/":
		return float64(i) / float64(j)
	default:
		quotient, rest := i/j, i%j
		if rest != 0 && (rest < 0) != (j < 0) {
			quotient, rest = quotient-1, rest+j
		}
		v, fits = rest, j != -1 || i != -i || i == 0
		if op == "//" {
			v = quotient
		}
	}
	if !fits {
		failf(line, "%d %s %d does not fit into 64 bits", i, op, j)
	}
	return v
}

// shown returns a value as Python prints it.
func shown(v any, line int) string {
	switch v := v.(type) {
	case string:
		return v
	case undefined:
		return ""
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	}
	failf(line, "%s is printed, which is not supported: want a text, a whole number, true, false or none", kind(v))
	return ""
}

// kind describes a value's type, for messages.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case undefined:
		return v.name + ", which is not defined,"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	case *generator:
		return "what a filter such as selectattr gives"
	case *dict, *namespace:
		return "a mapping"
	}
	return "a function"
}

// spelled returns a value for a message: whole if it is a name or a number.
func spelled(v any) string {
	switch v := v.(type) {
	case string:
		return few(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return kind(v)
}
