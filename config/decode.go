package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/snug-ml/snug/internal/suggest"
	"go.yaml.in/yaml/v4"
)

// setNode sets the key from a YAML value. A faulty value is reported and changes nothing.
func (k *key) setNode(n *yaml.Node, o Origin, ps *problems) {
	d := decoder{origin: o, problems: ps}
	fresh := reflect.New(k.value.Type()).Elem()
	if d.decode(n, fresh, k.rule, k.path) {
		k.value.Set(fresh)
		k.origin = o
	}
}

// setText sets the key from the text of a flag. A list is separated by commas, or written as in YAML: [a, b].
func (k *key) setText(text string, o Origin, ps *problems) {
	if !utf8.ValidString(text) {
		ps.add(o, k.path, "want text in UTF-8, got %q", text)
		return
	}
	t := k.value.Type()
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if t.Kind() == reflect.Slice && !readsText(t) {
		if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "[") {
			doc, err := parseYAML([]byte(trimmed))
			if err != nil || doc == nil {
				ps.add(o, k.path, "want %s, got %q: %v", expects(t, k.rule), text, err)
				return
			}
			n = doc
		} else {
			n = &yaml.Node{Kind: yaml.SequenceNode}
			for part := range strings.SplitSeq(trimmed, ",") {
				if part = strings.TrimSpace(part); part != "" {
					n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: part})
				}
			}
		}
	}
	k.setNode(n, o, ps)
}

// decoder reads YAML values into fields and reports what does not fit.
type decoder struct {
	origin   Origin
	problems *problems
}

func (d decoder) decode(n *yaml.Node, v reflect.Value, r rule, path string) bool {
	n = resolve(n)
	if n.Line > 0 {
		d.origin.Line = n.Line
	}
	t := v.Type()
	if t.Kind() == reflect.Slice && !readsText(t) {
		return d.list(n, v, r, path)
	}
	if t.Kind() == reflect.Struct && !readsText(t) {
		return d.mapping(n, v, path)
	}
	want := expects(t, r)
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.problems.add(d.origin, path, "want %s, got %s", want, what(n))
		return false
	}
	text := n.Value
	if t.Kind() != reflect.String {
		// 4 and "4" differ in YAML; a quoted number is meant as text.
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && !readsText(t) && t != durationType {
			d.problems.add(d.origin, path, "want %s, got the text %q: remove the quotes", want, text)
			return false
		}
		text = strings.TrimSpace(text)
	}
	if e := r.excess(text, t); e != "" {
		d.problems.add(d.origin, path, "want %s, got %s", e, quote(text))
		return false
	}
	if !parseScalar(text, v, r) {
		hint := ""
		if near, ok := suggest.Nearest(text, r.enum); ok {
			hint = ", did you mean " + near + "?"
		}
		d.problems.add(d.origin, path, "want %s, got %s%s", want, quote(text), hint)
		return false
	}
	return true
}

// list reads a sequence, or a single value as a list of one.
func (d decoder) list(n *yaml.Node, v reflect.Value, r rule, path string) bool {
	items := n.Content
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		items = nil
	case n.Kind == yaml.ScalarNode:
		items = []*yaml.Node{n}
	case n.Kind != yaml.SequenceNode:
		d.problems.add(d.origin, path, "want %s, got %s", expects(v.Type(), r), what(n))
		return false
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	ok := true
	for i, item := range items {
		ok = d.decode(item, out.Index(i), r, fmt.Sprintf("%s[%d]", path, i)) && ok
	}
	v.Set(out)
	return ok
}

// mapping reads an element of a list of structs. Omitted fields stay zero.
func (d decoder) mapping(n *yaml.Node, v reflect.Value, path string) bool {
	if n.Kind != yaml.MappingNode {
		d.problems.add(d.origin, path, "want a mapping, got %s", what(n))
		return false
	}
	byPath := map[string]*key{}
	var names []string
	for _, k := range fields("", v) {
		byPath[k.path] = k
		names = append(names, k.path[1:])
	}
	ok := true
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		d.origin.Line = max(name.Line, d.origin.Line)
		k := byPath["."+name.Value]
		if k == nil {
			hint := "; it has " + strings.Join(names, ", ")
			if near, found := suggest.Nearest(name.Value, names); found {
				hint = ", did you mean " + near + "?"
			}
			d.problems.add(d.origin, path+"."+name.Value, "unknown key%s", hint)
			ok = false
			continue
		}
		ok = d.decode(value, k.value, k.rule, path+k.path) && ok
	}
	return ok
}

// resolve follows an alias (*name) to its anchor.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias // an anchor is never an alias itself
	}
	return n
}

// what names a YAML value in error messages.
func what(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return quote(n.Value)
}

// quote shortens and quotes text for error messages.
func quote(s string) string {
	if utf8.RuneCountInString(s) > 60 {
		s = string([]rune(s)[:57]) + "..."
	}
	return fmt.Sprintf("%q", s)
}
