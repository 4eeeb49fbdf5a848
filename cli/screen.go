package cli

import (
	"context"
	"os"

	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/monitor/terminal"
)

// runScreen is the monitor's view of a run that trains in this process. Like any monitor, it reads the run
// directory. While it is open, the lines of the run go only to its log; warnings are printed when it closes.
type runScreen struct {
	*app
	stdin, tty *os.File
	left       bool // the user went back to plain lines
	cancel     context.CancelFunc
	done       chan struct{}
}

// watch switches to the monitor's view, if there is a terminal for it.
func (v *trainView) watch() {
	in, out, ok := v.terminal()
	if !ok || v.asJSON {
		v.warning("--monitor needs a terminal at stdin and stdout; plain lines instead (snug monitor shows the run from another terminal)")
		return
	}
	v.screen = &runScreen{app: v.app, stdin: in, tty: out}
}

// open shows the run in dir. An error of the view does not stop the training.
func (s *runScreen) open(dir string) {
	if s.left || s.cancel != nil {
		return
	}
	run, err := monitor.Open(dir)
	if err != nil {
		s.warning("--monitor: %v; plain lines instead", err)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx)) // keeps showing the save after Ctrl-C
	s.cancel, s.done = cancel, make(chan struct{})
	s.app.out.hold()
	s.app.err.hold()
	done := s.done
	go func() {
		defer close(done)
		w := terminal.WatchRuns(run)
		o := terminal.Options{Looks: looksOf(os.Getenv), Look: w.Look, Leave: "plain lines"}
		interrupted, err := terminal.Show(ctx, s.stdin, s.tty, o)
		s.app.out.release(false)
		s.app.err.release(true)
		switch {
		case interrupted:
			s.signals.interrupt()
		case err != nil:
			s.warning("--monitor: %v; plain lines instead", err)
		case ctx.Err() == nil:
			s.warnf("training goes on; snug monitor %s shows it again\n", shell.Path(dir))
		}
		s.left = s.left || ctx.Err() == nil
	}()
}

// close removes the view from the terminal.
func (s *runScreen) close() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	<-s.done
	s.cancel = nil
}
