package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Config is a complete configuration. Make one with Load.
type Config struct {
	System string // name of the system
	Preset string // name of the preset it started from; "" if none

	Training   Training
	Data       Data
	Hardware   Hardware
	Checkpoint Checkpoint
	Metrics    Metrics
	Run        Run

	Warnings []Problem // what is allowed but probably not meant

	own          []Section // the system's
	systemOrigin Origin
	keys         []*key // in the order of the reference
	byPath       map[string]*key
}

// System is a kind of model to train, as far as its configuration goes.
type System struct {
	Name string // value of the key system
	Help string // one line
	// Sections makes the system's own sections, filled with its defaults.
	Sections func() []Section
	// Resolve fills in what other files decide, the sizes in a model folder
	// (Report.Follow), before any rule between keys is checked. It may be nil.
	Resolve func(c *Config, r *Report)
	// Check reports what the tags cannot express: rules between keys. It runs only when every value
	// is valid by itself, and may Derive values that were left open. It may be nil.
	Check func(c *Config, r *Report)
}

// Section is a struct whose tagged fields are keys below Name.
type Section struct {
	Name   string // "model", a common section to add keys to, or a new one
	Values any    // pointer to the struct
}

// Of returns the system's section of type T. It panics if the system has none: which
// sections a system has is fixed in the program.
func Of[T any](c *Config) *T {
	for _, s := range c.own {
		if v, ok := s.Values.(*T); ok {
			return v
		}
	}
	panic(fmt.Sprintf("config: system %s has no section of type %v", c.System, reflect.TypeFor[T]()))
}

// newConfig makes the defaults of a system.
func newConfig(s System) *Config {
	c := defaults()
	c.System = s.Name
	if s.Sections != nil {
		c.own = s.Sections()
	}
	c.bind()
	return &c
}

// bind lists the keys. The common sections come in a fixed order with what the system
// adds to each; its own new sections follow.
func (c *Config) bind() {
	common := []Section{
		{"model", nil},
		{"training", &c.Training}, {"data", &c.Data}, {"hardware", &c.Hardware}, {"checkpoint", &c.Checkpoint}, {"metrics", &c.Metrics}, {"run", &c.Run},
	}
	var names []string
	parts := map[string][]any{}
	for _, s := range slices.Concat(common, c.own) {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
		if s.Values != nil {
			parts[s.Name] = append(parts[s.Name], s.Values)
		}
	}
	c.keys, c.byPath = nil, map[string]*key{}
	for _, name := range names {
		for _, values := range parts[name] {
			c.keys = append(c.keys, fields(name, reflect.ValueOf(values).Elem())...)
		}
	}
	for _, k := range c.keys {
		if c.byPath[k.path] != nil {
			panic("config: two fields for the key " + k.path)
		}
		c.byPath[k.path] = k
	}
}

// Value is one key with its value as text and where that came from.
type Value struct {
	Key    string
	Text   string
	Origin Origin
}

// Values lists every key in the order of the reference, system first.
func (c *Config) Values() []Value {
	all := []Value{{"system", c.System, c.systemOrigin}}
	for _, k := range c.keys {
		all = append(all, Value{k.path, k.text(), k.origin})
	}
	return all
}

// Origin is where the value of a key came from; ok is false if there is no such key.
func (c *Config) Origin(path string) (o Origin, ok bool) {
	if k := c.byPath[path]; k != nil {
		return k.origin, true
	}
	return Origin{}, false
}

// Derive sets a value that was left open, with what it was computed from as its origin.
func (c *Config) Derive(path, text, from string) error {
	k := c.byPath[path]
	if k == nil {
		return fmt.Errorf("config: derive %s: no such key", path)
	}
	var ps problems
	k.setText(text, Origin{Kind: Derived, Name: from}, &ps)
	return ps.err()
}

// Hash is the SHA-256 of the system and the values of these sections (all if none is named), in
// hexadecimal. The origin of a value does not count.
func (c *Config) Hash(sections ...string) string {
	h := sha256.New()
	for _, v := range c.Values() {
		section, _, nested := strings.Cut(v.Key, ".")
		if len(sections) == 0 || !nested || slices.Contains(sections, section) {
			fmt.Fprintf(h, "%s=%q\n", v.Key, v.Text)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
