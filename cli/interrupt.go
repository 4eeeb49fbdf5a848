package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// interruption ends the work in hand at the first Ctrl-C or SIGTERM, so that a
// run saves and stops; a second signal ends the process at once, and so does,
// after SIGTERM (a machine that is taken away), the end of the grace. Signals
// stay caught after stop: one that comes when the work is done and the process
// about to end must not turn its exit code into a death by signal.
type interruption struct {
	ctx   context.Context
	grace atomic.Int64 // nanoseconds; 0: no limit
	stop  func()
}

func interrupts(w io.Writer) *interruption {
	ctx, cancel := context.WithCancel(context.Background())
	n := &interruption{ctx: ctx}
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	// A pipe whose reader has left fails the write, and does not end the process
	// in the middle of a run: see stream.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done := make(chan struct{})
	n.stop = func() {
		close(done)
		cancel()
	}
	go func() {
		var late <-chan time.Time
		select {
		case s := <-c:
			_, _ = fmt.Fprintf(w, "\nsnug: %v: finishing the micro-batch and saving; again to stop at once\n", s)
			if g := time.Duration(n.grace.Load()); s == syscall.SIGTERM && g > 0 {
				late = time.After(g)
			}
			cancel()
		case <-done:
			return
		}
		select {
		case <-c:
			os.Exit(exitFailed)
		case <-late:
			_, _ = fmt.Fprintf(w, "snug: checkpoint.grace is over before the state was saved; the last checkpoint stays\n")
			os.Exit(exitGrace)
		case <-done:
		}
	}()
	return n
}
