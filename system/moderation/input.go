package moderation

import (
	"hash/fnv"
	"math"
	"slices"
)

// gramsPerToken is the maximum number of words and word pairs per token of a text. It is reached by a word of
// one token, which also ends a pair.
const gramsPerToken = 2

// modelInput is a text encoded for the model.
type modelInput struct {
	ids []int32
	cut bool
	// shares are the weights of the ids in their mean.
	shares []float32
	// grams are rows of the wide table, two for each id. Their scores are multiplied by present: 1/sqrt(n)
	// for n different rows, 0 for padding.
	grams   []int32
	present []float32
}

// set encodes a text. It leaves parts that m does not use empty.
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

// row returns the row of a feature in a table.
func row(feature string, rows int) int32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(feature)) // a hash never fails to write
	return int32(h.Sum64() % uint64(rows))
}
