package config

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Reference returns the manual of a system's keys, as flags with their defaults, for --help and the
// documentation.
func Reference(s System) string {
	var b strings.Builder
	section := ""
	var told []group
	for _, k := range newConfig(s).keys {
		if name, _, _ := strings.Cut(k.path, "."); name != section {
			if section != "" {
				b.WriteString("\n")
			}
			section = name
			fmt.Fprintf(&b, "%s\n", strings.ToUpper(section))
		}
		for i, g := range k.groups {
			if i >= len(told) || told[i] != g {
				fmt.Fprintf(&b, "  %s: %s\n", g.path, g.help)
			}
		}
		told = k.groups
		fmt.Fprintf(&b, "  --%s %s\n", k.path, k.text())
		for _, line := range wrap(k.help+k.about(), 92) {
			fmt.Fprintf(&b, "        %s\n", line)
		}
	}
	return b.String()
}

// about lists in parentheses the possible values, unless the default makes them obvious.
func (k *key) about() string {
	t := k.value.Type()
	switch e := expects(t, k.rule); {
	case t.Kind() == reflect.Bool, e == "a text":
		return ""
	case !readsText(t) && t != durationType && (k.value.CanInt() || k.value.CanUint() || k.value.CanFloat()):
		words := strings.TrimPrefix(strings.TrimPrefix(k.rule.words(), " "), "of ")
		if words == "at least 0" {
			words = ""
		}
		if most := k.rule.most(); most != nil && k.rule.max == nil {
			words = strings.TrimPrefix(words+" and at most "+strconv.FormatFloat(*most, 'f', -1, 64), " and ")
		}
		if words == "" {
			return ""
		}
		return " (" + words + ")"
	default:
		return " (" + strings.TrimPrefix(e, "one of ") + ")"
	}
}

// most returns the largest sensible value; nil if there is none.
func (r rule) most() *float64 {
	if r.max == nil && r.of != nil && r.of.Most < math.MaxUint64 {
		return &r.of.Most
	}
	return r.max
}

// wrap breaks text at blanks into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// schema is one node of a JSON schema (draft 2020-12).
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // one name, or a list of names
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Minimum     *float64           `json:"minimum,omitempty"`
	Maximum     *float64           `json:"maximum,omitempty"`
	Above       *float64           `json:"exclusiveMinimum,omitempty"`
	Below       *float64           `json:"exclusiveMaximum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Closed      *bool              `json:"additionalProperties,omitempty"`
}

// JSONSchema describes a system's YAML files for editors.
func JSONSchema(s System) ([]byte, error) {
	root := object(s.Help)
	root.Schema, root.Title = "https://json-schema.org/draft/2020-12/schema", "snug configuration of the system "+s.Name
	root.Properties["system"] = &schema{Const: s.Name}
	for _, k := range newConfig(s).keys {
		parts := strings.Split(k.path, ".")
		at := root
		for depth, name := range parts[:len(parts)-1] {
			if at.Properties[name] == nil {
				at.Properties[name] = object("")
				if depth > 0 {
					at.Properties[name].Description = k.groups[depth-1].help
				}
			}
			at = at.Properties[name]
		}
		leaf := typeSchema(k.value.Type(), k.rule)
		leaf.Description, leaf.Default = k.help, defaultOf(k.value)
		at.Properties[parts[len(parts)-1]] = leaf
	}
	return json.MarshalIndent(root, "", "  ")
}

func object(description string) *schema {
	closed := false
	return &schema{Type: "object", Description: description, Properties: map[string]*schema{}, Closed: &closed}
}

func typeSchema(t reflect.Type, r rule) *schema {
	s := &schema{Minimum: r.min, Maximum: r.most(), Above: r.above, Below: r.below}
	switch {
	case t == durationType:
		return &schema{Type: "string"}
	case readsText(t):
		return &schema{Type: []string{"string", "integer"}}
	}
	switch t.Kind() {
	case reflect.Bool:
		s.Type = "boolean"
	case reflect.Float32, reflect.Float64:
		s.Type = "number"
	case reflect.String:
		s.Type, s.Enum = "string", r.enum
	case reflect.Slice:
		s = &schema{Type: "array", Items: typeSchema(t.Elem(), r)}
	case reflect.Struct:
		s = object("")
		for _, k := range fields("", reflect.New(t).Elem()) {
			inner := typeSchema(k.value.Type(), k.rule)
			inner.Description = k.help
			s.Properties[k.path[1:]] = inner
		}
	default:
		s.Type = "integer"
	}
	return s
}

// defaultOf returns a value for JSON; nil omits it.
func defaultOf(v reflect.Value) any {
	if elementStruct(v.Type()) != nil || v.Kind() == reflect.Slice && v.Len() == 0 {
		return nil
	}
	if v.Type() == durationType || readsText(v.Type()) {
		return strings.Trim(valueText(v), `"`)
	}
	return v.Interface()
}
