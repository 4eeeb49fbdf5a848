package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
)

// Live is a temporary at the peak, or Count of them that differ only in the number of their layer, from Layer
// to Last.
type Live struct {
	Value string `json:"value"` // the operation that made it
	Layer string `json:"layer"`
	Last  string `json:"last_layer,omitempty"`
	Count int    `json:"count"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"` // of each
	Kind  Kind   `json:"kind"`
}

// largest returns the first n groups of values, which are sorted by size, largest first.
func largest(values []*graph.Value, k kinds, n int) []Live {
	type key struct {
		value, layer, typ string
		kind              Kind
	}
	var all []Live
	at := map[key]int{}
	for _, v := range values {
		l := Live{Value: describe(v), Layer: v.Node.Layer, Count: 1, Type: v.Type.String(), Bytes: v.Type.Bytes(), Kind: k.of(v)}
		id := key{l.Value, unnumbered(l.Layer), l.Type, l.Kind}
		if i, ok := at[id]; ok {
			all[i].Count++
			all[i].Last = l.Layer
			continue
		}
		at[id] = len(all)
		all = append(all, l)
	}
	return all[:min(n, len(all))]
}

// span joins the paths of the first and last of several layers that differ in a number: "layers.0.mlp" and
// "layers.23.mlp" become "layers.0-23.mlp".
func span(first, last string) string {
	a, b := strings.Split(first, "."), strings.Split(last, ".")
	if len(a) != len(b) {
		return first + " to " + last
	}
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		x, errX := strconv.Atoi(a[i])
		y, errY := strconv.Atoi(b[i])
		if errX != nil || errY != nil {
			return first + " to " + last
		}
		a[i] = fmt.Sprintf("%d-%d", min(x, y), max(x, y))
	}
	return strings.Join(a, ".")
}

// unnumbered returns the layer path without its numbers.
func unnumbered(layer string) string {
	parts := strings.Split(layer, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}
