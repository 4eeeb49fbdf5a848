package moderation

import (
	"hash/fnv"
	"math"
	"slices"
)

// gramsPerToken is how many words and word pairs a text may have for each of
// its tokens: a word of one token comes with the pair that it ends.
const gramsPerToken = 2

// modelInput is a text as the model takes it.
type modelInput struct {
	ids []int32
	cut bool
	// shares are the weights of the ids in their mean.
	shares []float32
	// grams are rows of the wide table, two for each id, and present what their
	// scores are multiplied by: 1/sqrt(n) for n different ones, 0 for padding.
	grams   []int32
	present []float32
}

// set makes the input of a text. What m does not use is left empty.
func (in *modelInput) set(e *textEncoder, m *Model, text string) {
	in.ids, in.cut = e.ids(in.ids[:0], text)
	n := len(in.ids)
	if m.Pooling == "mean" {
		in.shares = slices.Grow(in.shares[:0], n)[:n]
		for i := range in.shares {
			in.shares[i] = 1 / float32(n)
		}
	}
	if m.WideRows == 0 {
		return
	}
	in.grams = in.grams[:0]
	for g := range grams(text) {
		in.grams = append(in.grams, row(g, m.WideRows))
	}
	slices.Sort(in.grams)
	in.grams = slices.Compact(in.grams)
	room := gramsPerToken * n
	found := min(len(in.grams), room)
	in.grams = slices.Grow(in.grams[:found], room)[:room]
	in.present = slices.Grow(in.present[:0], room)[:room]
	clear(in.grams[found:])
	clear(in.present)
	for i := range found {
		in.present[i] = float32(1 / math.Sqrt(float64(found)))
	}
}

// row is the row of a feature in a table.
func row(feature string, rows int) int32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(feature)) // a hash never fails to write
	return int32(h.Sum64() % uint64(rows))
}
