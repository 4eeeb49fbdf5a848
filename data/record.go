package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/internal/few"
)

// Record is one row of a JSONL, JSON, CSV or Parquet file.
type Record struct {
	File string
	// Row counts from 1, without the header.
	Row int64
	// Line is where the row starts, from 1; 0 if the format has no lines.
	Line int64

	fields   map[string]any
	repaired int // invalid bytes that were replaced
}

// Repaired counts the invalid bytes that were replaced by U+FFFD. It is zero
// unless Options.ReplaceInvalid was set.
func (r Record) Repaired() int { return r.repaired }

// repair replaces invalid UTF-8 in every text of the record.
func (r *Record) repair() {
	var valid func(v any) any
	valid = func(v any) any {
		switch v := v.(type) {
		case string:
			text, n, _ := ValidUTF8(r.Where(), []byte(v), true) // replaced bytes are not an error
			r.repaired += n
			return string(text)
		case map[string]any:
			for k := range v {
				v[k] = valid(v[k])
			}
		case []any:
			for i := range v {
				v[i] = valid(v[i])
			}
		}
		return v
	}
	valid(r.fields)
}

// Where names the row for a person: "file:line", or "file#row" where the
// format has no lines.
func (r Record) Where() string {
	if r.Line > 0 {
		return fmt.Sprintf("%s:%d", r.File, r.Line)
	}
	return fmt.Sprintf("%s#%d", r.File, r.Row)
}

// Fields lists the names of the top-level fields, sorted.
func (r Record) Fields() []string { return slices.Sorted(maps.Keys(r.fields)) }

// Has reports whether the record has a field, as [Record.Get] finds it.
func (r Record) Has(name string) bool {
	_, ok, err := r.lookup(r.fields, name)
	return ok || err != nil
}

// Get returns a field: string, bool, json.Number, int64, float64, nil, []any or
// map[string]any. A dot in name selects a field of a nested object unless a field has the
// whole name.
func (r Record) Get(name string) (any, error) {
	v, ok, err := r.lookup(r.fields, name)
	if err != nil {
		return nil, fmt.Errorf("data: %s: field %q: %w", r.Where(), name, err)
	}
	if !ok {
		return nil, fmt.Errorf("data: %s: no field %q; it has %s", r.Where(), name, few.Of(r.Fields()))
	}
	return v, nil
}

func (r Record) lookup(fields map[string]any, name string) (any, bool, error) {
	if v, ok := fields[name]; ok {
		raw, isRaw := v.(json.RawMessage)
		if !isRaw {
			return v, true, nil
		}
		if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
			return string(raw[1 : len(raw)-1]), true, nil // valid already, and most texts
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, true, err
		}
		if s, ok := value.(string); ok && strings.ContainsRune(s, '\uFFFD') && loneSurrogate(raw) {
			return nil, true, fmt.Errorf("half of a surrogate pair (a \\ud8xx escape without its partner), which is not a character")
		}
		return value, true, nil
	}
	head, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil, false, nil
	}
	v, ok, err := r.lookup(fields, head)
	if err != nil || !ok {
		return nil, false, err
	}
	nested, ok := v.(map[string]any)
	if !ok {
		return nil, false, nil
	}
	return r.lookup(nested, rest)
}

// loneSurrogate distinguishes a U+FFFD that the decoder put in place of an unpaired
// escape from one in the text itself.
func loneSurrogate(raw []byte) bool {
	return !bytes.Contains(raw, []byte("\uFFFD")) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`))
}

// Text returns a field that is valid UTF-8. A number keeps its spelling.
func (r Record) Text(name string) (string, error) {
	s, err := r.text(name)
	if err != nil {
		return "", err
	}
	doc := Document{ID: r.Where(), Text: []byte(s)}
	if err := checkUTF8(&doc, false); err != nil {
		return "", fmt.Errorf("%w (field %q)", err, name)
	}
	return s, nil
}

// text is Text before the check of UTF-8.
func (r Record) text(name string) (string, error) {
	v, err := r.Get(name)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", r.wrong(name, "text", v)
}

// Int returns a field that is a whole number, or its decimal spelling.
func (r Record) Int(name string) (int64, error) {
	v, err := r.Get(name)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int64:
		return v, nil
	case float64:
		if n := int64(v); float64(n) == v {
			return n, nil
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
	case string:
		if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, r.wrong(name, "a whole number", v)
}

// Float returns a field that is a number, or its spelling.
func (r Record) Float(name string) (float64, error) {
	v, err := r.Get(name)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	case json.Number:
		if x, err := v.Float64(); err == nil {
			return x, nil
		}
	case string:
		if x, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return x, nil
		}
	}
	return 0, r.wrong(name, "a number", v)
}

func (r Record) wrong(name, want string, v any) error {
	return fmt.Errorf("data: %s: field %q: want %s, found %s", r.Where(), name, want, kind(v))
}

// kind names what a field holds, with a value that is short.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case bool:
		return fmt.Sprintf("true or false (%t)", v)
	case string:
		return fmt.Sprintf("a text (%.40q)", v)
	}
	return fmt.Sprintf("a number (%v)", v)
}

// document makes a document from the record's text field.
func (r Record) document(opt Options) (Document, error) {
	text, err := r.text(opt.TextField)
	if err != nil {
		return Document{}, fmt.Errorf("%w (data.text_field chooses the field)", err)
	}
	doc := Document{ID: r.Where(), Text: []byte(text), Repaired: r.repaired}
	if opt.GroupField != "" {
		v, err := r.Get(opt.GroupField)
		if err != nil {
			return Document{}, err
		}
		doc.Group = fmt.Sprint(v)
	}
	return doc, nil
}
