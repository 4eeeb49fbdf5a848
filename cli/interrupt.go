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

// stop is what happens when a command is interrupted.
type stop struct {
	says string
	// patience is how long stopping may take after a signal before the process is ended; 0 means no limit.
	patience time.Duration
	// only is the signal that starts the time limit; nil means any.
	only os.Signal
	late string // printed when the limit is over
	code int    // exit code in that case
	// follows means that other processes decide: nothing is printed, and further signals have no effect.
	follows bool
}

// giveUp is how long a command that leaves nothing half done may take to react to an interrupt.
const giveUp = 5 * time.Second

// stops lists what happens when each command is interrupted. Training replaces its entry as it proceeds.
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

// harmless returns the stop of a command that leaves nothing half done.
func harmless(says string) stop {
	return stop{says: says, patience: giveUp, code: exitFailed}
}

// The stops of training, by stage.
var (
	preparing = harmless("stopping; nothing was trained since the last save")
	// following is the stop of a rank above 0, which informs the other ranks, and of the process that started
	// them.
	following = stop{follows: true}
	afterward = stop{says: "the weights are saved; finishing the report"}
)

// training returns the stop of the training loop, which has a grace period to save.
func training(grace time.Duration) stop {
	return stop{
		says: "finishing the micro-batch and saving", patience: grace, only: syscall.SIGTERM,
		late: "checkpoint.grace ended before the state was saved; the last checkpoint stays", code: exitGrace,
	}
}

// interruption stops the current work at the first Ctrl-C, SIGTERM or SIGHUP, so that a run saves and stops.
// A second signal, or the end of the command's patience, ends the process at once. Signals stay caught after
// stop: one that arrives when the work is done must not turn the exit code into a death by signal.
type interruption struct {
	ctx   context.Context
	doing atomic.Pointer[stop]
	stop  func()
	typed chan<- os.Signal // stands in for signals that the terminal would have sent
}

// errInterrupted is the cause of a cancelled context after an interrupt.
var errInterrupted = errors.New("interrupted")

// interrupts catches signals for a command.
func interrupts(w io.Writer, verb string) *interruption {
	ctx, cancel := context.WithCancelCause(context.Background())
	n := &interruption{ctx: ctx}
	n.does(stops[verb])
	c := make(chan os.Signal, 2)
	n.typed = c
	signal.Notify(c, endings()...)
	// If the reader of a pipe has left, the write must fail rather than end the process in the middle of a
	// run: see stream.
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

// endings returns the signals that stop a command. SIGHUP, from a closed terminal or a lost connection, is
// one of them, unless the parent process ignored it, as nohup does.
func endings() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// ending normalizes a signal: SIGHUP counts as SIGTERM.
func ending(s os.Signal) os.Signal {
	if s == syscall.SIGHUP {
		return syscall.SIGTERM
	}
	return s
}

// does sets what a signal does from now on.
func (n *interruption) does(s stop) { n.doing.Store(&s) }

// interrupted reports whether a signal has come.
func (n *interruption) interrupted() bool { return errors.Is(context.Cause(n.ctx), errInterrupted) }

// interrupt acts as Ctrl-C in a terminal mode that sends no signal.
func (n *interruption) interrupt() {
	select {
	case n.typed <- os.Interrupt:
	default: // two are already queued, and more would make no difference
	}
}
