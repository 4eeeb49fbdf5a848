//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/internal/offheap"
)

// group exchanges over MPI what the ranks of another group send each other. Those notice who
// is gone: MPI calls that would wait for a lost rank are given up.
type group struct {
	dist.Calls
	met   dist.Watched
	lib   *library
	out   []outgoing // by rank
	in    []incoming
	ended <-chan struct{}

	thread *dist.Thread // makes all MPI calls
	// mu is held where the caller's memory is read or written, which it may unmap once it
	// was given an error.
	mu     sync.Mutex
	failed error

	left sync.Once
	err  error // of leaving
}

// state is how far the MPI of this process is: it can be begun and finalized once.
var state atomic.Int32

const (
	unused = iota
	begun
	finalized
)

// Open exchanges over MPI in the place of a group whose ranks all call it. path is that of the
// library, "" for the one that the launcher probably belongs to.
func Open(ctx context.Context, met dist.Watched, path string) (dist.Group, *Library, error) {
	lib, err := agree(met, path)
	if err != nil {
		return nil, nil, err
	}
	if !state.CompareAndSwap(unused, begun) {
		return nil, nil, fmt.Errorf("%s can be used once in a process, and was", lib.Version)
	}
	g := &group{met: met, lib: lib, ended: met.Ended()}
	g.Calls = dist.NewCalls(met.Rank(), met.World(), g.exchange)
	if err := g.allocate(); err != nil {
		return nil, nil, err
	}
	g.thread = dist.NewThread(met, 0)
	ctx, cancel := context.WithTimeout(ctx, dist.Meet)
	defer cancel()
	if err := g.do(ctx, g.begin); err != nil {
		return nil, nil, err
	}
	return g, &lib.Library, nil
}

// agree loads the library, which must be the same for all: one that some ranks cannot
// load would leave the others waiting.
func agree(met dist.Watched, path string) (*library, error) {
	var mine struct{ Error, Version string }
	lib, err := find(path)
	if err != nil {
		mine.Error = err.Error()
	} else {
		mine.Version = lib.Version
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := dist.AllGatherSized(met, b)
	if err != nil {
		return nil, err
	}
	for r, b := range all {
		other := mine
		if err := json.Unmarshal(b, &other); err != nil {
			return nil, fmt.Errorf("what rank %d says of its MPI library: %w", r, err)
		}
		switch {
		case other.Error != "":
			return nil, fmt.Errorf("rank %d: %s", r, other.Error)
		case mine.Error == "" && other.Version != mine.Version:
			return nil, fmt.Errorf("rank %d has %s, rank %d %s: use the same library everywhere", r, other.Version, met.Rank(), mine.Version)
		}
	}
	return lib, nil
}

// allocate makes the memory that messages are sent from and received into. It is never given
// back: libraries keep memory registered with network adapters by its address, and do not
// see that Go unmaps it, or puts other pages there.
func (g *group) allocate() error {
	world, size := g.met.World(), slotBytes(g.met.World())
	memory, err := offheap.Allocate(StagingBytes(world))
	if err != nil {
		return fmt.Errorf("memory to exchange over MPI: %w", err)
	}
	take := func() (s [slots]slot) {
		for i := range s {
			s[i].memory, memory = memory[:size:size], memory[size:]
		}
		return s
	}
	g.out, g.in = make([]outgoing, world), make([]incoming, world)
	for r := range world {
		if r != g.met.Rank() {
			g.out[r] = outgoing{peer: r, slots: take()}
			g.in[r] = incoming{peer: r, slots: take()}
		}
	}
	return nil
}

// do has f done by the thread that makes MPI calls.
func (g *group) do(ctx context.Context, f func() error) error {
	return g.fail(g.thread.Do(ctx, f))
}

// fail keeps the first error, after which no memory of callers is touched any more.
func (g *group) fail(err error) error {
	if err == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed == nil {
		g.failed = err
	}
	return g.failed
}

// begin begins MPI. A library whose launcher was another one finds itself alone in the world,
// in silence.
func (g *group) begin() error {
	if err := g.lib.begin(); err != nil {
		return err
	}
	rank, size, err := g.lib.place()
	if err != nil {
		return err
	}
	if size != g.World() || rank != g.Rank() {
		return fmt.Errorf("%v finds this process to be rank %d of %d, the launcher says rank %d of %d: the processes must be started by the mpirun, mpiexec or srun that belongs to the library; name another with hardware.exchange: mpi:PATH",
			&g.lib.Library, rank, size, g.Rank(), g.World())
	}
	return nil
}

// exchange makes one call.
func (g *group) exchange(c *dist.Call) error {
	g.mu.Lock()
	failed := g.failed
	g.mu.Unlock()
	if failed != nil {
		return failed // a call that was given up may still use what follows
	}
	var out []*outgoing
	var in []*incoming
	for r := range g.World() {
		if c.Send[r] != nil {
			g.out[r].begin(c)
			out = append(out, &g.out[r])
		}
		if c.Recv[r] != nil {
			g.in[r].begin(c)
			in = append(in, &g.in[r])
		}
	}
	return g.do(context.Background(), func() error { return g.run(out, in) })
}

// Leave finalizes MPI where all is well, which waits for the other ranks. After a failure there
// is nothing that could be finalized: what launchers do is to end all processes when one
// ends with another code than 0.
func (g *group) Leave(cause error) error {
	g.left.Do(func() {
		g.mu.Lock()
		well := cause == nil && g.failed == nil
		g.mu.Unlock()
		if well {
			ctx, cancel := context.WithTimeout(context.Background(), dist.Meet)
			defer cancel()
			if g.err = g.do(ctx, g.lib.end); g.err == nil {
				state.Store(finalized)
			}
			g.thread.Close()
		}
		g.err = errors.Join(g.err, g.met.Leave(cause))
	})
	return g.err
}

// Exit ends the process. After a run over MPI it does that by C's exit: MPICH 5 says goodbye to its
// launcher there, which otherwise kills the other ranks. One that failed has nobody to
// say goodbye to.
func Exit(code int) {
	if state.Load() == finalized {
		leave(code)
	}
	os.Exit(code)
}
