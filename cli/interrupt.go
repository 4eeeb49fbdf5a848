package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// interrupts gives a context that ends with the first Ctrl-C or SIGTERM, so
// that a run saves and stops; a second signal ends the process at once.
func interrupts(w io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-c:
			_, _ = fmt.Fprintf(w, "\nsnug: %v: finishing the update and saving; again to stop at once\n", s)
			cancel()
		case <-done:
			return
		}
		select {
		case <-c:
			os.Exit(exitFailed)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}
