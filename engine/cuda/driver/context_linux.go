//go:build (amd64 || arm64) && !nocuda

package driver

import (
	"errors"
	"runtime"
	"time"
	"unsafe"
)

// Open implements [Driver]. It opens the primary context, which NVIDIA's libraries use too.
func (d *libcuda) Open(card int) (Context, error) {
	cards, err := d.Cards()
	if err != nil {
		return nil, err
	}
	if card < 0 || card >= len(cards) {
		return nil, &Error{Call: "cuDeviceGet", Code: InvalidDevice}
	}
	c := &context{d: d, card: cards[card]}
	if err := d.call("cuDeviceGet", d.deviceGet, uintptr(unsafe.Pointer(&c.dev)), uintptr(card)); err != nil {
		return nil, err
	}
	if err := d.call("cuDevicePrimaryCtxSetFlags", d.primaryCtxSetFlags, uintptr(c.dev), waiting(runtime.GOMAXPROCS(0), len(cards))); err != nil {
		return nil, err
	}
	if err := d.call("cuDevicePrimaryCtxRetain", d.primaryCtxRetain, uintptr(unsafe.Pointer(&c.ctx)), uintptr(c.dev)); err != nil {
		return nil, err
	}
	return c, nil
}

// waiting says how a thread waits for a stream. It sleeps on free cloud machines, which have only two processors that
// the loader needs; waking it takes some 30 us. Where processors are plentiful it polls, which is the driver's choice then.
func waiting(processors, cards int) uintptr {
	const auto, blockingSync = 0, 4
	if processors >= 8*cards {
		return auto
	}
	return blockingSync
}

// context is a card's primary context. Each thread has its own current context, so each call sets it on the
// thread that it runs on, which costs 60 ns.
type context struct {
	d    *libcuda
	card Card
	dev  int32
	ctx  uintptr
}

//go:uintptrescapes
func (c *context) call(name string, f uintptr, args ...uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.d.call("cuCtxSetCurrent", c.d.ctxSetCurrent, c.ctx); err != nil {
		return err
	}
	return c.d.call(name, f, args...)
}

// Do implements [Context].
func (c *context) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.d.call("cuCtxSetCurrent", c.d.ctxSetCurrent, c.ctx); err != nil {
		return err
	}
	return f()
}

// Bind implements [Context].
func (c *context) Bind() error { return c.d.call("cuCtxSetCurrent", c.d.ctxSetCurrent, c.ctx) }

func (c *context) Card() Card { return c.card }

func (c *context) Driver() Driver { return c.d }

func (c *context) Memory() (free, total int64, err error) {
	var f, t uint64
	err = c.call("cuMemGetInfo", c.d.memGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}

func (c *context) Alloc(bytes int64) (Ptr, error) {
	var p Ptr
	err := c.call("cuMemAlloc", c.d.memAlloc, uintptr(unsafe.Pointer(&p)), uintptr(max(bytes, 1)))
	return p, err
}

func (c *context) Free(p Ptr) error { return c.call("cuMemFree", c.d.memFree, uintptr(p)) }

func (c *context) AllocHost(bytes int64) ([]byte, error) {
	var p unsafe.Pointer // C's memory, written by C
	const portable = 1
	if err := c.call(HostAlloc, c.d.memHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(max(bytes, 1)), portable); err != nil {
		return nil, err
	}
	b := unsafe.Slice((*byte)(p), max(bytes, 1))
	clear(b)
	return b[:bytes], nil
}

func (c *context) FreeHost(b []byte) error {
	return c.call("cuMemFreeHost", c.d.memFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func (c *context) Close() error {
	return c.d.call("cuDevicePrimaryCtxRelease", c.d.primaryCtxRelease, uintptr(c.dev))
}

func (c *context) NewStream() (Stream, error) {
	s := &stream{c: c}
	const nonBlocking = 1
	if err := c.call("cuStreamCreate", c.d.streamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *context) NewEvent(timed bool) (Event, error) {
	e := &event{c: c}
	const blockingSync, disableTiming = 1, 2
	flags := uintptr(blockingSync | disableTiming)
	if timed {
		flags = blockingSync
	}
	if err := c.call("cuEventCreate", c.d.eventCreate, uintptr(unsafe.Pointer(&e.handle)), flags); err != nil {
		return nil, err
	}
	return e, nil
}

type stream struct {
	c      *context
	handle uintptr
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (s *stream) CopyIn(to Ptr, from []byte) error {
	return s.c.call("cuMemcpyHtoDAsync", s.c.d.memcpyHtoDAsync, uintptr(to), address(from), uintptr(len(from)), s.handle)
}

func (s *stream) CopyOut(to []byte, from Ptr) error {
	return s.c.call("cuMemcpyDtoHAsync", s.c.d.memcpyDtoHAsync, address(to), uintptr(from), uintptr(len(to)), s.handle)
}

func (s *stream) Clear(p Ptr, bytes int64) error {
	return s.c.call("cuMemsetD8Async", s.c.d.memsetD8Async, uintptr(p), 0, uintptr(bytes), s.handle)
}

func (s *stream) Launch(f Function, l Launch) error {
	const (
		end         = 0
		buffer      = 1
		bufferBytes = 2
	)
	size := uintptr(len(l.Params))
	var pin runtime.Pinner
	defer pin.Unpin()
	params := append([]byte(nil), l.Params...)
	params = append(params, 0) // so that it is never empty
	pin.Pin(&params[0])
	pin.Pin(&size)
	extra := [5]uintptr{buffer, uintptr(unsafe.Pointer(&params[0])), bufferBytes, uintptr(unsafe.Pointer(&size)), end}
	k := f.(*function)
	return s.c.call("cuLaunchKernel "+k.name, s.c.d.launchKernel, k.handle,
		uintptr(l.Grid[0]), uintptr(l.Grid[1]), uintptr(l.Grid[2]), uintptr(l.Block[0]), uintptr(l.Block[1]), uintptr(l.Block[2]),
		0, s.handle, 0, uintptr(unsafe.Pointer(&extra)))
}

func (s *stream) Record(e Event) error {
	return s.c.call("cuEventRecord", s.c.d.eventRecord, e.(*event).handle, s.handle)
}

func (s *stream) Wait(e Event) error {
	return s.c.call("cuStreamWaitEvent", s.c.d.streamWaitEvent, s.handle, e.(*event).handle, 0)
}

func (s *stream) Sync() error {
	return s.c.call("cuStreamSynchronize", s.c.d.streamSynchronize, s.handle)
}

func (s *stream) Done() (bool, error) {
	err := s.c.call("cuStreamQuery", s.c.d.streamQuery, s.handle)
	var e *Error
	if errors.As(err, &e) && e.Code == NotReady {
		return false, nil
	}
	return err == nil, err
}

func (s *stream) BeginCapture() error {
	const relaxed = 2 // as Go moves goroutines between threads
	return s.c.call("cuStreamBeginCapture", s.c.d.streamBeginCapture, s.handle, relaxed)
}

func (s *stream) EndCapture() (Graph, error) {
	var captured uintptr
	if err := s.c.call("cuStreamEndCapture", s.c.d.streamEndCapture, s.handle, uintptr(unsafe.Pointer(&captured))); err != nil {
		return nil, err
	}
	g := &graph{c: s.c}
	if err := s.c.call("cuGraphInstantiate", s.c.d.graphInstantiate, uintptr(unsafe.Pointer(&g.handle)), captured, 0); err != nil {
		return nil, errors.Join(err, s.c.call("cuGraphDestroy", s.c.d.graphDestroy, captured))
	}
	if err := s.c.call("cuGraphDestroy", s.c.d.graphDestroy, captured); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (s *stream) Upload(g Graph) error {
	return s.c.call("cuGraphUpload", s.c.d.graphUpload, g.(*graph).handle, s.handle)
}

func (s *stream) Replay(g Graph) error {
	return s.c.call("cuGraphLaunch", s.c.d.graphLaunch, g.(*graph).handle, s.handle)
}

func (s *stream) Handle() uintptr { return s.handle }

func (s *stream) Close() error {
	return s.c.call("cuStreamDestroy", s.c.d.streamDestroy, s.handle)
}

type event struct {
	c      *context
	handle uintptr
}

func (e *event) Sync() error {
	return e.c.call("cuEventSynchronize", e.c.d.eventSynchronize, e.handle)
}

func (e *event) Since(earlier Event) (time.Duration, error) {
	var ms float32
	err := e.c.call("cuEventElapsedTime", e.c.d.eventElapsedTime, uintptr(unsafe.Pointer(&ms)), earlier.(*event).handle, e.handle)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

func (e *event) Close() error {
	return e.c.call("cuEventDestroy", e.c.d.eventDestroy, e.handle)
}

type graph struct {
	c      *context
	handle uintptr
}

func (g *graph) Close() error {
	return g.c.call("cuGraphExecDestroy", g.c.d.graphExecDestroy, g.handle)
}
