package data

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/internal/size"
)

// Bucket is a static shape of a micro-batch, for which a program is compiled.
type Bucket struct {
	Length int // that ragged fields are padded to; 0 if there are none
	Rows   int // examples in a micro-batch
}

// ExampleBatch is one micro-batch, padded to its bucket.
type ExampleBatch struct {
	Bucket int // number in ExampleOptions.Buckets
	// Ints and Floats hold the fields by their number, [rows, Size(length)]; the slice of
	// the other kind is nil.
	Ints   [][]int32
	Floats [][]float32
	// Weights are the weights of the rows in the loss, 0 for those without an example.
	Weights []float32
	// Index is the example in each row, -1 for none.
	Index []int
}

// ExampleUpdate is what one optimizer update trains on. Its micro-batches may be from
// different buckets.
type ExampleUpdate struct {
	Micro    []ExampleBatch
	Weight   float64 // total of all rows
	Examples int64   // rows with an example
	Position ExamplePosition
}

// ExamplePosition is a place in a stream of micro-batches.
type ExamplePosition struct {
	Epoch int64 `json:"epoch"`
	Index int64 `json:"index"` // micro-batches of this pass done
	// What the order depends on, as one string.
	Order string `json:"order"`
}

// ExampleOptions shape a stream of examples.
type ExampleOptions struct {
	MicroBatches int // per update on each rank
	// Buckets in ascending order of their lengths. An example goes to the smallest
	// that fits it; one that fits none is an error. Lengths.Buckets chooses lengths
	// that pad least.
	Buckets []Bucket
	// Shuffle, Seed, Epochs, Rank, World, Workers and Depth are as in
	// LoaderOptions. Shuffling reorders the examples of a bucket and then the
	// micro-batches of all.
	Shuffle        bool
	Seed           uint64
	Epochs         int64
	Rank, World    int
	Workers, Depth int
}

// ExampleLoader prefetches updates of examples in length buckets. Each epoch
// has every example once; the last micro-batch of each bucket may have rows
// without one. The methods are for one goroutine.
type ExampleLoader struct {
	examples Examples
	opt      ExampleOptions
	members  [][]int32 // examples of each bucket
	first    []int64   // number of each bucket's first micro-batch, and the total
	order    string
	start    int64 // micro-batches before the ring's update 0, over all epochs
	position int64
	ring     *ring[exampleSlot]
}

// exampleSlot is an update with its full buffers, of which each micro-batch
// uses what its bucket needs.
type exampleSlot struct {
	ExampleUpdate
	full []ExampleBatch
	row  []Row
}

// NewExampleLoader sorts the examples into buckets and starts to prefetch.
func NewExampleLoader(x Examples, opt ExampleOptions) (*ExampleLoader, error) {
	if opt.World == 0 {
		opt.World = 1
	}
	if opt.Workers == 0 {
		opt.Workers = 1
	}
	if opt.Depth == 0 {
		opt.Depth = 2
	}
	if err := opt.check(x); err != nil {
		return nil, err
	}
	l := &ExampleLoader{examples: x, opt: opt, members: make([][]int32, len(opt.Buckets)), first: make([]int64, len(opt.Buckets)+1)}
	for i := range x.Len() {
		b := 0
		for b < len(opt.Buckets) && opt.Buckets[b].Length < x.Length(i) {
			b++
		}
		if b == len(opt.Buckets) {
			return nil, fmt.Errorf("data: example %d has %d positions, the longest bucket has %d; cut the example, or add a bucket", i, x.Length(i), opt.Buckets[b-1].Length)
		}
		l.members[b] = append(l.members[b], int32(i))
	}
	for b, m := range l.members {
		rows := opt.Buckets[b].Rows
		l.first[b+1] = l.first[b] + int64((len(m)+rows-1)/rows)
	}
	l.order = fmt.Sprintf("examples=%.16s buckets=%v shuffle=%t seed=%d", x.ID(), opt.Buckets, opt.Shuffle, opt.Seed)
	slots := make([]exampleSlot, opt.Depth+1) // one is with the consumer
	for i := range slots {
		slots[i] = l.newSlot()
	}
	l.ring = newRing(slots, opt.Workers, l.updates(), l.fill)
	return l, nil
}

func (o *ExampleOptions) check(x Examples) error {
	switch {
	case x.Len() == 0:
		return fmt.Errorf("data: no examples")
	case int64(x.Len()) > math.MaxInt32:
		return fmt.Errorf("data: %d examples, at most %d", x.Len(), math.MaxInt32)
	case o.MicroBatches < 1:
		return fmt.Errorf("data: %d micro-batches in an update, want 1 or more", o.MicroBatches)
	case o.World < 1 || o.Rank < 0 || o.Rank >= o.World:
		return fmt.Errorf("data: rank %d of %d", o.Rank, o.World)
	case o.Workers < 1 || o.Depth < 1:
		return fmt.Errorf("data: %s, %s ahead: want 1 or more of each", size.Of(o.Workers, "loader worker"), size.Of(o.Depth, "update"))
	case o.Epochs < 0:
		return fmt.Errorf("data: %d epochs, want 0 (no end) or more", o.Epochs)
	case len(o.Buckets) == 0:
		return fmt.Errorf("data: no buckets")
	}
	for i, b := range o.Buckets {
		if b.Rows < 1 || b.Length < 0 || i > 0 && b.Length <= o.Buckets[i-1].Length {
			return fmt.Errorf("data: bucket %d has length %d and %d rows: want ascending lengths and 1 row or more", i, b.Length, b.Rows)
		}
	}
	return nil
}

// newSlot allocates buffers that hold a micro-batch of any bucket.
func (l *ExampleLoader) newSlot() exampleSlot {
	fields := l.examples.Fields()
	rows := 0
	for _, b := range l.opt.Buckets {
		rows = max(rows, b.Rows)
	}
	s := exampleSlot{full: make([]ExampleBatch, l.opt.MicroBatches), row: make([]Row, l.opt.MicroBatches)}
	s.Micro = make([]ExampleBatch, l.opt.MicroBatches)
	for m := range s.full {
		full := ExampleBatch{Ints: make([][]int32, len(fields)), Floats: make([][]float32, len(fields)), Weights: make([]float32, rows), Index: make([]int, rows)}
		for f := range fields {
			size := 0
			for _, b := range l.opt.Buckets {
				size = max(size, b.Rows*fields[f].Size(b.Length))
			}
			if fields[f].Float {
				full.Floats[f] = make([]float32, size)
			} else {
				full.Ints[f] = make([]int32, size)
			}
		}
		s.full[m] = full
		s.Micro[m] = ExampleBatch{Ints: make([][]int32, len(fields)), Floats: make([][]float32, len(fields))}
		s.row[m] = Row{Ints: make([][]int32, len(fields)), Floats: make([][]float32, len(fields))}
	}
	return s
}

// batches is the number of micro-batches of an epoch.
func (l *ExampleLoader) batches() int64 { return l.first[len(l.first)-1] }

// perUpdate is the number of micro-batches of an update on all ranks.
func (l *ExampleLoader) perUpdate() int64 {
	return int64(l.opt.MicroBatches) * int64(l.opt.World)
}

// Updates is the number of updates in a pass over the examples.
func (l *ExampleLoader) Updates() int64 {
	return (l.batches() + l.perUpdate() - 1) / l.perUpdate()
}

// end is the number of micro-batches in the whole stream.
func (l *ExampleLoader) end() int64 {
	if n := l.batches(); l.opt.Epochs > 0 && l.opt.Epochs <= math.MaxInt64/n {
		return l.opt.Epochs * n
	}
	return math.MaxInt64
}

func (l *ExampleLoader) updates() int64 {
	end := l.end()
	if end == math.MaxInt64 {
		return end
	}
	return max(0, (end-l.start+l.perUpdate()-1)/l.perUpdate())
}

// fill makes update n of the ring.
func (l *ExampleLoader) fill(n int64, s *exampleSlot) error {
	first, end := l.start+n*l.perUpdate(), l.end()
	s.Weight, s.Examples = 0, 0
	for m := range s.Micro {
		at := first + int64(m)*int64(l.opt.World) + int64(l.opt.Rank)
		bucket, from, members := 0, 0, []int32(nil)
		var order Permutation
		if at < end {
			bucket, from, order = l.locate(at)
			members = l.members[bucket]
		}
		if err := l.fillBatch(s, m, bucket, from, members, &order); err != nil {
			return err
		}
	}
	s.Position = l.at(min(first+l.perUpdate(), end))
	return nil
}

// orderStream returns the stream of a permutation of an epoch: one for the micro-batches
// and one for each bucket.
func orderStream(epoch int64, number int) uint64 {
	return uint64(epoch)<<16 | uint64(number)
}

// locate finds the bucket of a micro-batch of the stream, the position of its first
// example there, and the order of the bucket's examples.
func (l *ExampleLoader) locate(at int64) (bucket, from int, order Permutation) {
	epoch, k := at/l.batches(), at%l.batches()
	if l.opt.Shuffle {
		p := NewPermutation(l.batches(), l.opt.Seed, orderStream(epoch, 0))
		k = p.At(k)
	}
	for k >= l.first[bucket+1] {
		bucket++
	}
	order = NewPermutation(int64(len(l.members[bucket])), l.opt.Seed, orderStream(epoch, bucket+1))
	return bucket, int(k-l.first[bucket]) * l.opt.Buckets[bucket].Rows, order
}

// fillBatch writes micro-batch m: examples of a bucket from a position on. Without
// members, rows have no example.
func (l *ExampleLoader) fillBatch(s *exampleSlot, m, bucket, from int, members []int32, order *Permutation) error {
	shape, full, b, row := l.opt.Buckets[bucket], &s.full[m], &s.Micro[m], &s.row[m]
	fields := l.examples.Fields()
	b.Bucket, b.Weights, b.Index = bucket, full.Weights[:shape.Rows], full.Index[:shape.Rows]
	for f := range fields {
		size := shape.Rows * fields[f].Size(shape.Length)
		if fields[f].Float {
			b.Floats[f] = full.Floats[f][:size]
		} else {
			b.Ints[f] = full.Ints[f][:size]
		}
	}
	for r := range shape.Rows {
		for f := range fields {
			size := fields[f].Size(shape.Length)
			if fields[f].Float {
				row.Floats[f] = b.Floats[f][r*size : (r+1)*size]
			} else {
				row.Ints[f] = b.Ints[f][r*size : (r+1)*size]
			}
		}
		if from+r >= len(members) {
			l.blank(*row)
			b.Weights[r], b.Index[r] = 0, -1
			continue
		}
		place := int64(from + r)
		if l.opt.Shuffle {
			place = order.At(place)
		}
		weight, err := l.examples.Fill(int(members[place]), *row)
		if err != nil {
			return err
		}
		b.Weights[r], b.Index[r] = weight, int(members[place])
		s.Weight += float64(weight)
		s.Examples++
	}
	return nil
}

// blank fills a row without an example.
func (l *ExampleLoader) blank(row Row) {
	for f, field := range l.examples.Fields() {
		clear(row.Floats[f])
		for k := range row.Ints[f] {
			row.Ints[f][k] = field.Pad
		}
	}
}

func (l *ExampleLoader) at(batches int64) ExamplePosition {
	n := l.batches()
	return ExamplePosition{Epoch: batches / n, Index: batches % n, Order: l.order}
}

// Next returns the next update, or io.EOF after the last. What it points to is
// overwritten after the following call of Next, Seek or Close.
func (l *ExampleLoader) Next() (*ExampleUpdate, error) {
	s, err := l.ring.next()
	if err != nil {
		return nil, err
	}
	l.position = s.Position.Epoch*l.batches() + s.Position.Index
	return &s.ExampleUpdate, nil
}

// Position is the position after the last update returned by Next.
func (l *ExampleLoader) Position() ExamplePosition { return l.at(l.position) }

// Seek goes to a position. The stream from there on equals the uninterrupted one.
func (l *ExampleLoader) Seek(c ExamplePosition) error {
	n := l.batches()
	switch {
	case c.Order != l.order:
		return fmt.Errorf("data: the position belongs to the order of %s, this run has %s", c.Order, l.order)
	case c.Epoch < 0 || c.Index < 0 || c.Index >= n || c.Epoch > (math.MaxInt64-n)/n:
		return fmt.Errorf("data: position at epoch %d, micro-batch %d of %d", c.Epoch, c.Index, n)
	}
	return l.ring.restart(func() int64 {
		l.start = c.Epoch*n + c.Index
		l.position = l.start
		return l.updates()
	})
}

// Close stops the workers and waits for them. Next then fails.
func (l *ExampleLoader) Close() { l.ring.close() }
