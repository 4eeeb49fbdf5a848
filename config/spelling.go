package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// take sets the key that another program's spelling stands for, with a warning, if only one meaning is
// possible. Otherwise it changes nothing.
func (c *Config) take(path string, value *yaml.Node, o Origin, ps *problems) bool {
	if value == nil || value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
		return false
	}
	key, ours, why, ok := c.meaning(path, value.Value)
	switch {
	case !ok:
		return false
	case key == "":
		c.took(o, path, "left out: %s", why)
		return true
	}
	k := c.byPath[key]
	if k.origin.Kind == o.Kind && k.origin.Name == o.Name {
		ps.add(o, path, "it is written %s here, which is given on line %d", key, k.origin.Line)
		return true
	}
	before := len(*ps)
	if ours == value.Value {
		k.setNode(value, o, ps)
	} else {
		k.setText(ours, o, ps)
	}
	if len(*ps) == before {
		theirs := ""
		if ours != value.Value {
			theirs = quote(value.Value) + " is "
		}
		c.took(o, path, "%staken as %s %s%s", theirs, key, ours, reason(why))
	}
	return true
}

// took warns about the translation of another program's spelling.
func (c *Config) took(o Origin, path, format string, args ...any) {
	(&Report{config: c}).warnAt(o, path, format, args...)
}

func reason(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// meaning returns the key and value that another program's setting stands for; the key is empty if the
// setting always holds here. ok is false if it has no meaning here, or several.
func (c *Config) meaning(path, theirs string) (key, ours, why string, ok bool) {
	if a, found := c.findAlias(path); found && a.take != nil {
		if ours, ok = a.take(theirs); ok {
			return a.key, ours, a.why, true
		}
	}
	if strings.Contains(path, ".") { // a key in the wrong section may be another kind of mistake
		return "", "", "", false
	}
	if same := c.ending(path); len(same) == 1 {
		ours, _ := c.ourValue(same[0], theirs)
		return same[0], ours, "", true
	}
	return "", "", "", false
}

// ourValue translates another program's value for a key of the same name. If there is no translation, it
// returns theirs and false.
func (c *Config) ourValue(path, theirs string) (ours string, ok bool) {
	take := foreignValues[path]
	if take == nil || slices.Contains(c.byPath[path].rule.enum, theirs) {
		return theirs, false
	}
	if ours, ok = take(theirs); !ok {
		return theirs, false
	}
	return ours, true
}

// translated returns the value of a key in our spelling.
func (c *Config) translated(path string, value *yaml.Node, o Origin) *yaml.Node {
	if value.Kind != yaml.ScalarNode {
		return value
	}
	ours, ok := c.ourValue(path, value.Value)
	if !ok {
		return value
	}
	c.took(o, path, "%s is taken as %s", quote(value.Value), ours)
	return &yaml.Node{Kind: yaml.ScalarNode, Value: ours, Line: value.Line}
}

// choices lists the values of a key that allows only a few.
func (c *Config) choices(path string) string {
	if k := c.byPath[path]; k != nil && len(k.rule.enum) > 0 {
		return "; " + expects(k.value.Type(), k.rule)
	}
	return ""
}

// ending returns the keys with this last component, in any spelling that the command line accepts.
func (c *Config) ending(name string) []string {
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	var all []string
	for _, k := range c.keys {
		if strings.HasSuffix(k.path, "."+name) {
			all = append(all, k.path)
		}
	}
	return all
}

// SplitForeign takes unknown flags without a dot, such as --batch_size 16, out of a command line if they mean
// a setting of some system. It returns them as overrides whose keys are as typed, for [Respell].
func SplitForeign(args []string, systems []System, known func(flag string) bool) (overrides []Override, rest []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return overrides, append(rest, args[i:]...)
		}
		name, value, hasValue := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "--") || known(name) || !slices.ContainsFunc(systems, func(s System) bool { return newConfig(s).spelled(name[2:]) }) {
			rest = append(rest, arg)
			continue
		}
		o := Override{Key: name[2:], Text: value, Flag: name}
		switch {
		case hasValue:
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "--"):
			i++
			o.Text = args[i]
		default:
			o.Text, o.Bare = "true", true
		}
		overrides = append(overrides, o)
	}
	return overrides, rest
}

// spelled reports whether a flag without a dot may stand for a key.
func (c *Config) spelled(name string) bool {
	a, found := c.findAlias(name)
	return found && a.take != nil || len(c.ending(name)) > 0
}

// Respell finds the keys of settings that were typed without a dot, now that the system is known. The
// warnings say what each was translated to. The error, if any, is an *Error that lists every setting without
// a meaning, or with several.
func Respell(s Sources) (Sources, []Problem, error) {
	isForeign := func(o Override) bool { return o.Key != "system" && !strings.Contains(o.Key, ".") }
	if !slices.ContainsFunc(s.Overrides, isForeign) {
		return s, nil, nil
	}
	var ps problems
	layers := readLayers(s, &ps)
	system, _, ok := findSystem(s, layers, &ps)
	if !ok {
		return s, nil, ps.err()
	}
	c := newConfig(system)
	e := explainer{config: c, others: s.Systems}
	var out []Override
	for _, f := range s.Overrides {
		if !isForeign(f) {
			out = append(out, f)
			continue
		}
		key, ours, why, ok := c.meaning(f.Key, f.Text)
		switch {
		case !ok:
			ps.add(f.origin(), "", "%s", e.explain(f.Key))
		case key == "":
			c.took(f.origin(), "", "left out: %s", why)
		default:
			c.took(f.origin(), "", "taken as --%s %s%s", key, ours, reason(why))
			out = append(out, Override{Key: key, Text: ours, Flag: f.Flag, Bare: f.Bare && ours == f.Text})
		}
	}
	s.Overrides = out
	return s, c.Warnings, ps.err()
}
