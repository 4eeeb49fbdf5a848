package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// stop is what a verb does when it is interrupted.
type stop struct {
	says string
	// patience is how long it may take after a signal, after which the process
	// ends as it is; 0: as long as it takes.
	patience time.Duration
	// only is the signal that patience counts from; nil: any.
	only os.Signal
	late string // what is printed when the patience is over
	code int    // and the exit code then
	// follows means that other processes decide: nothing is printed, and further signals
	// change nothing.
	follows bool
}

// giveUp is how long a verb that leaves nothing torn may take to notice that it was
// interrupted.
const giveUp = 5 * time.Second

// stops is what each verb does when it is interrupted; training updates its own as
// it proceeds.
var stops = map[string]stop{
	"train":        preparing,
	"plan":         harmless("stopping the planner"),
	"fit":          harmless("stopping the search"),
	"generate":     harmless("stopping the text here"),
	"eval":         harmless("stopping the evaluation; none of it is kept"),
	"predict":      harmless("stopping after the answers already written"),
	"serve":        {says: "finishing open requests, accepting no new ones"},
	"export":       harmless("stopping; the folder is not created"),
	"data prepare": harmless("stopping; a partly prepared folder is dropped, a complete one stays"),
	"ckpt list":    harmless("stopping before the list"),
	"ckpt show":    harmless("stopping before anything is shown"),
	"ckpt verify":  harmless("stopping; the rest is not verified"),
	"ckpt compare": harmless("stopping before the comparison"),
	"ckpt plot":    harmless("stopping before a picture is written"),
	"ckpt push":    harmless("stopping; the copy is incomplete and not used, another push continues it"),
	"ckpt pull":    harmless("stopping; the copy is incomplete and not used"),
	"ckpt remote":  harmless("stopping before the list"),
	"config":       harmless("stopping before anything is shown"),
	"report":       harmless("stopping before the report is written"),
	"monitor":      harmless("the monitor ends; the run continues"),
	"doctor":       harmless("stopping the measurement"),
	"bench":        harmless("stopping; what was measured is printed"),
	"check":        harmless("stopping before the comparison"),
}

// harmless is the stop of a verb that leaves nothing half done.
func harmless(says string) stop {
	return stop{says: says, patience: giveUp, code: exitFailed}
}

// The stops of training.
var (
	preparing = harmless("stopping; nothing was trained since the last save")
	// following is that of a rank above 0, which tells the others, and of the process that
	// started them.
	following = stop{follows: true}
	afterward = stop{says: "the weights are saved; finishing the report"}
)

// training is the stop of the loop, which has the grace to save.
func training(grace time.Duration) stop {
	return stop{
		says: "finishing the micro-batch and saving", patience: grace, only: syscall.SIGTERM,
		late: "checkpoint.grace ended before the state was saved; the last checkpoint stays", code: exitGrace,
	}
}

// interruption ends the work in hand at the first Ctrl-C, SIGTERM or SIGHUP, so that a
// run saves and stops; a second signal ends the process at once, and so does
// the end of the verb's patience. Signals stay caught after stop: one that
// comes when the work is done and the process about to end must not turn its
// exit code into a death by signal.
type interruption struct {
	ctx   context.Context
	doing atomic.Pointer[stop]
	stop  func()
	typed chan<- os.Signal // what the terminal would have sent
}

// errInterrupted is why the context of an interrupted verb ended.
var errInterrupted = errors.New("interrupted")

// interrupts catches signals for a verb.
func interrupts(w io.Writer, verb string) *interruption {
	ctx, cancel := context.WithCancelCause(context.Background())
	n := &interruption{ctx: ctx}
	n.does(stops[verb])
	c := make(chan os.Signal, 2)
	n.typed = c
	signal.Notify(c, endings()...)
	// A pipe whose reader has left fails the write, and does not end the process
	// in the middle of a run: see stream.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done := make(chan struct{})
	n.stop = func() {
		close(done)
		cancel(context.Canceled)
	}
	go func() {
		var late <-chan time.Time
		var at stop
		select {
		case s := <-c:
			at = *n.doing.Load()
			if at.follows {
				cancel(errInterrupted)
				<-done
				return
			}
			_, _ = fmt.Fprintf(w, "\nsnug: %v: %s; again to stop at once\n", s, at.says)
			if at.patience > 0 && (at.only == nil || at.only == ending(s)) {
				late = time.After(at.patience)
			}
			cancel(errInterrupted)
		case <-done:
			return
		}
		select {
		case <-c:
			os.Exit(exitFailed)
		case <-late:
			if at.late != "" {
				_, _ = fmt.Fprintf(w, "snug: %s\n", at.late)
			}
			os.Exit(at.code)
		case <-done:
		}
	}()
	return n
}

// endings are the signals that end a verb's work. That of a terminal which was closed, or of a
// connection which was lost, is one of them, unless who started this process had it ignored, as
// nohup does.
func endings() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// ending is a signal, where a hang-up counts as SIGTERM.
func ending(s os.Signal) os.Signal {
	if s == syscall.SIGHUP {
		return syscall.SIGTERM
	}
	return s
}

// does sets what happens at a signal from here on.
func (n *interruption) does(s stop) { n.doing.Store(&s) }

// interrupted reports whether a signal has come.
func (n *interruption) interrupted() bool { return errors.Is(context.Cause(n.ctx), errInterrupted) }

// interrupt is Ctrl-C where the terminal is in a mode in which it sends no signal.
func (n *interruption) interrupt() {
	select {
	case n.typed <- os.Interrupt:
	default: // two are waiting, and more would make no difference
	}
}
