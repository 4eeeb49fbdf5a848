package config

import (
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/suggest"
	"go.yaml.in/yaml/v4"
)

// explainer explains unknown keys.
type explainer struct {
	config *Config
	others []System
}

// unknown reports an unknown key, or the keys below an unknown section.
func (e explainer) unknown(path string, value *yaml.Node, o Origin, ps *problems) {
	if value == nil || value.Kind != yaml.MappingNode || len(value.Content) == 0 {
		if !e.config.take(path, value, o, ps) {
			ps.add(o, path, "%s", e.explain(path))
		}
		return
	}
	if known, text := e.elsewhere(path); known {
		ps.add(o, path, "unknown section: %s", text)
		return
	}
	if near, ok := suggest.Nearest(path, e.sections()); ok {
		ps.add(o, path, "unknown section, did you mean %s?", near)
		return
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		n := value.Content[i]
		o.Line = n.Line
		if below := path + "." + n.Value; !e.config.take(below, resolve(value.Content[i+1]), o, ps) {
			ps.add(o, below, "%s", e.explain(below))
		}
	}
}

// explain says what to write instead of an unknown key.
func (e explainer) explain(path string) string {
	if a, ok := e.config.findAlias(path); ok {
		return a.answer() + e.config.choices(a.key)
	}
	last := path[strings.LastIndex(path, ".")+1:]
	var same, siblings, all []string
	parent := strings.TrimSuffix(path, last)
	for _, k := range e.config.keys {
		all = append(all, k.path)
		if strings.HasSuffix(k.path, "."+last) {
			same = append(same, k.path)
		}
		if rest, ok := strings.CutPrefix(k.path, parent); ok && parent != "" {
			siblings = append(siblings, parent+strings.SplitN(rest, ".", 2)[0])
		}
	}
	if len(same) > 0 {
		return "unknown key; it is " + strings.Join(same, " or ")
	}
	if known, text := e.elsewhere(path); known {
		return "unknown key: " + text
	}
	if near, ok := suggest.Nearest(path, siblings); ok {
		return "unknown key, did you mean " + near + "?"
	}
	if near, ok := suggest.Nearest(path, all); ok {
		return "unknown key, did you mean " + near + "?"
	}
	if parent != "" && len(siblings) > 0 {
		slices.Sort(siblings)
		for i, s := range siblings {
			siblings[i] = strings.TrimPrefix(s, parent)
		}
		return "unknown key; " + strings.TrimSuffix(parent, ".") + " has " + strings.Join(slices.Compact(siblings), ", ")
	}
	return "unknown key; the sections are " + strings.Join(e.sections(), ", ")
}

// elsewhere reports whether another system has this key or section.
func (e explainer) elsewhere(path string) (bool, string) {
	for _, s := range e.others {
		if s.Name == e.config.System {
			continue
		}
		c := newConfig(s)
		if c.byPath[path] != nil || c.isGroup(path) {
			return true, "it belongs to the system " + s.Name + ", this is " + e.config.System
		}
		if a, ok := c.findAlias(path); ok {
			return true, "it is " + a.key + " of the system " + s.Name + ", this is " + e.config.System
		}
	}
	return false, ""
}

// sections lists the names of the top level.
func (e explainer) sections() []string {
	names := []string{"system"}
	for _, k := range e.config.keys {
		name, _, _ := strings.Cut(k.path, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// FlagHint explains an unknown flag without a dot, such as --lr; ok is false if it is not a known name for a
// key.
func FlagHint(name string, system System) (hint string, ok bool) {
	c := newConfig(system)
	name = strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")
	if a, found := c.findAlias(name); found {
		if a.key != "" {
			return strings.TrimSuffix("write --"+a.key+": "+a.why, ": ") + c.choices(a.key), true
		}
		return a.answer(), true
	}
	for _, k := range c.keys {
		if strings.HasSuffix(k.path, "."+name) {
			return "write --" + k.path, true
		}
	}
	return "", false
}
