package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/snug-ml/snug/dist"
)

// spawn starts processes of this program with the same arguments and waits for them: those of the whole run,
// or those of this machine.
type spawn struct {
	*app
	machine *dist.Launch // nil if this is the only machine
	n       int
	bound   [][]int // the processors of each process; nil if all may use all
}

// boundVariable tells a process that the processors it may use are its own.
const boundVariable = "SNUG_BOUND"

// exitError is an exit code whose reason has already been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
func (e exitError) ExitCode() int { return int(e) }

// lastWords is how long the other processes may take to end once one has.
const lastWords = 10 * time.Second

// child is one of the processes.
type child struct {
	*exec.Cmd
	rank   int
	says   tail
	killed bool // killed by this process because it did not end
}

// meeting returns where the started processes meet, and their token: on this machine, or where the processes
// of all machines meet. The listener is nil except on the first machine.
func (s *spawn) meeting() (address, token string, listener *os.File, err error) {
	var l net.Listener
	switch machine := s.machine; {
	case machine == nil:
		l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return "", "", nil, err
		}
		address, token = l.Addr().String(), rand.Text()
	case machine.Rank > 0:
		return machine.Address, machine.Job, nil, nil
	default:
		if l, err = machine.Listen(s.ctx); err != nil {
			return "", "", nil, err
		}
		address, token = machine.Address, machine.Job
	}
	listener, err = l.(*net.TCPListener).File()
	return address, token, listener, errors.Join(err, l.Close())
}

// run starts the processes and waits for them.
func (s *spawn) run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	address, token, listener, err := s.meeting()
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // rank 0 has a copy
	}
	// Nothing is ever written to the lifeline: it closes when this process ends, for whatever reason.
	lifeline, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = lifeline.Close(), hold.Close() }() // the children have ended
	first, world := 0, s.n
	if s.machine != nil {
		first, world = s.machine.Rank, s.machine.World
	}
	s.signals.does(following)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, endings()...)
	defer signal.Stop(signals)
	ranks := make([]*child, s.n)
	defer func() {
		for _, c := range ranks {
			if c != nil && c.Process != nil {
				_ = c.Process.Kill() // fails for those that have already ended
			}
		}
	}()
	// The system kills children when the thread that started them ends, so keep this one until all have
	// ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ends := make(chan *child, s.n)
	for r := range ranks {
		c := &child{rank: first + r}
		c.Cmd = &exec.Cmd{Path: self, Args: os.Args, Stderr: &c.says, ExtraFiles: []*os.File{lifeline}, SysProcAttr: diesWithParent()}
		c.Env = append(os.Environ(), "SNUG_ADDRESS="+address, "SNUG_TOKEN="+token, dist.LauncherVariable+"=snug",
			fmt.Sprint("SNUG_RANK=", c.rank), fmt.Sprint("SNUG_WORLD_SIZE=", world), fmt.Sprint("SNUG_LOCAL_RANK=", r), fmt.Sprint("SNUG_LOCAL_WORLD_SIZE=", s.n))
		if r == 0 {
			c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
			if listener != nil {
				c.ExtraFiles = append(c.ExtraFiles, listener)
			}
		}
		start := c.Start
		if s.bound != nil {
			c.Env = append(c.Env, boundVariable+"=1")
			start = func() error { return startOn(s.bound[r], c.Start) }
		}
		if err := start(); err != nil {
			return fmt.Errorf("starting rank %d: %w", c.rank, err)
		}
		ranks[r] = c
		go func() {
			_ = c.Wait() // ProcessState says how it ended
			ends <- c
		}()
	}
	var order []*child // in the order in which they end
	var late <-chan time.Time
	for len(order) < s.n {
		select {
		case sig := <-signals:
			// If the signal came from the terminal, rank 0 has it too; the ranks that get it here make all
			// stop.
			for _, c := range ranks[1:] {
				_ = c.Process.Signal(sig) // it may have ended already
			}
		case c := <-ends:
			order = append(order, c)
			if late == nil && !c.ProcessState.Success() {
				late = time.After(lastWords)
			}
		case <-late:
			for _, c := range ranks {
				if !slices.Contains(order, c) {
					c.killed = true
					_ = c.Process.Kill() // it may just have ended
				}
			}
		}
	}
	return s.ended(ranks[0], order)
}

// ended returns the result of the processes, given in the order in which they ended. It is that of the first
// rank, which has the terminal and has printed the reason. If that could not, it prints the reason of the
// first process that has one.
func (s *spawn) ended(leader *child, order []*child) error {
	code, told := leader.ProcessState.ExitCode(), false
	for _, c := range order {
		switch own := c.ProcessState.ExitCode(); {
		case c.killed:
			s.warnf("snug: rank %d did not end within %v after rank %d, and was killed\n", c.rank, lastWords, order[0].rank)
		case own < 0:
			s.warnf("snug: rank %d ended by a signal (%v)\n", c.rank, c.ProcessState)
		case c == leader || own == exitDone:
		case leader.ProcessState.ExitCode() < 0 && !told && strings.TrimSpace(c.says.text()) != "":
			told = true
			s.warnf("%s", c.says.text())
			if leader.killed {
				code = own
			}
		case !slices.Contains([]int{exitFailed, exitStopped, exitLostRank}, own): // only this rank knows the reason, such as a stack trace
			s.warnf("%s", c.says.text())
			if own == exitLost && code == exitFailed { // the first rank knows only that this one failed
				code = exitLost
				s.warnf("snug: rank %d lost its device: start the run again with --resume, with as many processes as you like\n", c.rank)
			}
		}
	}
	switch {
	case code < 0:
		if !told {
			s.warnf("snug: start the run again with --resume, with as many processes as you like\n")
		}
		return exitError(exitLostRank)
	case code > 0:
		return exitError(code)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const tailBytes = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-tailBytes):]
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
