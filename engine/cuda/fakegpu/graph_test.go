package fakegpu_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// rig is a card with streams, an event and memory, all freed at the end.
type rig struct {
	t    *testing.T
	ctx  driver.Context
	a, b driver.Stream
	e    driver.Event
	at   driver.Ptr
}

func newRig(t *testing.T) *rig {
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}
	ctx, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, ctx: ctx}
	var errs [4]error
	r.a, errs[0] = ctx.NewStream()
	r.b, errs[1] = ctx.NewStream()
	r.e, errs[2] = ctx.NewEvent(false)
	r.at, errs[3] = ctx.Alloc(16)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.a.Close(), r.b.Close(), r.e.Close(), ctx.Free(r.at), ctx.Close(), d.Left()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// must ends the test if there is an error.
func (r *rig) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// wants checks an error's code.
func (r *rig) wants(err error, code driver.Code) {
	r.t.Helper()
	var e *driver.Error
	if !errors.As(err, &e) || e.Code != code {
		r.t.Errorf("%v, want the code %d", err, code)
	}
}

// captured makes a graph of one operation.
func (r *rig) captured() driver.Graph {
	r.t.Helper()
	r.must(r.a.BeginCapture(), r.a.Clear(r.at, 16))
	g, err := r.a.EndCapture()
	r.must(err)
	return g
}

// A call that a capture does not allow ends it: the call fails with its own code, and every later one,
// including the end, with 901. Afterwards the streams work as before.
func TestCallsThatEndACapture(t *testing.T) {
	for name, c := range map[string]struct {
		call func(r *rig) error
		code driver.Code
	}{
		"waiting for the stream": {func(r *rig) error { return r.a.Sync() }, driver.CaptureUnsupported},
		"asking the stream":      {func(r *rig) error { _, err := r.a.Done(); return err }, driver.CaptureUnsupported},
		"capturing again":        {func(r *rig) error { return r.a.BeginCapture() }, driver.CaptureUnsupported},
		"waiting for its event": {func(r *rig) error {
			r.must(r.a.Record(r.e))
			return r.e.Sync()
		}, driver.CapturedEvent},
		"an event of work outside": {func(r *rig) error {
			r.must(r.b.Clear(r.at, 1), r.b.Record(r.e))
			return r.a.Wait(r.e)
		}, driver.CaptureIsolation},
		"an event of another capture": {func(r *rig) error {
			r.must(r.b.BeginCapture(), r.b.Clear(r.at, 1), r.b.Record(r.e))
			err := r.a.Wait(r.e)
			_, end := r.b.EndCapture()
			r.wants(end, driver.CaptureInvalidated)
			return err
		}, driver.CaptureMerge},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.must(r.a.BeginCapture(), r.a.Clear(r.at, 16))
			r.wants(c.call(r), c.code)
			r.wants(r.a.Clear(r.at, 16), driver.CaptureInvalidated)
			_, err := r.a.EndCapture()
			r.wants(err, driver.CaptureInvalidated)
			r.must(r.a.Clear(r.at, 16), r.a.Sync(), r.captured().Close())
		})
	}
}

// Ending a capture fails if there is none, or if it leaves work behind.
func TestEndsOfCaptures(t *testing.T) {
	r := newRig(t)
	_, err := r.a.EndCapture()
	r.wants(err, driver.CaptureUnmatched)
	r.must(r.a.BeginCapture(), r.a.Record(r.e), r.b.Wait(r.e), r.b.Clear(r.at, 16))
	_, err = r.b.EndCapture()
	r.wants(err, driver.CaptureUnmatched)
	_, err = r.a.EndCapture()
	r.wants(err, driver.CaptureUnjoined)
	r.wants(r.b.Wait(r.e), driver.CapturedEvent) // last recorded in that stream
	r.must(r.b.Record(r.e), r.a.Wait(r.e))
}

// A graph that allocates memory while a program runs is an error: one that is launched before it was
// uploaded, or one made while a graph launched earlier still exists.
func TestGraphsThatTakeMemory(t *testing.T) {
	r := newRig(t)
	g := r.captured()
	r.must(r.a.Upload(g), r.a.Replay(g), r.a.Sync())
	r.must(r.a.BeginCapture(), r.a.Clear(r.at, 16))
	if _, err := r.a.EndCapture(); err == nil || !strings.Contains(err.Error(), "takes memory while a program runs") {
		t.Errorf("a second graph: %v", err)
	}
	r.must(g.Close())
	second := r.captured()
	r.must(r.a.Replay(second))
	if err := r.a.Sync(); err == nil || !strings.Contains(err.Error(), "was not uploaded") {
		t.Errorf("a launch: %v", err)
	}
	r.must(second.Close())
}

// Only events made with timing know their time.
func TestEventsWithoutTime(t *testing.T) {
	r := newRig(t)
	timed, err := r.ctx.NewEvent(true)
	r.must(err, r.a.Record(timed), r.a.Record(r.e), r.a.Sync())
	_, err = r.e.Since(timed)
	r.wants(err, driver.InvalidHandle)
	_, err = timed.Since(timed)
	r.must(err, timed.Close())
}
