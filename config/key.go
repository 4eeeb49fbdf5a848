package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// key is one leaf of the configuration, bound to its field.
type key struct {
	path   string // dotted
	value  reflect.Value
	rule   rule
	help   string
	origin Origin
	// written is the text of the value if it differs from the field's: an address that a local copy stands
	// for.
	written string
	groups  []group // the structs that it is nested in, outermost first; the section itself has no help
}

type group struct{ path, help string }

// rule is a constraint on a value beyond its type.
type rule struct {
	enum                   []string
	min, max, above, below *float64
	of                     *Quantity // what the number counts; nil if it is no count
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// readsText reports whether a struct type parses itself from text, which makes it a value and not a group.
func readsText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textType) }

// fields lists the keys of a struct. A field without a key tag, or of a type that cannot be read, is a
// programming error and panics.
func fields(path string, v reflect.Value) []*key {
	var keys []*key
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("key")
		if name == "" || !f.IsExported() {
			panic(fmt.Sprintf("config: field %v.%s needs to be exported and to have a key tag", t, f.Name))
		}
		at := path + "." + name
		if f.Type.Kind() == reflect.Struct && !readsText(f.Type) {
			for _, k := range fields(at, v.Field(i)) {
				k.groups = append([]group{{at, f.Tag.Get("help")}}, k.groups...)
				keys = append(keys, k)
			}
			continue
		}
		k := &key{path: at, value: v.Field(i), help: f.Tag.Get("help"), rule: parseRule(at, f)}
		if expects(f.Type, rule{}) == "" {
			panic(fmt.Sprintf("config: %s: cannot read type %v", at, f.Type))
		}
		if element := elementStruct(f.Type); element != nil {
			for _, inner := range fields(at, reflect.New(element).Elem()) {
				if len(inner.groups) > 0 {
					panic("config: " + inner.path + ": structs in lists cannot nest")
				}
			}
		}
		keys = append(keys, k)
	}
	return keys
}

// elementStruct returns the element type of a list of structs, or nil for every other type.
func elementStruct(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !readsText(t.Elem()) {
		return t.Elem()
	}
	return nil
}

func parseRule(path string, f reflect.StructField) rule {
	tag := f.Tag
	bound := func(name string) *float64 {
		s, ok := tag.Lookup(name)
		if !ok {
			return nil
		}
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			panic(fmt.Sprintf("config: %s: tag %s:%q is not a number", path, name, s))
		}
		return &x
	}
	r := rule{min: bound("min"), max: bound("max"), above: bound("above"), below: bound("below")}
	if s, ok := tag.Lookup("of"); ok {
		r.of = QuantityOf(s)
	}
	if s, ok := tag.Lookup("enum"); ok {
		r.enum = strings.Split(s, ",")
	}
	if e, ok := reflect.Zero(f.Type).Interface().(interface{ Enum() []string }); ok {
		r.enum = e.Enum()
	}
	return r
}

// expects describes the values of a type under a rule; "" if the type cannot be read.
func expects(t reflect.Type, r rule) string {
	switch {
	case len(r.enum) > 0 && t.Kind() == reflect.String:
		words := slices.Clone(r.enum)
		if i := slices.Index(words, ""); i >= 0 {
			words[i] = `""`
		}
		return "one of " + strings.Join(words, ", ")
	case t == durationType:
		return "a duration such as 30s or 5m"
	case readsText(t):
		if e, ok := reflect.Zero(t).Interface().(interface{ expects() string }); ok {
			return e.expects()
		}
		return "a value of type " + t.Name()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if r.min == nil {
			r.min = new(float64)
		}
		fallthrough
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number" + r.words()
	case reflect.Float32, reflect.Float64:
		return "a number" + r.words()
	case reflect.String:
		return "a text"
	case reflect.Slice:
		if elementStruct(t) != nil {
			return "a list of mappings"
		}
		if e := expects(t.Elem(), r); e != "" && t.Elem().Kind() != reflect.Slice {
			return "a list, each " + e
		}
	}
	return ""
}

// words describes the range: " of at least 1", " above 0 and at most 1".
func (r rule) words() string {
	var parts []string
	for _, b := range []struct {
		at   *float64
		word string
	}{{r.min, "of at least"}, {r.above, "above"}, {r.max, "at most"}, {r.below, "below"}} {
		if b.at != nil {
			parts = append(parts, b.word+" "+strconv.FormatFloat(*b.at, 'g', -1, 64))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, " and ")
}

// allows reports whether a number obeys the rule.
func (r rule) allows(x float64) bool {
	return !(r.min != nil && x < *r.min || r.max != nil && x > *r.max ||
		r.above != nil && x <= *r.above || r.below != nil && x >= *r.below)
}

// excess describes the bound for a number that is too large, or too small, for its use; "" if it is neither.
func (r rule) excess(text string, t reflect.Type) string {
	text = strings.ReplaceAll(text, "_", "")
	if r.of != nil {
		if e := r.of.Exceeds(text, t); e != "" {
			return e
		}
	}
	if e, ok := reflect.Zero(t).Interface().(interface{ excess(text string) string }); ok {
		return e.excess(text)
	}
	if t.Kind() != reflect.Float64 && t.Kind() != reflect.Float32 {
		return ""
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(x, 0) || !r.allows(x) {
		return ""
	}
	return Unheld(x)
}

// parseScalar parses text into v. It returns false if the text is no such value or breaks the rule.
func parseScalar(text string, v reflect.Value, r rule) bool {
	t := v.Type()
	switch {
	case t == durationType:
		d, err := time.ParseDuration(text)
		if err != nil || !r.allows(float64(d)) {
			return false
		}
		v.SetInt(int64(d))
		return true
	case readsText(t):
		fresh := reflect.New(t)
		u, ok := fresh.Interface().(encoding.TextUnmarshaler)
		if !ok || u.UnmarshalText([]byte(text)) != nil {
			return false
		}
		v.Set(fresh.Elem())
		return true
	}
	switch {
	case t.Kind() == reflect.Bool:
		if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			return false
		}
		v.SetBool(strings.EqualFold(text, "true"))
	case v.CanInt():
		n, ok := parseInt(text)
		if !ok || v.OverflowInt(n) || !r.allows(float64(n)) {
			return false
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || v.OverflowUint(n) || !r.allows(float64(n)) {
			return false
		}
		v.SetUint(n)
	case v.CanFloat():
		x, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || v.OverflowFloat(x) || !r.allows(x) {
			return false
		}
		v.SetFloat(x)
	default:
		if len(r.enum) > 0 && !slices.Contains(r.enum, text) {
			return false
		}
		v.SetString(text)
	}
	return true
}

// parseInt accepts 1000, 1_000 and 1e3, as long as the value is whole and exact.
func parseInt(text string) (int64, bool) {
	text = strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, false
	}
	return int64(x), true
}
