package config

import (
	"reflect"
)

// Fetch gives the local paths of what a value refers to if it is an address, such as
// hf://datasets/OWNER/NAME; ok is false for any other value. A single value, not in a list, has
// one path.
type Fetch func(key, value string, list bool) (paths []string, ok bool, err error)

// fetch replaces addresses by local paths. As text the values remain what was written: a
// configuration that is saved means the same on another machine.
func (c *Config) fetch(get Fetch, ps *problems) {
	for _, k := range c.keys {
		written := k.text()
		switch t := k.value.Type(); {
		case t.Kind() == reflect.String:
			paths, ok, err := get(k.path, k.value.String(), false)
			if err != nil {
				ps.add(k.origin, k.path, "%v", err)
			} else if ok {
				k.value.SetString(paths[0])
				k.written = written
			}
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
			k.fetchList(get, written, ps)
		}
	}
}

func (k *key) fetchList(get Fetch, written string, ps *problems) {
	local := reflect.MakeSlice(k.value.Type(), 0, k.value.Len())
	for i := range k.value.Len() {
		paths, ok, err := get(k.path, k.value.Index(i).String(), true)
		if err != nil {
			ps.add(k.origin, k.path, "%v", err)
			return
		}
		if !ok {
			local = reflect.Append(local, k.value.Index(i))
			continue
		}
		k.written = written
		for _, p := range paths {
			local = reflect.Append(local, reflect.ValueOf(p).Convert(k.value.Type().Elem()))
		}
	}
	k.value.Set(local)
}
