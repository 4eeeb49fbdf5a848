package config

import (
	"reflect"
)

// Fetch returns the local paths for a value that is an address, such as hf://datasets/OWNER/NAME; ok is false
// for any other value. A value that is not in a list has exactly one path.
type Fetch func(key, value string, list bool) (paths []string, ok bool, err error)

// fetch replaces addresses by local paths. The text of the values stays as written, so that a saved
// configuration means the same on another machine.
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
