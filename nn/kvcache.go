package nn

import "github.com/snug-ml/snug/engine/graph"

// KVCache holds the keys and values of earlier tokens while text is generated, in states
// of the program, so that a plan counts them and no token is computed twice.
type KVCache struct {
	// Rows is how many texts the cache holds, Positions how many tokens of each.
	Rows, Positions int
	// Name returns the name of the state at a path of the builder; nil: the path itself.
	Name func(path string) string
	// At I32 [n] is the position of the first new token of each of the n rows that are
	// computed, Lens I32 [Rows] how many positions of each row of the cache are then
	// known. Rows of the cache that are not computed have a Lens of 1.
	At, Lens *graph.Value
	// To I32 [Rows], for n < Rows, is the position at which each row of the cache is
	// written. Rows that are not computed are written too, so theirs must be a position
	// that is not read before their next tokens overwrite it.
	To *graph.Value
	// Row I32 [1], for n = 1, is the row of the cache that is computed; nil: computed row
	// i is row i of the cache.
	Row *graph.Value
}

// State returns the state with a name below the builder's scope, [Rows, positions,
// width].
func (c *KVCache) State(b *graph.Builder, name string, positions, width int) *graph.Value {
	name = b.Path(name)
	if c.Name != nil {
		name = c.Name(name)
	}
	return b.State(&graph.State{Name: name, Type: graph.T(graph.F32, c.Rows, positions, width), Role: graph.CacheRole})
}

// append writes x [n, T, width] after the contents of the state with a name and returns
// all of it, [Rows, Positions, width].
func (c *KVCache) append(b *graph.Builder, name string, x *graph.Value) *graph.Value {
	to := c.To
	if to == nil {
		to = c.At
	}
	return b.Emit(graph.CacheWrite{}, c.State(b, name, c.Positions, x.Shape()[2]), c.wide(b, x), to)[0]
}

// The states of a layer.
const keyCache, valueCache = "key_cache", "value_cache"

// Attend computes op over separate queries, keys and values [n, T, H*K], first appending
// the new keys and values to those of earlier positions: [n, T, H*K].
func (c *KVCache) Attend(b *graph.Builder, op graph.Attention, q, k, v *graph.Value) *graph.Value {
	op.Layout, op.Lens = graph.Separate, true
	n, t, width := q.Shape()[0], q.Shape()[1], q.Shape()[2]
	y := b.Attention(op, c.wide(b, q), c.append(b, keyCache, k), c.append(b, valueCache, v), c.Lens)
	if c.Row != nil {
		return b.Reshape(b.Embedding(b.Reshape(y, c.Rows, t*width), c.Row), n, t, width)
	}
	return b.Slice(y, 0, 0, n)
}

// wide repeats the rows of x until there are as many as the cache has.
func (c *KVCache) wide(b *graph.Builder, x *graph.Value) *graph.Value {
	n := x.Shape()[0]
	if n == c.Rows {
		return x
	}
	parts := make([]*graph.Value, 0, c.Rows/n+1)
	for have := 0; have < c.Rows; have += n {
		parts = append(parts, b.Slice(x, 0, 0, min(n, c.Rows-have)))
	}
	return b.Concat(0, parts...)
}

// Reorder replaces row i of the cache of [KVCache.Attend] in this scope by row
// parents[i], which is how one beam continues from another. zero I32 [Rows] is all zeros.
func (c *KVCache) Reorder(b *graph.Builder, parents, zero *graph.Value, width int) {
	for _, name := range []string{keyCache, valueCache} {
		s := c.State(b, name, c.Positions, width)
		rows := b.Embedding(b.Reshape(s, c.Rows, c.Positions*width), parents)
		b.Emit(graph.CacheWrite{}, s, b.Reshape(rows, c.Rows, c.Positions, width), zero)
	}
}
