package cuda

import (
	"errors"
	"slices"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// peeker copies states to the host on a stream of its own while an update computes. A
// function is captured in two segments, the second from the first launch on that changes a
// state; between them the host asks the guard. So the forward half of the next update
// overlaps a save, and no state changes before it was read. Gradients that a run has finished
// with cross here too, both ways, while it goes on.
type peeker struct {
	ctx     driver.Context
	stream  driver.Stream
	updated driver.Event // the runs before Guard
	mu      sync.Mutex   // of what follows: the writer of a save peeks, so does the guard, and gradients are exchanged
	arrived driver.Event // what was peeked at has
	piece   []byte       // page-locked
}

// peekPiece is how much of a state is copied at a time.
const peekPiece = 1 << 20

func newPeeker(ctx driver.Context) (p *peeker, err error) {
	p = &peeker{ctx: ctx}
	if p.stream, err = ctx.NewStream(); err != nil {
		return p, err
	}
	if p.updated, err = ctx.NewEvent(); err != nil {
		return p, err
	}
	if p.arrived, err = ctx.NewEvent(); err != nil {
		return p, err
	}
	p.piece, err = ctx.AllocHost(peekPiece)
	return p, err
}

// copy copies the memory from a place on to dst.
func (p *peeker) copy(dst []byte, from driver.Ptr) error {
	for len(dst) > 0 {
		n := min(len(dst), len(p.piece))
		if err := p.out(dst[:n], from); err != nil {
			return err
		}
		dst, from = dst[n:], from+driver.Ptr(n)
	}
	return nil
}

// out copies a piece to the host. Between two pieces of a large state others have their turn.
func (p *peeker) out(dst []byte, from driver.Ptr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	part := p.piece[:len(dst)]
	if err := errors.Join(p.stream.CopyOut(part, from), p.stream.Record(p.arrived), p.arrived.Sync()); err != nil {
		return err
	}
	copy(dst, part)
	return nil
}

// write copies src to the memory from a place on.
func (p *peeker) write(to driver.Ptr, src []byte) error {
	for len(src) > 0 {
		n := min(len(src), len(p.piece))
		if err := p.in(to, src[:n]); err != nil {
			return err
		}
		src, to = src[n:], to+driver.Ptr(n)
	}
	return nil
}

// in copies a piece to the card.
func (p *peeker) in(to driver.Ptr, src []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(p.piece, src)
	return errors.Join(p.stream.CopyIn(to, p.piece[:n]), p.stream.Record(p.arrived), p.arrived.Sync())
}

// close gives back what was made.
func (p *peeker) close(add func(error)) {
	if p == nil {
		return
	}
	if p.stream != nil {
		add(p.stream.Sync())
		add(p.stream.Close())
	}
	for _, e := range []driver.Event{p.updated, p.arrived} {
		if e != nil {
			add(e.Close())
		}
	}
	if p.piece != nil {
		add(p.ctx.FreeHost(p.piece))
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

// changing is the first of some launches that changes a state; their number where none
// does.
func changing(launches []bound) int {
	for i := range launches {
		if changed(launches[i:i+1]) != nil {
			return i
		}
	}
	return len(launches)
}

// changed are the states that some launches change.
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
