//go:build (amd64 || arm64) && !nocuda

package nccl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snug-ml/snug/dist"
)

// Communicator is one rank's end of a set of ranks that exchange memory of their cards. All
// make the same calls in the same order with the same sizes, as in a [dist.Group]; NCCL does
// not notice when they do not. After an error it can only be left.
type Communicator struct {
	lib    *Library
	met    dist.Watched
	stream Stream
	thread *dist.Thread // makes all NCCL calls
	handle uintptr
	gone   bool // destroyed or aborted
	left   sync.Once
	err    error // of leaving
}

// abortTime bounds an abort: some are known never to end.
const abortTime = 10 * time.Second

// Connect makes a communicator of the ranks of a group, all of which call it, each with a
// card of its own.
func (l *Library) Connect(ctx context.Context, met dist.Watched, s Stream) (*Communicator, error) {
	if err := l.same(met); err != nil {
		return nil, err
	}
	var id [idBytes]byte
	if met.Rank() == 0 {
		var err error
		if id, err = l.newID(); err != nil {
			return nil, err
		}
	}
	if err := met.Broadcast(0, id[:]); err != nil {
		return nil, err
	}
	c := &Communicator{lib: l, met: met, stream: s, thread: dist.NewThread(met, abortTime)}
	ctx, cancel := context.WithTimeout(ctx, dist.Meet)
	defer cancel()
	err := c.thread.Do(ctx, func() error {
		if err := s.Bind(); err != nil {
			return err
		}
		if err := l.connect(&c.handle, met.World(), met.Rank(), &id); err != nil {
			return err
		}
		return c.settle(ctx)
	})
	if err != nil {
		// The communicator may have been made while the group ended.
		_ = c.thread.Do(ctx, func() error { return c.abort(nil) })
		c.thread.Close()
		return nil, fmt.Errorf("connecting %v: %w", l, err)
	}
	return c, nil
}

// same refuses ranks with different versions of the library, which do not understand each
// other.
func (l *Library) same(met dist.Watched) error {
	all, err := dist.AllGatherSized(met, []byte(l.version.String()))
	if err != nil {
		return err
	}
	for r, v := range all {
		if string(v) != l.version.String() {
			return fmt.Errorf("rank %d has NCCL %s, rank %d %v: use the same version everywhere", r, v, met.Rank(), l.version)
		}
	}
	return nil
}

// settle waits until the calls made are complete; a communicator that failed, or whose ranks
// are gone, is aborted.
func (c *Communicator) settle(ctx context.Context) error {
	return c.wait(ctx, func() (bool, error) { return c.lib.state(c.handle) })
}

// How long the thread sleeps between two polls.
const (
	firstSleep = 5 * time.Microsecond
	mostSleep  = 200 * time.Microsecond
)

func (c *Communicator) wait(ctx context.Context, done func() (bool, error)) error {
	for sleep := firstSleep; ; sleep = min(2*sleep, mostSleep) {
		ok, err := done()
		switch {
		case err != nil:
			return c.explain(c.abort(err))
		case ok:
			return nil
		}
		select {
		case <-c.met.Ended():
			return c.abort(c.met.Cause(c.met.Rank(), nil))
		case <-ctx.Done():
			return c.abort(ctx.Err())
		default:
			t := unix.NsecToTimespec(int64(sleep)) // Go's timers are coarser
			_ = unix.Nanosleep(&t, nil)            // a signal may end it early
		}
	}
}

// explain replaces an error by its cause: the news that another rank is gone may arrive later
// than its failure to answer.
func (c *Communicator) explain(err error) error {
	var e *callError
	if !errors.As(err, &e) || e.result != systemError && e.result != remoteError {
		return err
	}
	select {
	case <-c.met.Ended():
		return c.met.Cause(c.met.Rank(), err)
	case <-time.After(2 * dist.Silence):
		return err
	}
}

// abort aborts what is under way, on this thread.
func (c *Communicator) abort(why error) error {
	if c.gone || c.handle == 0 {
		return why
	}
	c.gone = true
	if err := c.lib.failed("ncclCommAbort", call(c.lib.abort, c.handle)); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// group makes calls that form one operation, and waits until the stream has done it.
func (c *Communicator) group(calls func() error) error {
	return c.thread.Do(context.Background(), func() error {
		if c.gone {
			return errGone
		}
		if err := c.lib.failed("ncclGroupStart", call(c.lib.groupStart)); err != nil {
			return c.abort(err)
		}
		err := calls()
		if e := c.lib.failed("ncclGroupEnd", call(c.lib.groupEnd)); err == nil { // also after an error: the thread counts them
			err = e
		}
		if err != nil {
			return c.abort(err)
		}
		if err := c.settle(context.Background()); err != nil { // all is on the stream
			return err
		}
		return c.wait(context.Background(), func() (bool, error) {
			if _, err := c.lib.state(c.handle); err != nil {
				return false, err
			}
			return c.stream.Done()
		})
	})
}

var errGone = errors.New("nccl: the communicator was ended by an earlier error")

// dataByte is ncclUint8.
const dataByte = 1

func (c *Communicator) sendTo(r int, b Buffer) error {
	return c.lib.failed("ncclSend", call(c.lib.send, b.Address, uintptr(b.Bytes), dataByte, uintptr(r), c.handle, c.stream.Handle()))
}

func (c *Communicator) receiveFrom(r int, b Buffer) error {
	return c.lib.failed("ncclRecv", call(c.lib.recv, b.Address, uintptr(b.Bytes), dataByte, uintptr(r), c.handle, c.stream.Handle()))
}

// check refuses the wrong number of parts.
func (c *Communicator) check(lists ...[]Buffer) error {
	for _, parts := range lists {
		if len(parts) != c.met.World() {
			return fmt.Errorf("nccl: %d parts for %d ranks", len(parts), c.met.World())
		}
	}
	return nil
}

// AllToAll sends send[r] to each rank r, this one included, and fills recv[r] with what r sent
// to this rank.
func (c *Communicator) AllToAll(send, recv []Buffer) error {
	if err := c.check(send, recv); err != nil {
		return err
	}
	if me := c.met.Rank(); send[me].Bytes != recv[me].Bytes {
		return fmt.Errorf("nccl: AllToAll: rank %d sends itself %d bytes and expects %d", me, send[me].Bytes, recv[me].Bytes)
	}
	return c.group(func() error {
		for r := range send {
			if err := c.some(r, send[r], c.sendTo); err != nil {
				return err
			}
			if err := c.some(r, recv[r], c.receiveFrom); err != nil {
				return err
			}
		}
		return nil
	})
}

// some exchanges a buffer with a rank unless it is empty.
func (c *Communicator) some(r int, b Buffer, exchange func(r int, b Buffer) error) error {
	if b.Bytes == 0 {
		return nil
	}
	return exchange(r, b)
}

// AllGather sends parts[Rank] to all ranks and fills the other parts with theirs. The parts may
// have any sizes and addresses, so they are sent one by one: ncclAllGather needs equal parts in a
// row.
func (c *Communicator) AllGather(parts []Buffer) error {
	if err := c.check(parts); err != nil {
		return err
	}
	me := c.met.Rank()
	return c.group(func() error {
		for r := range parts {
			if r == me {
				continue
			}
			if err := c.some(r, parts[me], c.sendTo); err != nil {
				return err
			}
			if err := c.some(r, parts[r], c.receiveFrom); err != nil {
				return err
			}
		}
		return nil
	})
}

// Broadcast fills b with the root's data.
func (c *Communicator) Broadcast(root int, b Buffer) error {
	if root < 0 || root >= c.met.World() {
		return fmt.Errorf("nccl: Broadcast: rank %d of %d ranks", root, c.met.World())
	}
	return c.group(func() error {
		return c.some(root, b, func(int, Buffer) error {
			return c.lib.failed("ncclBroadcast", call(c.lib.broadcast, b.Address, b.Address, uintptr(b.Bytes), dataByte, uintptr(root), c.handle, c.stream.Handle()))
		})
	})
}

// Leave ends this rank's part, with a cause if it failed. Leaving twice does nothing.
func (c *Communicator) Leave(cause error) error {
	c.left.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dist.Meet)
		defer cancel()
		c.err = c.thread.Do(ctx, func() error {
			switch {
			case c.gone:
				return nil
			case cause != nil:
				return c.abort(nil)
			}
			if err := c.lib.failed("ncclCommFinalize", call(c.lib.finalize, c.handle)); err != nil {
				return c.abort(err)
			}
			if err := c.settle(ctx); err != nil {
				return err
			}
			c.gone = true
			return c.lib.failed("ncclCommDestroy", call(c.lib.destroy, c.handle))
		})
		c.thread.Close()
	})
	return c.err
}
