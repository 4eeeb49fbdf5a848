package config

import (
	"fmt"
	"strings"
)

// Fact is the value of a key according to a file that another key names.
type Fact struct {
	Key   string
	Value any
}

// Follow sets keys to their values in file, which the key by names, such as the sizes in a model folder. A
// value from an earlier layer than by's is replaced, with a warning; one from the same layer or a later one
// must agree with the file.
func (r *Report) Follow(by, file string, facts []Fact) {
	c := r.config
	var gaveWay []string
	for _, f := range facts {
		k := c.byPath[f.Key]
		was, origin, fixed := k.text(), k.origin, c.GivenWith(f.Key, by)
		if err := c.Derive(f.Key, fmt.Sprint(f.Value), file); err != nil {
			r.Error(by, "%v", err)
			continue
		}
		switch now := k.text(); {
		case now == was || origin.Kind == Default:
		case fixed:
			r.problems.add(origin, f.Key, "%s of %s has %s, got %s: remove the key, or name a folder whose model has it", file, by, now, was)
		default:
			gaveWay = append(gaveWay, fmt.Sprintf("%s is %s, not %s (%v)", f.Key, now, was, origin))
		}
	}
	if len(gaveWay) > 0 {
		r.Warn(by, "its %s decides: %s", file, strings.Join(gaveWay, ", "))
	}
}

// GivenWith reports whether a key was given in the same layer as the key by, or in a later one.
func (c *Config) GivenWith(path, by string) bool {
	k, b := c.byPath[path], c.byPath[by]
	return k.origin.Kind != Default && k.origin.Kind >= b.origin.Kind
}
