package config

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// WriteYAML writes [Config.YAML] to w.
func (c *Config) WriteYAML(w io.Writer) error {
	_, err := w.Write(c.YAML())
	return err
}

// YAML returns every value with its origin as a comment. Loading it gives the same values.
func (c *Config) YAML() []byte {
	var b strings.Builder
	b.WriteString("# The effective configuration; it loads back with --config.\n")
	line := func(depth int, name, text string, o Origin) {
		fmt.Fprintf(&b, "%s%s: %s  # %s\n", strings.Repeat("  ", depth), name, text, strings.ReplaceAll(o.String(), "\n", " "))
	}
	line(0, "system", scalarText(c.System), c.systemOrigin)
	var open []string // groups that the previous line was in
	for _, k := range c.keys {
		parts := strings.Split(k.path, ".")
		groups, name := parts[:len(parts)-1], parts[len(parts)-1]
		same := 0
		for same < min(len(open), len(groups)) && open[same] == groups[same] {
			same++
		}
		for depth := same; depth < len(groups); depth++ {
			if depth == 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), groups[depth])
		}
		line(len(groups), name, k.text(), k.origin)
		open = groups
	}
	return []byte(b.String())
}

// text returns the value as YAML on one line.
func (k *key) text() string {
	if k.written != "" {
		return k.written
	}
	return valueText(k.value)
}

func valueText(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("config: a value of type %v does not print: %v", v.Type(), err)) // a value that was read can be printed
		}
		if number.Match(text) {
			return string(text)
		}
		return scalarText(string(text))
	}
	switch v.Kind() {
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = valueText(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Struct:
		parts := make([]string, v.NumField())
		for i := range parts {
			parts[i] = v.Type().Field(i).Tag.Get("key") + ": " + valueText(v.Field(i))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())
	case reflect.String:
		return scalarText(v.String())
	}
	return fmt.Sprint(v.Interface())
}

// plain matches texts that need no quotes in YAML, not even in a list: they start with a letter, / or . and
// contain nothing special.
var plain = regexp.MustCompile(`^[A-Za-z/.][A-Za-z0-9/._*~+-]*(:[A-Za-z0-9/._*~+-]+)*$`)

// number matches an amount with or without a unit, such as 14GiB.
var number = regexp.MustCompile(`^[0-9]+[A-Za-z]*$`)

// reserved matches words that YAML would not read as text.
var reserved = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|y|n|null|\.nan|\.inf|\.[0-9].*|\.\.\.)$`)

// scalarText quotes a text if YAML requires it.
func scalarText(s string) string {
	if plain.MatchString(s) && !reserved.MatchString(s) {
		return s
	}
	return strconv.Quote(s) // all of Go's escapes are valid in YAML
}
