package moderation

import (
	"encoding/json"
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/train"
)

// These are the first fields of an example, by number. More follow with model.pooling mean and with
// model.wide_rows.
const (
	fieldIDs = iota
	fieldLens
	fieldLabels
)

// examples holds the texts of a split, encoded for the model.
type examples struct {
	*data.Table
	samples []sample
	lengths data.Lengths
	cut     int // number of texts longer than data.seq_len
	buckets []data.Bucket
}

// encode tokenizes samples. weights are the weights of the two classes in the loss.
func encode(c *config.Config, e *textEncoder, samples []sample, rows int, weights [labels]float64) (x *examples, err error) {
	defer token.Catch(&err)
	fields := []data.Field{
		fieldIDs:    {Name: inputIDs, Shape: []int{-1}, Pad: e.pad},
		fieldLens:   {Name: inputLens, Pad: 1}, // padded with 1, because a row without an example must attend to something
		fieldLabels: {Name: inputLabels},
	}
	m := config.Of[Model](c)
	if m.Pooling == "mean" {
		fields = append(fields, data.Field{Name: inputShares, Float: true, Shape: []int{-1}})
	}
	if m.WideRows > 0 {
		fields = append(fields, data.Field{Name: inputGrams, Shape: []int{-1, gramsPerToken}},
			data.Field{Name: inputPresent, Float: true, Shape: []int{-1, gramsPerToken}})
	}
	table, err := data.NewTable(fields...)
	if err != nil {
		return nil, err
	}
	x = &examples{Table: table, samples: samples}
	var in modelInput
	for _, s := range samples {
		in.set(e, m, s.text)
		if in.cut {
			x.cut++
		}
		values := []any{in.ids, []int32{int32(len(in.ids))}, []int32{int32(class(s.positive))}}
		if m.Pooling == "mean" {
			values = append(values, in.shares)
		}
		if m.WideRows > 0 {
			values = append(values, in.grams, in.present)
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

// class returns the number of a label.
func class(positive bool) int {
	if positive {
		return 1
	}
	return 0
}

// classWeights returns n/(2 n_class) of the training texts, which gives both classes the same total weight,
// and a mean weight of 1.
func classWeights(c *config.Config, samples []sample) [labels]float64 {
	if config.Of[Decision](c).ClassWeights == "none" {
		return [labels]float64{1, 1}
	}
	n, p := float64(len(samples)), float64(count(samples))
	return [labels]float64{n / (labels * (n - p)), n / (labels * p)}
}

// padding returns the share of padding in the micro-batches of x.
func (x *examples) padding() float64 {
	var lengths []int
	for _, b := range x.buckets {
		lengths = append(lengths, b.Length)
	}
	return x.lengths.PaddingShare(lengths)
}

// dataLoader adapts a loader of examples to the trainer.
type dataLoader struct {
	l *data.ExampleLoader
	x *examples
}

// newDataLoader streams shuffled micro-batches endlessly.
func newDataLoader(c *config.Config, x *examples, accumulation int) (*dataLoader, error) {
	l, err := data.NewExampleLoader(x, data.ExampleOptions{
		MicroBatches: accumulation, Buckets: x.buckets, Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed, Workers: c.Data.Workers, Depth: c.Data.Prefetch,
	})
	return &dataLoader{l, x}, err
}

// Next implements [train.DataLoader].
func (f *dataLoader) Next() (train.Update, error) {
	u, err := f.l.Next()
	if err != nil {
		return train.Update{}, err
	}
	variants := make([]string, len(u.Micro))
	for m := range u.Micro {
		variants[m] = variant(f.x.buckets[u.Micro[m].Bucket].Length)
	}
	return train.Update{
		Micro: len(u.Micro), Weight: u.Weight, Tokens: u.Examples, Variants: variants,
		Fill: func(m int, in train.Inputs) error { return f.x.fill(&u.Micro[m], in) },
	}, nil
}

// Position implements [train.DataLoader].
func (f *dataLoader) Position() any { return f.l.Position() }

// Seek implements [train.DataLoader].
func (f *dataLoader) Seek(position json.RawMessage) error {
	var c data.ExamplePosition
	if err := json.Unmarshal(position, &c); err != nil {
		return err
	}
	return f.l.Seek(c)
}

// Close implements [train.DataLoader].
func (f *dataLoader) Close() { f.l.Close() }

// fill copies a micro-batch to the inputs of its bucket.
func (x *examples) fill(b *data.ExampleBatch, in train.Inputs) error {
	v := variant(x.buckets[b.Bucket].Length)
	for f, field := range x.Fields() {
		var err error
		if field.Float {
			err = put(in.F32, at(field.Name, v), b.Floats[f])
		} else {
			err = put(in.I32, at(field.Name, v), b.Ints[f])
		}
		if err != nil {
			return err
		}
	}
	return put(in.F32, at(inputWeights, v), b.Weights)
}

// put copies src to an input of a program.
func put[T any](input func(name string) ([]T, error), name string, src []T) error {
	dst, err := input(name)
	if err != nil {
		return err
	}
	if len(dst) != len(src) {
		return fmt.Errorf("input %q has %d elements, the micro-batch has %d", name, len(dst), len(src))
	}
	copy(dst, src)
	return nil
}
