package data

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/internal/size"
)

// Batch is one micro-batch: B rows of T positions, row after row.
type Batch struct {
	Tokens, Labels []int32
	Weights        []float32 // of each label in the loss
	Segments       []int32   // nil unless requested
}

// CopyTo copies the batch to buffers of the same sizes, such as the inputs of
// a program. dst.Segments may be nil when segments are not needed.
func (b *Batch) CopyTo(dst Batch) error {
	if len(dst.Tokens) != len(b.Tokens) || len(dst.Labels) != len(b.Labels) || len(dst.Weights) != len(b.Weights) ||
		dst.Segments != nil && len(dst.Segments) != len(b.Segments) {
		return fmt.Errorf("data: batch of %d tokens, %d labels, %d weights, %d segments into buffers of %d, %d, %d, %d",
			len(b.Tokens), len(b.Labels), len(b.Weights), len(b.Segments),
			len(dst.Tokens), len(dst.Labels), len(dst.Weights), len(dst.Segments))
	}
	copy(dst.Tokens, b.Tokens)
	copy(dst.Labels, b.Labels)
	copy(dst.Weights, b.Weights)
	copy(dst.Segments, b.Segments)
	return nil
}

// Update is what one optimizer update trains on.
type Update struct {
	// Micro holds the micro-batches in their order. Rows beyond the end of a
	// finite stream are EOS of weight 0.
	Micro []Batch
	// Weight is the sum of all label weights, known before the first
	// micro-batch runs: dividing by it gives the token-weighted mean.
	Weight float64
	// Windows counts the rows with data.
	Windows int64
	// Position is the position after this update.
	Position Position
}

// Position is a place in a stream of windows. It is small, is stored in
// checkpoints as JSON and is entered in O(1).
type Position struct {
	Epoch int64 `json:"epoch"` // whole passes done
	Index int64 `json:"index"` // windows of this pass done
	// What the order depends on; Seek refuses a position of another order.
	Corpus  string `json:"corpus"`
	Length  int    `json:"length"`
	Shuffle bool   `json:"shuffle"`
	Seed    uint64 `json:"seed"`
}

// LoaderOptions shape the stream of updates.
type LoaderOptions struct {
	MicroBatches int  // gradient accumulation, A
	BatchSize    int  // rows of a micro-batch on each rank, B
	Segments     bool // fill Batch.Segments
	// Shuffle puts the windows of each epoch in another order, chosen by Seed
	// and the epoch's number.
	Shuffle bool
	Seed    uint64
	// Epochs ends the stream after that number of passes; 0 never ends it. The last
	// update is padded with rows of weight 0.
	Epochs int64
	// Rank of World takes its share of each micro-batch; World 0 means 1. The
	// ranks together see the stream of one rank with World times the rows.
	Rank, World int
	// Workers fill updates in parallel (0 means 1) up to Depth updates ahead
	// (0 means 2). Neither changes the stream.
	Workers, Depth int
}

// Loader prefetches whole updates. It allocates nothing once it is made, and its stream
// depends only on the corpus and the options above Workers. The methods are for one
// goroutine.
type Loader struct {
	windows  *Windows
	opt      LoaderOptions
	order    Position // what the order depends on, at position 0
	start    int64    // windows before the ring's update 0, over all epochs
	position int64    // windows done, over all epochs
	ring     *ring[Update]
}

// NewLoader starts to prefetch from the first window on.
func NewLoader(w *Windows, opt LoaderOptions) (*Loader, error) {
	if opt.World == 0 {
		opt.World = 1
	}
	if opt.Workers == 0 {
		opt.Workers = 1
	}
	if opt.Depth == 0 {
		opt.Depth = 2
	}
	switch {
	case opt.MicroBatches < 1:
		return nil, fmt.Errorf("data: %d micro-batches in an update, want 1 or more", opt.MicroBatches)
	case opt.BatchSize < 1:
		return nil, fmt.Errorf("data: batch size is %d, want 1 or more", opt.BatchSize)
	case opt.World < 1 || opt.Rank < 0 || opt.Rank >= opt.World:
		return nil, fmt.Errorf("data: rank %d of %d", opt.Rank, opt.World)
	case opt.Workers < 1 || opt.Depth < 1:
		return nil, fmt.Errorf("data: %s, %s ahead: want 1 or more of each", size.Of(opt.Workers, "loader worker"), size.Of(opt.Depth, "update"))
	case opt.Epochs < 0:
		return nil, fmt.Errorf("data: %d epochs, want 0 (no end) or more", opt.Epochs)
	}
	order := Position{Corpus: w.Corpus().ID(), Length: w.Length(), Shuffle: opt.Shuffle, Seed: opt.Seed}
	l := &Loader{windows: w, opt: opt, order: order}
	slots := make([]Update, opt.Depth+1) // one is with the consumer
	for i := range slots {
		slots[i] = l.newUpdate()
	}
	l.ring = newRing(slots, opt.Workers, l.updates(), l.fill)
	return l, nil
}

// newUpdate allocates the buffers of one slot, each kind in a single allocation.
func (l *Loader) newUpdate() Update {
	a, n := l.opt.MicroBatches, l.opt.BatchSize*l.windows.Length()
	tokens, labels := make([]int32, a*n), make([]int32, a*n)
	weights := make([]float32, a*n)
	var segments []int32
	if l.opt.Segments {
		segments = make([]int32, a*n)
	}
	u := Update{Micro: make([]Batch, a)}
	for i := range u.Micro {
		lo, hi := i*n, (i+1)*n
		u.Micro[i] = Batch{Tokens: tokens[lo:hi], Labels: labels[lo:hi], Weights: weights[lo:hi]}
		if segments != nil {
			u.Micro[i].Segments = segments[lo:hi]
		}
	}
	return u
}

// perUpdate is the number of windows of an update on all ranks.
func (l *Loader) perUpdate() int64 {
	return int64(l.opt.MicroBatches) * int64(l.opt.World) * int64(l.opt.BatchSize)
}

// end is the number of windows in the whole stream.
func (l *Loader) end() int64 {
	if n := l.windows.Len(); l.opt.Epochs > 0 && l.opt.Epochs <= math.MaxInt64/n {
		return l.opt.Epochs * n
	}
	return math.MaxInt64
}

// updates is the number of updates left from start on.
func (l *Loader) updates() int64 {
	end := l.end()
	if end == math.MaxInt64 {
		return end
	}
	return max(0, (end-l.start+l.perUpdate()-1)/l.perUpdate())
}

// Updates is the number of updates in a pass over the windows, the last of
// them perhaps not full.
func (l *Loader) Updates() int64 {
	return (l.windows.Len() + l.perUpdate() - 1) / l.perUpdate()
}

// fill makes update n of the ring.
func (l *Loader) fill(n int64, u *Update) error {
	rows, t := l.opt.BatchSize, l.windows.Length()
	first, end := l.start+n*l.perUpdate(), l.end()
	u.Weight, u.Windows = 0, 0
	for m := range u.Micro {
		b := &u.Micro[m]
		for r := range rows {
			lo, hi := r*t, (r+1)*t
			var segments []int32
			if b.Segments != nil {
				segments = b.Segments[lo:hi]
			}
			at := first + (int64(m)*int64(l.opt.World)+int64(l.opt.Rank))*int64(rows) + int64(r)
			if at >= end {
				l.pad(b.Tokens[lo:hi], b.Labels[lo:hi], b.Weights[lo:hi], segments)
				continue
			}
			weight, err := l.windows.Fill(l.window(at), b.Tokens[lo:hi], b.Labels[lo:hi], b.Weights[lo:hi], segments)
			if err != nil {
				return err
			}
			u.Weight += weight
			u.Windows++
		}
	}
	u.Position = l.at(min(first+l.perUpdate(), end))
	return nil
}

func (l *Loader) pad(tokens, labels []int32, weights []float32, segments []int32) {
	for k := range tokens {
		tokens[k], labels[k] = l.windows.Corpus().EOS(), l.windows.Corpus().EOS()
	}
	clear(weights)
	clear(segments)
}

// window returns the window at a position in the whole stream.
func (l *Loader) window(at int64) int64 {
	n := l.windows.Len()
	if !l.opt.Shuffle {
		return at % n
	}
	order := NewPermutation(n, l.opt.Seed, uint64(at/n))
	return order.At(at % n)
}

// at is the position after a number of windows over all epochs.
func (l *Loader) at(windows int64) Position {
	c, n := l.order, l.windows.Len()
	c.Epoch, c.Index = windows/n, windows%n
	return c
}

// Next returns the next update, or io.EOF after the last. What it points to is
// overwritten after the following call of Next, Seek or Close.
func (l *Loader) Next() (*Update, error) {
	u, err := l.ring.next()
	if err != nil {
		return nil, err
	}
	l.position = u.Position.Epoch*l.windows.Len() + u.Position.Index
	return u, nil
}

// Position is the position after the last update returned by Next.
func (l *Loader) Position() Position { return l.at(l.position) }

// Seek goes to a position. The stream from there on equals the uninterrupted one, even if
// MicroBatches, BatchSize or World have changed: then the same windows come in the same
// order, divided into different updates.
func (l *Loader) Seek(c Position) error {
	here := l.at(l.position)
	n := l.windows.Len()
	switch {
	case c.Corpus != here.Corpus:
		return fmt.Errorf("data: the position belongs to corpus %.12s, this is corpus %.12s: the prepared data changed; prepare the old data again, or start a new run", c.Corpus, here.Corpus)
	case c.Length != here.Length:
		return fmt.Errorf("data: the position counts windows of %d tokens, this run has %d", c.Length, here.Length)
	case c.Shuffle != here.Shuffle || c.Seed != here.Seed:
		return fmt.Errorf("data: the position belongs to the order of shuffle=%t seed=%d, this run has shuffle=%t seed=%d", c.Shuffle, c.Seed, here.Shuffle, here.Seed)
	case c.Epoch < 0 || c.Index < 0 || c.Index >= n || c.Epoch > (math.MaxInt64-n)/n:
		return fmt.Errorf("data: position at epoch %d, window %d of %d", c.Epoch, c.Index, n)
	}
	return l.ring.restart(func() int64 {
		l.start = c.Epoch*n + c.Index
		l.position = l.start
		return l.updates()
	})
}

// Close stops the workers and waits for them. Next then fails.
func (l *Loader) Close() { l.ring.close() }
