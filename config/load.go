package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/suggest"
)

// Sources are the layers of a configuration: the defaults of a system, then a preset, then a file, then
// flags.
type Sources struct {
	Systems   []System
	Presets   fs.FS      // holds NAME.yaml; may be nil
	Preset    string     // "" for none
	File      string     // path of a YAML file; "" for none
	Overrides []Override // from flags
	NeedData  bool       // require data.source, which a plan does not need
	Fetch     Fetch      // fetches addresses; if nil, no value is an address
}

// Override is a value given by a flag.
type Override struct {
	Key  string // dotted
	Text string
	Flag string // as typed, if it is not the key's own flag: --out
	Bare bool   // the flag had no value: means true for keys that are true or false
}

// text returns the value, or true for a flag without one.
func (f *Override) text() string {
	if f.Bare {
		return "true"
	}
	return f.Text
}

func (f *Override) origin() Origin {
	if f.Flag != "" {
		return Origin{Kind: Flag, Name: f.Flag}
	}
	return Origin{Kind: Flag, Name: "--" + f.Key}
}

// maxFile is the maximum size of a configuration file, in bytes.
const maxFile = 1 << 20

// layer is one YAML document.
type layer struct {
	origin Origin
	root   *yaml.Node // a mapping; nil if the document is empty
}

// Load reads and checks a configuration. If it fails, the error is an *Error that lists every fault.
func Load(s Sources) (*Config, error) {
	var ps problems
	layers := readLayers(s, &ps)
	system, origin, ok := findSystem(s, layers, &ps)
	if !ok {
		return nil, ps.err()
	}

	c := newConfig(system)
	c.Preset, c.systemOrigin = s.Preset, origin
	e := explainer{config: c, others: s.Systems}
	for _, l := range layers {
		if l.root != nil {
			c.applyMapping(l.root, "", l.origin, e, &ps)
		}
	}
	c.applyOverrides(s.Overrides, e, &ps)
	if len(ps) > 0 {
		ps = append(ps, c.Warnings...) // the message includes the translations of foreign keys
		return nil, ps.err()
	}

	if s.Fetch != nil {
		c.fetch(s.Fetch, &ps)
		if len(ps) > 0 {
			return nil, ps.err()
		}
	}
	r := &Report{config: c, problems: &ps}
	if system.Resolve != nil {
		system.Resolve(c, r)
		if len(ps) > 0 {
			return nil, ps.err()
		}
	}
	c.checkCommon(r, s.NeedData)
	if system.Check != nil {
		system.Check(c, r)
	}
	if err := ps.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// readLayers reads the preset and the file.
func readLayers(s Sources, ps *problems) []layer {
	var layers []layer
	if s.Preset != "" {
		if l, ok := readPreset(s.Presets, s.Preset, ps); ok {
			layers = append(layers, l)
		}
	}
	if s.File != "" {
		o := Origin{Kind: File, Name: s.File}
		if text, err := regular.Read(s.File, maxFile); err != nil {
			ps.add(o, "", "%v", pathless(err))
		} else if l, ok := parseLayer(text, o, ps); ok {
			layers = append(layers, l)
		}
	}
	return layers
}

// pathless removes the path from a file error whose message will name it anyway.
func pathless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// readPreset reads NAME.yaml.
func readPreset(presets fs.FS, name string, ps *problems) (layer, bool) {
	o := Origin{Kind: Preset, Name: name}
	var names []string
	if presets != nil {
		infos, err := ListPresets(presets)
		if err != nil {
			ps.add(o, "", "%v", err)
			return layer{}, false
		}
		for _, p := range infos {
			names = append(names, p.Name)
		}
	}
	if !slices.Contains(names, name) {
		hint := ""
		if near, ok := suggest.Nearest(name, names); ok {
			hint = "did you mean " + near + "? "
		}
		ps.add(o, "", "no such preset; %sthere are %s; a file is given by --config FILE", hint, strings.Join(names, ", "))
		return layer{}, false
	}
	text, err := fs.ReadFile(presets, name+".yaml")
	if err != nil {
		ps.add(o, "", "%v", err)
		return layer{}, false
	}
	return parseLayer(text, o, ps)
}

// PresetInfo describes a preset.
type PresetInfo struct {
	Name string
	Help string // the leading comment of the file, on one line
}

// ListPresets lists the presets of a folder by name.
func ListPresets(presets fs.FS) ([]PresetInfo, error) {
	files, err := fs.Glob(presets, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []PresetInfo
	for _, f := range files {
		text, err := fs.ReadFile(presets, f)
		if err != nil {
			return nil, err
		}
		var comment []string
		for line := range strings.Lines(string(text)) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
			if !ok {
				break
			}
			comment = append(comment, strings.TrimSpace(rest))
		}
		all = append(all, PresetInfo{strings.TrimSuffix(f, ".yaml"), strings.Join(comment, " ")})
	}
	return all, nil
}

// tabbed reports whether a line, counted from 1, is indented by a tab.
func tabbed(text []byte, line int) bool {
	lines := bytes.Split(text, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	l := lines[line-1]
	return bytes.Contains(l[:len(l)-len(bytes.TrimLeft(l, " \t"))], []byte("\t"))
}

// parseLayer parses a YAML document, which must be a mapping or empty.
func parseLayer(text []byte, o Origin, ps *problems) (layer, bool) {
	root, err := parseYAML(text)
	if err != nil {
		if e, ok := errors.AsType[*yaml.LoadError](err); ok {
			o.Line = e.Mark.Line
			why := e.Message
			if tabbed(text, o.Line) {
				why = "the line is indented by a tab, want spaces"
			}
			ps.add(o, "", "not valid YAML: %s", why)
		} else {
			ps.add(o, "", "not valid YAML: %v", err)
		}
		return layer{}, false
	}
	if root != nil && root.Kind != yaml.MappingNode {
		o.Line = root.Line
		ps.add(o, "", "want sections such as model: and training:, got %s", what(root))
		return layer{}, false
	}
	return layer{o, root}, true
}

// parseYAML returns the root of the only document; nil if the text has none.
func parseYAML(text []byte) (*yaml.Node, error) {
	var docs []yaml.Node
	if err := yaml.Load(text, &docs, yaml.WithAllDocuments()); err != nil {
		return nil, err
	}
	switch {
	case len(docs) == 0 || len(docs[0].Content) == 0:
		return nil, nil
	case len(docs) > 1:
		return nil, fmt.Errorf("want one document, got %d", len(docs))
	}
	root := docs[0].Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

// findSystem finds the value of the key system: that of the last layer that sets it, or else the only system.
func findSystem(s Sources, layers []layer, ps *problems) (System, Origin, bool) {
	var names []string
	for _, sys := range s.Systems {
		names = append(names, sys.Name)
	}
	name, origin := "", Origin{}
	for _, l := range layers {
		if l.root == nil {
			continue
		}
		for i := 0; i+1 < len(l.root.Content); i += 2 {
			if k, v := l.root.Content[i], resolve(l.root.Content[i+1]); k.Kind == yaml.ScalarNode && k.Value == "system" {
				name, origin = v.Value, l.origin
				origin.Line = k.Line
			}
		}
	}
	for _, o := range s.Overrides {
		if o.Key == "system" {
			name, origin = o.Text, Origin{Kind: Flag, Name: "--system"}
		}
	}
	if origin.Kind == Default && len(s.Systems) == 1 {
		return s.Systems[0], origin, true
	}
	for _, sys := range s.Systems {
		if sys.Name == name {
			return sys, origin, true
		}
	}
	if origin.Kind == Default {
		if len(*ps) == 0 { // otherwise the layer that sets it may have been unreadable
			noSystem(s, layers, names, ps)
		}
		return System{}, origin, false
	}
	hint := ""
	if near, ok := suggest.Nearest(name, names); ok {
		hint = ", did you mean " + near + "?"
	}
	ps.add(origin, "system", "want one of %s, got %s%s", strings.Join(names, ", "), quote(name), hint)
	return System{}, origin, false
}

// noSystem reports that nothing says which system is meant, and in a file why.
func noSystem(s Sources, layers []layer, names []string, ps *problems) {
	o, why := Origin{}, "not given"
	for _, l := range layers {
		if o = l.origin; l.root == nil {
			why = "not given, and the file is empty"
			continue
		}
		for i := 0; i+1 < len(l.root.Content); i += 2 {
			if k, v := l.root.Content[i], resolve(l.root.Content[i+1]); k.Value == "preset" {
				at := o
				at.Line = k.Line
				ps.add(at, "preset", "unknown key: a preset is named on the command line: snug train %s --config %s", shell.Quote(cmp.Or(v.Value, "PRESET")), shell.Path(s.File))
				return
			}
		}
	}
	ps.add(o, "system", "%s: name a preset, or set it to one of %s", why, strings.Join(names, ", "))
}

// applyMapping sets the keys below prefix from a YAML mapping.
func (c *Config) applyMapping(n *yaml.Node, prefix string, o Origin, e explainer, ps *problems) {
	seen := map[string]int{}
	var foreign []func() // translated keys come last, to detect keys that are given twice
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		o.Line = name.Line
		path := prefix + name.Value
		switch {
		case name.Kind != yaml.ScalarNode:
			ps.add(o, prefix, "want a name as key, got %s", what(name))
			continue
		case name.Tag == "!!merge":
			ps.add(o, path, "merging mappings is not supported: write the keys out")
			continue
		case seen[name.Value] > 0:
			ps.add(o, path, "given twice, first on line %d", seen[name.Value])
			continue
		}
		seen[name.Value] = max(name.Line, 1)
		switch {
		case path == "system":
			if value.Kind != yaml.ScalarNode {
				ps.add(o, path, "want a name, got %s", what(value))
			}
		case strings.Contains(name.Value, ".") && c.byPath[path] != nil:
			ps.add(o, path, "write it nested in a file: %s", strings.ReplaceAll(path, ".", ": "))
		case c.byPath[path] != nil:
			c.byPath[path].setNode(c.translated(path, value, o), o, ps)
		case !c.isGroup(path):
			at := o
			foreign = append(foreign, func() { e.unknown(path, value, at, ps) })
		case value.Kind == yaml.MappingNode:
			c.applyMapping(value, path+".", o, e, ps)
		case value.Kind != yaml.ScalarNode || value.Tag != "!!null": // an empty section is not a fault
			ps.add(o, path, "want a mapping of keys, got %s", what(value))
		}
	}
	for _, take := range foreign {
		take()
	}
}

// isGroup reports whether there are keys below path.
func (c *Config) isGroup(path string) bool {
	return slices.ContainsFunc(c.keys, func(k *key) bool { return strings.HasPrefix(k.path, path+".") })
}

func (c *Config) applyOverrides(overrides []Override, e explainer, ps *problems) {
	seen := map[string]bool{}
	for _, f := range overrides {
		o := f.origin()
		k := c.byPath[f.Key]
		switch {
		case seen[f.Key]:
			ps.add(o, f.Key, "given twice")
		case f.Key == "system":
		case k == nil:
			e.unknown(f.Key, &yaml.Node{Kind: yaml.ScalarNode, Value: f.text()}, o, ps)
		case f.Bare && k.value.Kind().String() == "bool":
			k.setText("true", o, ps)
		case f.Bare:
			ps.add(o, f.Key, "want %s, got no value", expects(k.value.Type(), k.rule))
		default:
			k.setText(c.translated(f.Key, &yaml.Node{Kind: yaml.ScalarNode, Value: f.Text}, o).Value, o, ps)
		}
		seen[f.Key] = true
	}
}
