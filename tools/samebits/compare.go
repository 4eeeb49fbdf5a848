package main

import (
	"maps"
	"slices"

	"github.com/snug-ml/snug/tools/bits"
)

// difference is what two runs saved differently.
type difference struct {
	files, tensors int // of both
	names          []string
}

// diff compares files of tensors; what only one side has differs.
func diff(a, b map[string]bits.Tensors) *difference {
	d := &difference{}
	for _, file := range union(a, b) {
		d.files++
		for _, name := range union(a[file], b[file]) {
			d.tensors++
			x, inA := a[file][name]
			y, inB := b[file][name]
			where := file + ": " + name
			switch {
			case !inA:
				d.names = append(d.names, where+" (only after)")
			case !inB:
				d.names = append(d.names, where+" (only before)")
			case x != y:
				d.names = append(d.names, where)
			}
		}
	}
	return d
}

// union is the keys of either map, sorted.
func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// first names the first difference.
func (d *difference) first() string {
	if len(d.names) == 0 {
		return "same"
	}
	return "first: " + d.names[0]
}
