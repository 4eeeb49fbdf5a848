package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A reader reads one JSON document part by part and keeps the first error. After an error
// every read gives a zero value, so that a component is read as a plain list of its
// fields and the error is checked once.
type reader struct {
	name string // of the file, for errors
	err  error
}

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s: %s", r.name, path, fmt.Sprintf(format, args...))
	}
}

// A node is one JSON value and the path that leads to it.
type node struct {
	*reader
	path string
	raw  json.RawMessage // nil: absent
}

func (n node) isNull() bool {
	return len(n.raw) == 0 || bytes.Equal(bytes.TrimSpace(n.raw), []byte("null"))
}

func (n node) fail(format string, args ...any) { n.reader.fail(n.path, format, args...) }

// shown returns the value for an error message: short, on one line.
func (n node) shown() string {
	s := strings.Join(strings.Fields(string(n.raw)), " ")
	if len(s) > 40 {
		s = strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}

func read[T any](n node, want string) (v T) {
	if n.err != nil {
		return v
	}
	if n.isNull() {
		n.fail("missing; expected %s", want)
		return v
	}
	if err := json.Unmarshal(n.raw, &v); err != nil {
		var zero T
		n.fail("expected %s, found %s", want, n.shown())
		return zero
	}
	return v
}

func (n node) str() string    { return read[string](n, "a string") }
func (n node) bool() bool     { return read[bool](n, "true or false") }
func (n node) int() int       { return read[int](n, "an integer") }
func (n node) float() float64 { return read[float64](n, "a number") }

func (n node) strOr(v string) string {
	if n.isNull() {
		return v
	}
	return n.str()
}

func (n node) boolOr(v bool) bool {
	if n.isNull() {
		return v
	}
	return n.bool()
}

func (n node) intOr(v int) int {
	if n.isNull() {
		return v
	}
	return n.int()
}

// char returns a string of exactly one character.
func (n node) char() rune {
	s := []rune(n.str())
	if len(s) != 1 {
		n.fail("expected one character, found %s", n.shown())
		return 0
	}
	return s[0]
}

// id returns a token id.
func (n node) id() int32 {
	v := n.int()
	if v < 0 || v > maxID {
		n.fail("expected an id from 0 to %d, found %d", maxID, v)
		return 0
	}
	return int32(v)
}

// item returns the path of an element of an array.
func (n node) item(i int) node {
	return node{n.reader, n.path + "[" + strconv.Itoa(i) + "]", nil}
}

// list returns the elements of an array, none of them null.
func (n node) list() []node {
	raw := read[[]json.RawMessage](n, "an array")
	out := make([]node, len(raw))
	for i, v := range raw {
		out[i] = n.item(i)
		out[i].raw = v
		if out[i].isNull() {
			out[i].fail("null is not supported here")
		}
	}
	return out
}

// parts returns the components of a sequence.
func (n node) parts() []node {
	out := n.list()
	if len(out) > maxParts {
		n.fail("%d components, at most %d", len(out), maxParts)
		return nil
	}
	return out
}

// An object is a JSON object whose every field must be read: a field that was not read is not
// supported, and done reports it.
type object struct {
	node
	fields map[string]json.RawMessage
	asked  map[string]bool
}

func (n node) object() object {
	if strings.Count(n.path, ".") > maxNested {
		n.fail("components nested more than %d deep", maxNested)
	}
	return object{n, read[map[string]json.RawMessage](n, "an object"), map[string]bool{}}
}

func (o object) get(name string) node {
	o.asked[name] = true
	path := name
	if o.path != "" {
		path = o.path + "." + name
	}
	return node{o.reader, path, o.fields[name]}
}

// done reports a field that is not supported.
func (o object) done() {
	if o.err != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if !o.asked[name] {
			o.get(name).fail("this field is not supported, so the ids could be wrong without it (value: %s)", node{raw: o.fields[name]}.shown())
			return
		}
	}
}
