package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// idleLimit is how long nothing may move on a connection, in any state of a request,
// before the attempt counts as failed. A slow connection may take as long as it needs.
const idleLimit = 30 * time.Second

// StalledError means that nothing moved on a connection.
type StalledError struct {
	Host  string
	While string // what was waited for
	After time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("%s stalled: %s, and no data moved for %s", e.Host, e.While, e.After)
}

// watched ends requests on which nothing moves.
type watched struct {
	http.RoundTripper
	idle time.Duration
}

// RoundTrip implements http.RoundTripper.
func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	host := req.URL.Host
	stall := func(while string) func() {
		return func() { cancel(&StalledError{host, while, w.idle}) }
	}
	var answered atomic.Bool
	send := time.AfterFunc(w.idle, func() {
		if !answered.Load() {
			stall("no response started")()
		}
	})
	req = req.Clone(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &moving{ReadCloser: req.Body, moved: func() {
			if !answered.Load() { // the rest may still be in transit then
				send.Reset(w.idle)
			}
		}}
	}
	res, err := w.RoundTripper.RoundTrip(req)
	answered.Store(true)
	send.Stop()
	if err != nil {
		err = cause(ctx, err)
		cancel(nil)
		return nil, err
	}
	read := time.AfterFunc(w.idle, stall("the response stopped"))
	read.Stop()
	res.Body = &reading{ReadCloser: res.Body, ctx: ctx, end: func() { read.Stop(); cancel(nil) }, begin: func() { read.Reset(w.idle) }, done: func() { read.Stop() }}
	return res, nil
}

// cause returns why ctx was ended if that was a stall, otherwise err.
func cause(ctx context.Context, err error) error {
	if s := (*StalledError)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}

// moving is the data being sent; each piece that is read from it is a sign of life.
type moving struct {
	io.ReadCloser
	moved func()
}

// Read implements io.Reader.
func (m *moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.moved()
	}
	return n, err
}

// reading is an answer; only the time within Read counts, not the reader's own time in
// between.
type reading struct {
	io.ReadCloser
	ctx              context.Context
	begin, done, end func()
}

// Read implements io.Reader.
func (r *reading) Read(p []byte) (int, error) {
	r.begin()
	n, err := r.ReadCloser.Read(p)
	r.done()
	if err != nil && err != io.EOF {
		err = cause(r.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (r *reading) Close() error {
	err := r.ReadCloser.Close()
	r.end()
	return err
}
