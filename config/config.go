package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Config is a complete configuration. Create one with Load.
type Config struct {
	System string // name of the system
	Preset string // name of the preset it is based on; "" if none

	Training   Training
	Data       Data
	Hardware   Hardware
	Checkpoint Checkpoint
	Metrics    Metrics
	Run        Run

	Warnings []Problem // what is allowed but probably not intended

	own          []Section // sections of the system
	systemOrigin Origin
	keys         []*key // in reference order
	byPath       map[string]*key
}

// System is the configuration side of a kind of model to train.
type System struct {
	Name string // value of the key system
	Help string // one line
	// Sections creates the system's own sections with their defaults.
	Sections func() []Section
	// Resolve fills in values that come from other files, such as the sizes in a model folder
	// (Report.Follow), before rules between keys are checked. It may be nil.
	Resolve func(c *Config, r *Report)
	// Check checks rules between keys, which tags cannot express. It runs only if every single value is
	// valid, and may Derive values that were left open. It may be nil.
	Check func(c *Config, r *Report)
}

// Section is a struct whose tagged fields are keys below Name.
type Section struct {
	Name   string // "model", a common section to add keys to, or a new one
	Values any    // pointer to the struct
}

// Of returns the system's section of type T. It panics if the system has none, because the sections of a
// system are fixed in the program.
func Of[T any](c *Config) *T {
	for _, s := range c.own {
		if v, ok := s.Values.(*T); ok {
			return v
		}
	}
	panic(fmt.Sprintf("config: system %s has no section of type %v", c.System, reflect.TypeFor[T]()))
}

// newConfig returns the defaults of a system.
func newConfig(s System) *Config {
	c := defaults()
	c.System = s.Name
	if s.Sections != nil {
		c.own = s.Sections()
	}
	c.bind()
	return &c
}

// bind lists the keys. The common sections come in a fixed order, each followed by what the system adds to
// it; the system's own sections come last.
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

// Value is a key with its value as text and its origin.
type Value struct {
	Key    string
	Text   string
	Origin Origin
}

// Values lists every key in reference order, system first.
func (c *Config) Values() []Value {
	all := []Value{{"system", c.System, c.systemOrigin}}
	for _, k := range c.keys {
		all = append(all, Value{k.path, k.text(), k.origin})
	}
	return all
}

// Origin returns where the value of a key came from; ok is false if there is no such key.
func (c *Config) Origin(path string) (o Origin, ok bool) {
	if k := c.byPath[path]; k != nil {
		return k.origin, true
	}
	return Origin{}, false
}

// Derive sets a value that was left open. Its origin is what it was computed from.
func (c *Config) Derive(path, text, from string) error {
	k := c.byPath[path]
	if k == nil {
		return fmt.Errorf("config: derive %s: no such key", path)
	}
	var ps problems
	k.setText(text, Origin{Kind: Derived, Name: from}, &ps)
	return ps.err()
}

// Hash returns the hexadecimal SHA-256 of the system and the values of the named sections, or of all sections
// if none is named. Origins do not count.
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
