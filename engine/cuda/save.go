package cuda

import (
	"errors"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// saver copies states to the host on a stream of its own while the next update computes.
// A function is captured in two parts, the second from the first launch on that changes a
// state; between them the host waits until everything has been copied. So the forward
// half of the next update overlaps the copy, and no state changes under it.
type saver struct {
	ctx     driver.Context
	stream  driver.Stream
	updated driver.Event    // the runs before the copy
	arrived [2]driver.Event // a piece has
	piece   [2][]byte       // page-locked
	done    chan struct{}   // of the copy under way; nil: there was none
	err     error           // of it, once done is closed
}

// savePiece is how much of a state is copied at a time.
const savePiece = 2 << 20

func newSaver(ctx driver.Context) (s *saver, err error) {
	s = &saver{ctx: ctx}
	if s.stream, err = ctx.NewStream(); err != nil {
		return s, err
	}
	if s.updated, err = ctx.NewEvent(); err != nil {
		return s, err
	}
	for i := range s.piece {
		if s.arrived[i], err = ctx.NewEvent(); err != nil {
			return s, err
		}
		if s.piece[i], err = ctx.AllocHost(savePiece); err != nil {
			return s, err
		}
	}
	return s, nil
}

// wait returns when nothing is being copied, with the error of the last copy.
func (s *saver) wait() error {
	if s == nil || s.done == nil {
		return nil
	}
	<-s.done
	return s.err
}

// start begins to copy, after what compute has queued.
func (s *saver) start(compute driver.Stream, memory driver.Ptr, parts []engine.Part) error {
	if err := s.wait(); err != nil {
		return err
	}
	if err := errors.Join(compute.Record(s.updated), s.stream.Wait(s.updated)); err != nil {
		return err
	}
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = s.copy(memory, parts)
	}()
	return nil
}

// copy copies the parts piece by piece: one is on its way while the one before goes to its place.
func (s *saver) copy(memory driver.Ptr, parts []engine.Part) error {
	var to [2][]byte // where the content of a piece belongs
	n := 0
	put := func(i int) error {
		if to[i] == nil {
			return nil
		}
		if err := s.arrived[i].Sync(); err != nil {
			return err
		}
		copy(to[i], s.piece[i])
		to[i] = nil
		return nil
	}
	for _, p := range parts {
		for at := 0; at < len(p.To); at += savePiece {
			i := n % 2
			n++
			if err := put(i); err != nil {
				return err
			}
			to[i] = p.To[at:min(at+savePiece, len(p.To))]
			if err := s.stream.CopyOut(s.piece[i][:len(to[i])], memory+driver.Ptr(p.Offset+int64(at))); err != nil {
				return err
			}
			if err := s.stream.Record(s.arrived[i]); err != nil {
				return err
			}
		}
	}
	return errors.Join(put(n%2), put((n+1)%2))
}

// close gives back what was made.
func (s *saver) close(add func(error)) {
	if s == nil {
		return
	}
	_ = s.wait() // whoever asked for the copy has its error
	if s.stream != nil {
		add(s.stream.Sync())
		add(s.stream.Close())
	}
	for _, e := range []driver.Event{s.updated, s.arrived[0], s.arrived[1]} {
		if e != nil {
			add(e.Close())
		}
	}
	for _, b := range s.piece {
		if b != nil {
			add(s.ctx.FreeHost(b))
		}
	}
}

// Copy implements [engine.Copier].
func (x *image) Copy(parts []engine.Part) (wait func() error, err error) {
	if err := x.saver.start(x.compute, x.memory, parts); err != nil {
		return nil, x.during(err)
	}
	s, done := x.saver, x.saver.done
	return func() error {
		<-done
		return s.err
	}, nil
}

// changing is the first of some launches that changes a state; their number where none
// does.
func changing(launches []bound) int {
	for i, l := range launches {
		for _, n := range append([]*graph.Node{l.node}, l.also...) {
			for _, v := range n.Out {
				if graph.Storage(v).State != nil {
					return i
				}
			}
		}
	}
	return len(launches)
}
