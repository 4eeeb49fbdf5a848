package cuda

import (
	"errors"
	"slices"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// peeker copies states to the host on its own stream while an update computes. A function is captured in two
// segments, the second of which begins at the first launch that changes a state; between them the host asks
// the guard. So the forward half of the next update overlaps a save, and no state changes before it has been
// read. Gradients that a run has finished with are copied here too, in both directions, while the run goes
// on.
type peeker struct {
	ctx     driver.Context
	stream  driver.Stream
	updated driver.Event // after the runs before Guard
	mu      sync.Mutex   // guards the stream, which saves, the guard and the exchange of gradients share
	pieces  []*piece
	free    chan *piece // pieces that are not in use
}

// piece is a buffer through which a part of a state is copied.
type piece struct {
	bytes   []byte // page-locked
	crossed driver.Event
}

// A state is copied in pieces of peekPiece bytes, with two buffers: the host empties or fills one while the
// other is being copied.
const (
	peekPiece  = 1 << 20
	peekPieces = 2
)

func newPeeker(ctx driver.Context) (p *peeker, err error) {
	p = &peeker{ctx: ctx, free: make(chan *piece, peekPieces)}
	if p.stream, err = ctx.NewStream(); err != nil {
		return p, err
	}
	if p.updated, err = ctx.NewEvent(false); err != nil {
		return p, err
	}
	for range peekPieces {
		b := &piece{}
		p.pieces = append(p.pieces, b)
		if b.crossed, err = ctx.NewEvent(false); err != nil {
			return p, err
		}
		if b.bytes, err = ctx.AllocHost(peekPiece); err != nil {
			return p, err
		}
		p.free <- b
	}
	return p, nil
}

// copy copies memory that begins at from to dst.
func (p *peeker) copy(dst []byte, from driver.Ptr) error {
	nothing := func([]byte, int) {}
	queue := func(b []byte, at int) error { return p.stream.CopyOut(b, from+driver.Ptr(at)) }
	return p.cross(len(dst), nothing, queue, func(b []byte, at int) { copy(dst[at:], b) })
}

// write copies src to memory that begins at to.
func (p *peeker) write(to driver.Ptr, src []byte) error {
	nothing := func([]byte, int) {}
	queue := func(b []byte, at int) error { return p.stream.CopyIn(to+driver.Ptr(at), b) }
	return p.cross(len(src), func(b []byte, at int) { copy(b, src[at:]) }, queue, nothing)
}

// cross copies so many bytes piece by piece: before prepares a piece, queue starts its copy, and after uses
// it once it is copied. Between two pieces other callers get their turn.
func (p *peeker) cross(bytes int, before func(b []byte, at int), queue func(b []byte, at int) error, after func(b []byte, at int)) error {
	finish := func() error { return nil } // ends the copy of the piece under way
	for at := 0; at < bytes; at += peekPiece {
		var b *piece
		select {
		case b = <-p.free:
		default: // another goroutine has the buffer, and may wait for this one's
			if err := finish(); err != nil {
				return err
			}
			finish = func() error { return nil }
			b = <-p.free
		}
		part := b.bytes[:min(peekPiece, bytes-at)]
		before(part, at)
		err := p.begin(b, func() error { return queue(part, at) })
		err = errors.Join(err, finish())
		finish = func() error {
			defer func() { p.free <- b }()
			if err := b.crossed.Sync(); err != nil {
				return err
			}
			after(part, at)
			return nil
		}
		if err != nil {
			_ = finish() // the error is known
			return err
		}
	}
	return finish()
}

// begin queues the copy of a piece.
func (p *peeker) begin(b *piece, queue func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := queue(); err != nil {
		return err
	}
	return p.stream.Record(b.crossed)
}

// close frees what was made.
func (p *peeker) close(add func(error)) {
	if p == nil {
		return
	}
	if p.stream != nil {
		add(p.stream.Sync())
		add(p.stream.Close())
	}
	if p.updated != nil {
		add(p.updated.Close())
	}
	for _, b := range p.pieces {
		if b.crossed != nil {
			add(b.crossed.Close())
		}
		if b.bytes != nil {
			add(p.ctx.FreeHost(b.bytes))
		}
	}
}

// Guard implements [engine.Image]. Its errors are reported by the next Run or Sync.
func (x *image) Guard(before func(states []string) error) {
	x.guard = before
	if err := errors.Join(x.compute.Record(x.peeker.updated), x.peeker.stream.Wait(x.peeker.updated)); err != nil {
		x.unread.Store(&err)
	}
}

// Peek implements [engine.Image].
func (x *image) Peek(dst []byte, offset int64) error {
	if host := x.onHost(offset, int64(len(dst))); host != nil {
		err := x.peeker.updated.Sync()
		copy(dst, host)
		return err
	}
	return x.peeker.copy(dst, x.memory+driver.Ptr(offset))
}

// changing is the index of the first launch that changes a state, or the number of launches if none does.
func changing(launches []bound) int {
	for i := range launches {
		if changed(launches[i:i+1]) != nil {
			return i
		}
	}
	return len(launches)
}

// changed lists the states that some launches change.
func changed(launches []bound) (names []string) {
	for _, l := range launches {
		for _, n := range append([]*graph.Node{l.node}, l.also...) {
			for _, name := range n.Changes() {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
