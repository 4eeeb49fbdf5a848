package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/session"
)

// Training by several processes. With --nproc this process starts them all, of which the
// one of rank 0 has the terminal; other launchers have started them before.

// group is this process's end of those that train together; nil if it trains alone.
func (a *app) group(nproc int) (*dist.Launch, dist.Group, error) {
	launch, err := dist.FindLaunch(os.Getenv)
	if err != nil {
		return nil, nil, session.UsageError{Err: err}
	}
	if launch != nil && launch.Machines {
		if err := launch.Spread(nproc); err != nil {
			return nil, nil, session.UsageError{Err: err}
		}
		switch {
		case launch.World == max(1, nproc): // there is one machine
			launch = nil
		case nproc > 1:
			return launch, nil, nil // this process starts them
		default:
			nproc = 0
		}
	}
	switch {
	case launch == nil && nproc == 1:
		return &dist.Launch{By: "snug", World: 1, LocalWorld: 1}, dist.InProcess(1)[0], nil
	case launch == nil || launch.World == 1 && nproc == 0:
		return nil, nil, nil
	case launch.By != "snug" && nproc > 0:
		return nil, nil, session.UsageError{Err: fmt.Errorf("--nproc starts processes by itself, and %s has started %d: give one of the two", launch.By, launch.World)}
	}
	if launch.By == "snug" && launch.Rank == 0 {
		f := os.NewFile(listenerFile, "listener")
		if launch.Listener, err = net.FileListener(f); err != nil {
			return nil, nil, fmt.Errorf("the listener of the process that started this one: %w", err)
		}
		if err := f.Close(); err != nil { // the listener has a copy
			return nil, nil, err
		}
	}
	if launch.Rank > 0 {
		a.signals.does(following)
	}
	waiting := time.AfterFunc(quietly, func() {
		a.warnf("snug: rank %d of %d is waiting for the others to join %s; it gives up after %v\n", launch.Rank, launch.World, launch.Meeting(), dist.Meet)
	})
	defer waiting.Stop()
	g, err := launch.Join(a.ctx)
	return launch, g, err
}

// quietly is how long ranks wait for others without a word.
const quietly = 5 * time.Second

// listenerFile is the number of the file that rank 0 inherits: the first after stderr.
const listenerFile = 3

// follow trains with rank 0.
func (a *app) follow(launch *dist.Launch, g dist.Group) error {
	err := session.Follow(a.ctx, g, session.Local{Rank: launch.LocalRank, World: launch.LocalWorld})
	if err != nil && !errors.As(err, new(*dist.LostError)) && !errors.As(err, new(*dist.EndedError)) {
		err = fmt.Errorf("rank %d: %w", g.Rank(), err)
	}
	return errors.Join(err, g.Leave(err))
}

// exitError is an exit code that was explained before.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
func (e exitError) ExitCode() int { return int(e) }

// lastWords is how long the other processes may take to end when one has.
const lastWords = 10 * time.Second

// meeting is where the processes that this one starts meet, and their token: here, or where the
// processes of all machines do. The listener is nil on machines but the first.
func (a *app) meeting(machine *dist.Launch) (address, token string, listener *os.File, err error) {
	var l net.Listener
	switch {
	case machine == nil || machine.World == machine.LocalWorld:
		l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return "", "", nil, err
		}
		address, token = l.Addr().String(), rand.Text()
	case machine.Rank > 0:
		return machine.Address, machine.Job, nil, nil
	default:
		if l, err = machine.Listen(a.ctx); err != nil {
			return "", "", nil, err
		}
		address, token = machine.Address, machine.Job
	}
	listener, err = l.(*net.TCPListener).File()
	return address, token, listener, errors.Join(err, l.Close())
}

// spawn starts n processes of this program with the same arguments and waits for them: all
// of a run, or those of this machine.
func (a *app) spawn(machine *dist.Launch, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	address, token, listener, err := a.meeting(machine)
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // rank 0 has its own
	}
	first, world := 0, n
	if machine != nil {
		first, world = machine.Rank, machine.World
	}
	a.signals.does(following)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ends := make(chan int, n) // ranks
	ranks := make([]*exec.Cmd, n)
	says := make([]tail, n)
	defer func() {
		for _, c := range ranks {
			if c != nil && c.Process != nil {
				_ = c.Process.Kill() // those that have ended are not found
			}
		}
	}()
	for r := range ranks {
		c := &exec.Cmd{Path: self, Args: os.Args, Stderr: &says[r]}
		c.Env = append(os.Environ(), "SNUG_ADDRESS="+address, "SNUG_TOKEN="+token,
			fmt.Sprint("SNUG_RANK=", first+r), fmt.Sprint("SNUG_WORLD_SIZE=", world), fmt.Sprint("SNUG_LOCAL_RANK=", r), fmt.Sprint("SNUG_LOCAL_WORLD_SIZE=", n))
		if r == 0 {
			c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
			if listener != nil {
				c.ExtraFiles = []*os.File{listener}
			}
		}
		if err := c.Start(); err != nil {
			return fmt.Errorf("starting rank %d: %w", first+r, err)
		}
		ranks[r] = c
		go func() {
			_ = c.Wait() // its state says how it ended
			ends <- r
		}()
	}
	var late <-chan time.Time
	for left := n; left > 0; {
		select {
		case s := <-signals:
			// Rank 0 has it from the terminal, if that is where it comes from; those that
			// are told make all stop.
			for _, c := range ranks[1:] {
				_ = c.Process.Signal(s) // it may have ended
			}
		case r := <-ends:
			left--
			if late == nil && !ranks[r].ProcessState.Success() {
				late = time.After(lastWords)
			}
		case <-late:
			a.warnf("snug: some processes did not end within %v after another, and are killed\n", lastWords)
			for _, c := range ranks {
				_ = c.Process.Kill() // those that have ended are not found
			}
		}
	}
	return a.ended(first, ranks, says)
}

// ended is the result of processes that have ended, of which the first has that rank: its own,
// which says why.
func (a *app) ended(rank int, ranks []*exec.Cmd, says []tail) error {
	first := ranks[0].ProcessState
	for r, c := range ranks {
		code, known := c.ProcessState.ExitCode(), []int{exitDone, exitFailed, exitStopped, exitLostRank}
		if code < 0 {
			a.warnf("snug: rank %d ended by a signal (%v)\n", rank+r, c.ProcessState)
		}
		if r > 0 && !slices.Contains(known, code) {
			a.warnf("%s", says[r].text())
		}
	}
	switch code := first.ExitCode(); {
	case code < 0:
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
