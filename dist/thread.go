package dist

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Thread makes all calls of a library whose calls must come from one thread and may wait for
// ranks that are gone: such calls are abandoned.
type Thread struct {
	met    Watched
	work   chan func()
	closed chan struct{}
	grace  time.Duration
}

// NewThread returns a thread for the ranks of a group. grace is how long a call may still run
// once the group has ended.
func NewThread(met Watched, grace time.Duration) *Thread {
	t := &Thread{met, make(chan func(), 1), make(chan struct{}), grace}
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		for {
			select {
			case f := <-t.work:
				f()
			case <-t.closed:
				return
			}
		}
	}()
	return t
}

// Do runs f on the thread.
func (t *Thread) Do(ctx context.Context, f func() error) error {
	var err error
	done := make(chan struct{})
	select {
	case <-t.closed:
		return errLeft
	default:
	}
	do := func() {
		err = f()
		close(done)
	}
	select {
	case t.work <- do: // also when the group has ended: f may be what cleans up
	default:
		select {
		case t.work <- do:
		case <-t.met.Ended(): // an earlier call was abandoned
			return t.met.Cause(t.met.Rank(), nil)
		}
	}
	select {
	case <-done:
		return err
	case <-t.met.Ended():
	case <-ctx.Done():
		return fmt.Errorf("the library does not answer: %w", ctx.Err())
	}
	if t.grace > 0 {
		select {
		case <-done:
		case <-time.After(t.grace):
		}
	}
	return t.met.Cause(t.met.Rank(), nil)
}

// Close ends the thread. It must be called only once.
func (t *Thread) Close() { close(t.closed) }
