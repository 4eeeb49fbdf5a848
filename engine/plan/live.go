package plan

import (
	"strings"

	"github.com/snug-ml/snug/engine/graph"
)

// Live is a temporary at the peak, or Count of them that differ in the number of
// their layer only: Layer to Last.
type Live struct {
	Value string `json:"value"` // the operation that made it
	Layer string `json:"layer"`
	Last  string `json:"last_layer,omitempty"`
	Count int    `json:"count"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"` // of one
	Kind  Kind   `json:"kind"`
}

// largest are the first n groups of values, which come largest first.
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

// unnumbered is the layer path with its numbers left out.
func unnumbered(layer string) string {
	parts := strings.Split(layer, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}
