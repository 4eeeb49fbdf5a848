// Package strictjson reads JSON that people write: a key given twice, which the
// standard library accepts silently, is refused, and a value of the wrong type is
// described in terms of JSON, not of Go.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Unmarshal is [json.Unmarshal] with those refusals.
func Unmarshal(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return Explain(err)
	}
	return Repeated(raw)
}

// Explain rewords an error of the standard library for the authors of the text.
func Explain(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	where := ""
	if e.Field != "" {
		where = e.Field + ": "
	}
	found, _, _ := strings.Cut(e.Value, " ")
	return fmt.Errorf("%swant %s, found %s (byte %d)", where, want(e.Type), article(found), e.Offset)
}

// want names the JSON type that a Go type is read from.
func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Pointer:
		return want(t.Elem())
	}
	return "a whole number"
}

func article(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "true or false"
	}
	return "a " + value
}

// Repeated refuses JSON in which an object has a key twice. The text must be
// valid JSON.
func Repeated(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	type level struct {
		keys  map[string]bool // of an object; nil: an array
		value bool            // a value comes next, not a key
	}
	var open []level
	for {
		t, err := d.Token()
		if err != nil {
			return nil // the end
		}
		if n := len(open); n > 0 && open[n-1].keys != nil && !open[n-1].value {
			if key, ok := t.(string); ok {
				if open[n-1].keys[key] {
					line := 1 + bytes.Count(raw[:d.InputOffset()], []byte("\n"))
					return fmt.Errorf("the key %.60q is given twice, again on line %d", key, line)
				}
				open[n-1].keys[key], open[n-1].value = true, true
				continue
			}
		}
		switch t {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}})
			continue
		case json.Delim('['):
			open = append(open, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if n := len(open); n > 0 {
			open[n-1].value = false
		}
	}
}
