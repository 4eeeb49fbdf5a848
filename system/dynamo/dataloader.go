package dynamo

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/train"
)

// stream provides micro-batches from one table.
type stream struct {
	*table
	*data.ExampleLoader
}

func newStream(c *config.Config, t *table, rows int) (*stream, error) {
	l, err := data.NewExampleLoader(t, data.ExampleOptions{
		MicroBatches: 1, Buckets: []data.Bucket{{Rows: rows}}, Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed + uint64(t.number), Workers: c.Data.Workers, Depth: c.Data.Prefetch,
	})
	return &stream{t, l}, err
}

// part is a micro-batch of a stream and its destination.
type part struct {
	stream       int
	tag, headTag string
	row          int
}

// dataLoader draws updates from streams. The streams in a micro-batch depend only on its number.
type dataLoader struct {
	streams []*stream
	micros  int // micro-batches per update
	// mix returns the variant and the parts of a micro-batch of an update.
	mix func(update int64, micro int) (variant string, parts []part)
	// more fills further inputs of a micro-batch; nil if there are none.
	more   func(update int64, micro int, in train.Inputs) error
	update int64
}

// position is the position of a dataLoader: the updates done and the position of each stream.
type position struct {
	Update  int64                  `json:"update"`
	Streams []data.ExamplePosition `json:"streams"`
}

// drawn is a part with a copy of its data, because the loader's buffers are reused if an update draws from a
// stream more than once.
type drawn struct {
	part
	batch data.ExampleBatch
}

// Next implements [train.DataLoader].
func (f *dataLoader) Next() (train.Update, error) {
	n := f.update
	u := train.Update{Micro: f.micros}
	micro := make([][]drawn, f.micros)
	for m := range micro {
		variant, parts := f.mix(n, m)
		u.Variants = append(u.Variants, variant)
		for _, p := range parts {
			got, err := f.streams[p.stream].ExampleLoader.Next()
			if err != nil {
				return u, err
			}
			u.Weight += got.Weight
			u.Tokens += got.Examples * int64(f.streams[p.stream].length)
			micro[m] = append(micro[m], drawn{p, clone(&got.Micro[0])})
		}
	}
	f.update++
	u.Fill = func(m int, in train.Inputs) error {
		for _, d := range micro[m] {
			if err := f.streams[d.stream].fill(&d.batch, in, d.tag, d.row, d.headTag); err != nil {
				return err
			}
		}
		if f.more != nil {
			return f.more(n, m, in)
		}
		return nil
	}
	return u, nil
}

func clone(b *data.ExampleBatch) data.ExampleBatch {
	c := data.ExampleBatch{Bucket: b.Bucket, Weights: slices.Clone(b.Weights), Index: slices.Clone(b.Index)}
	for i := range b.Ints {
		c.Ints, c.Floats = append(c.Ints, slices.Clone(b.Ints[i])), append(c.Floats, slices.Clone(b.Floats[i]))
	}
	return c
}

// Position implements [train.DataLoader].
func (f *dataLoader) Position() any {
	p := position{Update: f.update}
	for _, s := range f.streams {
		p.Streams = append(p.Streams, s.Position())
	}
	return p
}

// Seek implements [train.DataLoader].
func (f *dataLoader) Seek(cursor json.RawMessage) error {
	var p position
	if err := json.Unmarshal(cursor, &p); err != nil {
		return err
	}
	if len(p.Streams) != len(f.streams) {
		return fmt.Errorf("the position is of %d streams, this run has %d", len(p.Streams), len(f.streams))
	}
	for i, s := range f.streams {
		if err := s.ExampleLoader.Seek(p.Streams[i]); err != nil {
			return err
		}
	}
	f.update = p.Update
	return nil
}

// Close implements [train.DataLoader].
func (f *dataLoader) Close() {
	for _, s := range f.streams {
		s.ExampleLoader.Close()
	}
}

// alone feeds one table.
func alone(c *config.Config, t *table, rows, micros int) (*dataLoader, error) {
	s, err := newStream(c, t, rows)
	return &dataLoader{streams: []*stream{s}, micros: micros, mix: func(int64, int) (string, []part) {
		return "", []part{{}}
	}}, err
}

// together feeds batches with equally many rows of each task, to inputs without a tag.
func together(c *config.Config, ts []*table, rows, micros int) (*dataLoader, error) {
	f := &dataLoader{micros: micros}
	var parts []part
	row := 0
	for i, own := range shares(len(ts), rows) {
		s, err := newStream(c, ts[i], own)
		if err != nil {
			return nil, err
		}
		f.streams = append(f.streams, s)
		parts = append(parts, part{stream: i, row: row})
		row += own
	}
	f.mix = func(int64, int) (string, []part) { return "", parts }
	return f, nil
}

// shares returns the number of rows of each of n tasks in a batch.
func shares(n, rows int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = rows*(i+1)/n - rows*i/n
	}
	return out
}

// curriculum feeds phase 3: batches of one task, whose share falls over the run, and batches of all tasks.
func curriculum(c *config.Config, ones, groups []*table, rows, micros int) (*dataLoader, error) {
	p, r, n := config.Of[Phases](c), config.Of[Router](c), len(ones)
	f := &dataLoader{micros: micros}
	size := group(c, rows)
	for i, t := range append(slices.Clone(ones), groups...) {
		own := rows
		if i >= n {
			own = size
		}
		s, err := newStream(c, t, own)
		if err != nil {
			return nil, err
		}
		f.streams = append(f.streams, s)
	}
	var all []part
	for i, t := range groups {
		all = append(all, part{stream: n + i, tag: variantMixed, headTag: groupTag(t.task), row: i * size})
	}
	f.mix = func(update int64, micro int) (string, []part) {
		k := update*int64(micros) + int64(micro)
		rng := rand.New(rand.NewPCG(c.Training.Seed, uint64(k)))
		done := float64(update) / float64(max(1, p.JointSteps-1))
		if rng.Float64() >= p.CurriculumStart+(p.CurriculumEnd-p.CurriculumStart)*done {
			return variantMixed, all
		}
		// Tasks take turns, in a different order each round.
		turn := rand.New(rand.NewPCG(c.Training.Seed+1, uint64(k/int64(n)))).Perm(n)[k%int64(n)]
		name := ones[turn].task
		return name, []part{{stream: turn, tag: name, headTag: name}}
	}
	if r.Gumbel {
		f.more = func(update int64, micro int, in train.Inputs) error {
			variant, _ := f.mix(update, micro)
			return draw(r, c.Training.Seed, update, micro, variant, in)
		}
	}
	return f, nil
}

// draw sets the noise and the temperature of a router that draws.
func draw(r *Router, seed uint64, update int64, micro int, variant string, in train.Inputs) error {
	rng := rand.New(rand.NewPCG(seed+2, uint64(update)<<16|uint64(micro)))
	noise, err := in.F32(at(inputNoise, variant))
	if err != nil {
		return err
	}
	for i := range noise {
		noise[i] = float32(-math.Log(-math.Log(max(rng.Float64(), 1e-12))))
	}
	tau, err := in.F32(inputTau)
	if err != nil {
		return err
	}
	tau[0] = float32(max(coldest, r.GumbelTemperature*math.Pow(r.GumbelDecay, float64(update))))
	return nil
}
