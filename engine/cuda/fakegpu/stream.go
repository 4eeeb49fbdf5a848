package fakegpu

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// stream executes queued work only when something waits for it: if the host changes or reads memory too
// early, the result is wrong as it might be on a card.
type stream struct {
	c       *Context
	handle  uintptr
	queue   []func() error // work that is not done yet
	done    int            // number of operations done, which precede the queue
	capture *Graph         // being recorded; nil: none is
	// launched counts the graphs captured here that were launched and still exist.
	launched int
	shared   *Shared // shared with a library in C; nil: with none
}

// Shared is what a stream shares with a library in C that queues work on it, with [Driver.Mapped].
type Shared struct {
	// Pending is the number of the library's operations on the stream, which the library updates.
	Pending int64
	// Reached is 1 once everything queued before these operations is done, for which they wait.
	Reached int64
}

type event struct {
	c     *Context
	timed bool
	s     *stream // the stream that it was recorded in; nil: it was not recorded
	at    int     // number of operations of s before it
	// of is the capture that it was recorded in, and node the node that it follows there, -1: none.
	of   *Graph
	node int
	// when is the card's clock at the event, once that is done.
	when time.Duration
}

// These are the times on the card's clock of a kernel, of a fused loop, which only passes over memory, and of
// copying bytes between host and card. Nothing else but cuBLASLt advances the clock.
const (
	kernelTime = 10 * time.Microsecond
	loopTime   = time.Microsecond
	copyRate   = 10 // bytes per nanosecond
)

// copied advances the clock by the time of a copy.
func (c *Context) copied(bytes int) { c.clock += time.Duration(bytes / copyRate) }

// NewStream implements [driver.Context].
func (c *Context) NewStream() (driver.Stream, error) {
	if err := c.opening("cuStreamCreate"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &stream{c: c, handle: uintptr(0x1000 + len(c.streams))}
	if c.driver.Mapped {
		s.shared = &Shared{Reached: 1}
		s.handle = uintptr(unsafe.Pointer(s.shared)) // which does not move
	}
	for c.streams[s.handle] != nil {
		s.handle++
	}
	c.streams[s.handle] = s
	return s, nil
}

// NewEvent implements [driver.Context].
func (c *Context) NewEvent(timed bool) (driver.Event, error) {
	if err := c.opening("cuEventCreate"); err != nil {
		return nil, err
	}
	return &event{c: c, timed: timed}, nil
}

// push queues an operation, or records it in a capture.
func (s *stream) push(name string, op func() error) error {
	if err := s.c.call(name); err != nil {
		return err
	}
	return s.enqueue(name, op)
}

func (s *stream) enqueue(name string, op func() error) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.capture != nil {
		return s.capture.add(name, s, op, none)
	}
	if s.shared != nil {
		if atomic.LoadInt64(&s.shared.Pending) > 0 {
			return errors.New("work is queued behind that of a library which nobody has waited for")
		}
		atomic.StoreInt64(&s.shared.Reached, 0)
	}
	s.queue = append(s.queue, op)
	return nil
}

// advance executes queued work up to an operation; the context is locked.
func (s *stream) advance(to int) error {
	for s.done < to {
		if s.c.lost != nil {
			return s.c.lost
		}
		op := s.queue[0]
		s.queue = s.queue[1:]
		s.done++
		if err := op(); err != nil {
			return err
		}
	}
	return nil
}

// device is the card's memory as bytes.
func (c *Context) device(p driver.Ptr, n int64) ([]byte, error) {
	b, err := c.memory.Bytes(uint64(p), int(n))
	if err != nil {
		return nil, c.lose(driver.IllegalAddress, err)
	}
	return b, nil
}

// lose makes the context unusable and returns the error.
func (c *Context) lose(code driver.Code, why error) error {
	c.lost = &driver.Error{Call: "cuStreamSynchronize", Code: code}
	if why != nil {
		c.lost.Log = why.Error()
	}
	return c.lost
}

// locked rejects host memory that is not page-locked, as the driver could not copy from it while the host
// continues.
func (c *Context) locked(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for first, n := range c.hosts {
		if len(b) == 0 || within(first, n, b) {
			return nil
		}
	}
	return errors.New("a copy of host memory that is not page-locked")
}

func (s *stream) CopyIn(to driver.Ptr, from []byte) error {
	if err := s.c.locked(from); err != nil {
		return err
	}
	return s.push("cuMemcpyHtoDAsync", func() error {
		b, err := s.c.device(to, int64(len(from)))
		s.c.copied(copy(b, from))
		return err
	})
}

func (s *stream) CopyOut(to []byte, from driver.Ptr) error {
	if hold := s.c.driver.Hold; hold != nil && s.capture == nil {
		hold()
	}
	if err := s.c.locked(to); err != nil {
		return err
	}
	return s.push("cuMemcpyDtoHAsync", func() error {
		b, err := s.c.device(from, int64(len(to)))
		s.c.copied(copy(to, b))
		if s.c.driver.Corrupt && len(to) > 0 {
			to[len(to)/2] ^= 1
		}
		return err
	})
}

func (s *stream) Clear(p driver.Ptr, bytes int64) error {
	return s.push("cuMemsetD8Async", func() error {
		b, err := s.c.device(p, bytes)
		clear(b)
		return err
	})
}

// Spoil implements [driver.Spoiler]: it fills memory with NaN if launches are checked for uninitialized reads.
// It is no call of the driver, and so does not fail.
func (s *stream) Spoil(p driver.Ptr, bytes int64) error {
	if s.c.driver.Options.Checks&ptxsim.CheckUninitialized == 0 || bytes == 0 {
		return nil
	}
	return s.enqueue("Spoil", func() error {
		b, err := s.c.device(p, bytes)
		spoil(b)
		return err
	})
}

func (s *stream) Launch(f driver.Function, l driver.Launch) error {
	k := f.(*function)
	if slices.Contains(l.Grid[:], 0) || slices.Contains(l.Block[:], 0) || l.Block[0]*l.Block[1]*l.Block[2] > 1024 {
		return &driver.Error{Call: "cuLaunchKernel", Code: driver.InvalidValue}
	}
	return s.push("cuLaunchKernel", func() error {
		took := kernelTime
		if strings.HasPrefix(k.k.Name, "loop_") {
			took = loopTime
		}
		if s.c.clock < s.c.driver.Idle {
			took *= 3
		}
		s.c.clock += took
		if s.c.driver.Break != nil {
			if code := s.c.driver.Break(k.k.Name); code != 0 {
				return s.c.lose(code, nil)
			}
		}
		err := ptxsim.Launch(s.c.memory, k.k, ptxsim.Grid{Grid: l.Grid, Block: l.Block}, l.Params, s.c.driver.Options)
		if err == nil {
			return nil
		}
		code := driver.LaunchFailed
		switch text := err.Error(); {
		case strings.Contains(text, "align"):
			code = driver.MisalignedAddress
		case strings.Contains(text, "out of bounds"), strings.Contains(text, "outside"):
			code = driver.IllegalAddress
		}
		return s.c.lose(code, err)
	})
}

func (s *stream) Record(e driver.Event) error {
	if err := s.c.call("cuEventRecord"); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	ev := e.(*event)
	if s.capture != nil {
		ev.of, ev.node = s.capture, s.capture.last(s)
		return s.capture.invalidated("cuEventRecord")
	}
	ev.of = nil
	s.queue = append(s.queue, func() error { ev.when = s.c.clock; return nil })
	ev.s, ev.at = s, s.done+len(s.queue)
	return nil
}

func (s *stream) Wait(e driver.Event) error {
	s.c.mu.Lock()
	from, at := e.(*event).s, e.(*event).at // the event's state now, as it may be recorded again
	of, node := e.(*event).of, e.(*event).node
	s.c.mu.Unlock()
	if of != nil || s.capture != nil {
		if err := s.c.call("cuStreamWaitEvent"); err != nil {
			return err
		}
		return s.join(of, node)
	}
	if from == nil || from == s {
		return s.c.call("cuStreamWaitEvent")
	}
	return s.push("cuStreamWaitEvent", func() error { return from.advance(at) })
}

func (s *stream) Sync() error {
	if err := s.waits("cuStreamSynchronize"); err != nil {
		return err
	}
	for {
		if done, err := s.finish(); done || err != nil {
			return err
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// Done implements [driver.Stream].
func (s *stream) Done() (bool, error) {
	if err := s.waits("cuStreamQuery"); err != nil {
		return false, err
	}
	return s.finish()
}

// waits makes a call that waits for the stream, which ends a capture.
func (s *stream) waits(name string) error {
	if err := s.c.call(name); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.capture != nil {
		return s.capture.invalidate(name, driver.CaptureUnsupported)
	}
	return nil
}

// finish executes queued work, and reports whether a library has nothing left on the stream.
func (s *stream) finish() (bool, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if err := s.advance(s.done + len(s.queue)); err != nil || s.shared == nil {
		return err == nil, err
	}
	atomic.StoreInt64(&s.shared.Reached, 1)
	return atomic.LoadInt64(&s.shared.Pending) == 0, nil
}

func (s *stream) BeginCapture() error {
	if err := s.c.call("cuStreamBeginCapture"); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.capture != nil {
		return s.capture.invalidate("cuStreamBeginCapture", driver.CaptureUnsupported)
	}
	s.capture = &Graph{c: s.c, origin: s, lasts: map[*stream]int{s: none}}
	return nil
}

// EndCapture implements [driver.Stream].
func (s *stream) EndCapture() (driver.Graph, error) {
	g, err := s.Captured()
	if err != nil {
		return nil, err
	}
	if err := g.Instantiate(); err != nil {
		return nil, errors.Join(err, g.Destroy())
	}
	if err := g.Destroy(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Captured ends a capture. After a graph of the stream was launched no other can be made: a program allocates nothing
// after it is loaded.
func (s *stream) Captured() (*Graph, error) {
	if err := s.c.call("cuStreamEndCapture"); err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	g := s.capture
	if g == nil || g.origin != s {
		return nil, &driver.Error{Call: "cuStreamEndCapture", Code: driver.CaptureUnmatched}
	}
	for joined := range g.lasts {
		joined.capture = nil
	}
	if err := g.invalidated("cuStreamEndCapture"); err != nil {
		return nil, err
	}
	if err := g.unjoined(); err != nil {
		return nil, err
	}
	if s.launched > 0 {
		return nil, errors.New("a graph is made after others of its stream were launched: it takes memory while a program runs")
	}
	return g, nil
}

// Upload implements [driver.Stream].
func (s *stream) Upload(g driver.Graph) error {
	return s.push("cuGraphUpload", func() error {
		g.(*Graph).uploaded = true
		return nil
	})
}

// Replay implements [driver.Stream]. Launching a graph that was not uploaded would allocate memory.
func (s *stream) Replay(g driver.Graph) error {
	c := g.(*Graph)
	s.c.mu.Lock()
	if !c.launched {
		c.launched = true
		c.origin.launched++
	}
	s.c.mu.Unlock()
	return s.push("cuGraphLaunch", func() error {
		if !c.uploaded {
			return errors.New("a graph is launched that was not uploaded: it takes memory while a program runs")
		}
		return c.run()
	})
}

// Handle implements [driver.Stream].
func (s *stream) Handle() uintptr { return s.handle }

func (s *stream) Close() error {
	s.c.mu.Lock()
	delete(s.c.streams, s.handle)
	s.c.mu.Unlock()
	return s.c.closing("cuStreamDestroy")
}

func (e *event) Sync() error {
	if err := e.c.call("cuEventSynchronize"); err != nil {
		return err
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	if e.of != nil && e.of.origin.capture == e.of {
		return e.of.invalidate("cuEventSynchronize", driver.CapturedEvent)
	}
	if e.s == nil {
		return nil
	}
	return e.s.advance(e.at)
}

// Since implements [driver.Event].
func (e *event) Since(earlier driver.Event) (time.Duration, error) {
	if err := e.c.call("cuEventElapsedTime"); err != nil {
		return 0, err
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	from := earlier.(*event)
	if !from.timed || !e.timed {
		return 0, &driver.Error{Call: "cuEventElapsedTime", Code: driver.InvalidHandle}
	}
	if from.s == nil || e.s == nil || from.s.done < from.at || e.s.done < e.at {
		return 0, &driver.Error{Call: "cuEventElapsedTime", Code: driver.NotReady}
	}
	return (e.when - from.when) * time.Duration(max(e.c.driver.Slow, 1)), nil
}

func (e *event) Close() error {
	return e.c.closing("cuEventDestroy")
}
