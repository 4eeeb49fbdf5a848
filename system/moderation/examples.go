package moderation

import (
	"encoding/json"
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/train"
)

// The fields of an example, by number.
const (
	fieldIDs = iota
	fieldLens
	fieldLabels
	fieldShares // with model.pooling mean
)

// examples are the texts of a split as the model takes them.
type examples struct {
	*data.Table
	samples []sample
	lengths data.Lengths
	cut     int // texts longer than data.seq_len
	buckets []data.Bucket
}

// encode tokenises samples. weights are those of the two classes in the loss.
func encode(c *config.Config, e *encoder, samples []sample, rows int, weights [labels]float64) (*examples, error) {
	fields := []data.Field{
		fieldIDs:    {Name: inputIDs, Shape: []int{-1}, Pad: e.pad},
		fieldLens:   {Name: inputLens, Pad: 1}, // a row without an example must see something
		fieldLabels: {Name: inputLabels},
	}
	mean := config.Of[Model](c).Pooling == "mean"
	if mean {
		fields = append(fields, data.Field{Name: inputShares, Float: true, Shape: []int{-1}})
	}
	table, err := data.NewTable(fields...)
	if err != nil {
		return nil, err
	}
	x := &examples{Table: table, samples: samples}
	var ids []int32
	for _, s := range samples {
		var cut bool
		if ids, cut = e.ids(ids[:0], s.text); cut {
			x.cut++
		}
		values := []any{ids, []int32{int32(len(ids))}, []int32{int32(class(s.positive))}}
		if mean {
			values = append(values, shares(len(ids)))
		}
		if err := table.Add(float32(weights[class(s.positive)]), values...); err != nil {
			return nil, err
		}
	}
	x.lengths = data.CountLengths(x)
	for _, l := range buckets(c) {
		x.buckets = append(x.buckets, data.Bucket{Length: l, Rows: rows})
	}
	return x, nil
}

// class is the number of a label.
func class(positive bool) int {
	if positive {
		return 1
	}
	return 0
}

// shares are the weights of n tokens in their mean.
func shares(n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = 1 / float32(n)
	}
	return s
}

// classWeights are n/(2 n_class) of the training texts: both classes weigh the
// same in all, and the mean weight is 1.
func classWeights(c *config.Config, samples []sample) [labels]float64 {
	if config.Of[Decision](c).ClassWeights == "none" {
		return [labels]float64{1, 1}
	}
	n, p := float64(len(samples)), float64(count(samples))
	return [labels]float64{n / (labels * (n - p)), n / (labels * p)}
}

// padding is the share of padding in the micro-batches of x.
func (x *examples) padding() float64 {
	var lengths []int
	for _, b := range x.buckets {
		lengths = append(lengths, b.Length)
	}
	return x.lengths.PaddingShare(lengths)
}

// feed fits a loader of examples to the trainer.
type feed struct {
	l *data.ExampleLoader
	x *examples
}

// newFeed streams shuffled micro-batches for ever.
func newFeed(c *config.Config, x *examples, accumulation int) (*feed, error) {
	l, err := data.NewExampleLoader(x, data.ExampleOptions{
		MicroBatches: accumulation, Buckets: x.buckets, Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed, Workers: c.Data.Workers,
	})
	return &feed{l, x}, err
}

// Next implements train.Feed.
func (f *feed) Next() (train.Update, error) {
	u, err := f.l.Next()
	if err != nil {
		return train.Update{}, err
	}
	variants := make([]string, len(u.Micro))
	for m := range u.Micro {
		variants[m] = variant(f.x.buckets[u.Micro[m].Bucket].Length)
	}
	return train.Update{
		Micro: len(u.Micro), Weight: u.Weight, Tokens: u.Examples, Variants: variants, Cursor: u.Cursor,
		Fill: func(m int, in train.Inputs) error { return f.x.fill(&u.Micro[m], in) },
	}, nil
}

// Seek implements train.Feed.
func (f *feed) Seek(cursor json.RawMessage) error {
	var c data.ExampleCursor
	if err := json.Unmarshal(cursor, &c); err != nil {
		return err
	}
	return f.l.Seek(c)
}

// Close implements train.Feed.
func (f *feed) Close() { f.l.Close() }

// fill writes a micro-batch to the inputs of its bucket.
func (x *examples) fill(b *data.ExampleBatch, in train.Inputs) error {
	v := variant(x.buckets[b.Bucket].Length)
	for f, name := range []string{fieldIDs: at(inputIDs, v), fieldLens: inputLens, fieldLabels: inputLabels} {
		dst, err := in.I32(name)
		if err != nil {
			return err
		}
		if err := fits(name, copy(dst, b.Ints[f]), len(dst), len(b.Ints[f])); err != nil {
			return err
		}
	}
	if len(b.Floats) > fieldShares {
		dst, err := in.F32(at(inputShares, v))
		if err != nil {
			return err
		}
		if err := fits(inputShares, copy(dst, b.Floats[fieldShares]), len(dst), len(b.Floats[fieldShares])); err != nil {
			return err
		}
	}
	dst, err := in.F32(inputWeights)
	if err != nil {
		return err
	}
	return fits(inputWeights, copy(dst, b.Weights), len(dst), len(b.Weights))
}

func fits(name string, copied, want, have int) error {
	if copied != want || have != want {
		return fmt.Errorf("input %q holds %d elements, the micro-batch has %d", name, want, have)
	}
	return nil
}
