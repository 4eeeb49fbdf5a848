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

// group exchanges over MPI what the ranks of another group send each other. That other group
// notices lost ranks: MPI calls that would wait for one are abandoned.
type group struct {
	dist.Calls
	met   dist.Watched
	lib   *library
	out   []outgoing // by rank
	in    []incoming
	ended <-chan struct{}

	thread *dist.Thread // makes all MPI calls
	// mu is held while the caller's memory is read or written: the caller may unmap it
	// once it has got an error.
	mu     sync.Mutex
	failed error

	left sync.Once
	err  error // of leaving
}

// state is how far MPI has come in this process: it can be initialized and finalized only
// once.
var state atomic.Int32

const (
	unused = iota
	begun
	finalized
)

// Open returns a group that exchanges over MPI instead of over met, whose ranks all call it.
// path is the library, "" for the one that probably belongs to the launcher.
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

// agree loads the library, which must be the same on all ranks: if some ranks could not
// load it, the others would wait for them.
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

// allocate allocates the memory that messages are sent from and received into. It is never
// freed: libraries keep memory registered with network adapters by its address, and do not
// notice when Go unmaps it or puts other pages there.
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

// do runs f on the thread that makes MPI calls.
func (g *group) do(ctx context.Context, f func() error) error {
	return g.fail(g.thread.Do(ctx, f))
}

// fail keeps the first error, after which callers' memory is no longer touched.
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

// begin initializes MPI. A library that does not belong to the launcher silently finds itself
// alone in the world.
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

// exchange carries out one call.
func (g *group) exchange(c *dist.Call) error {
	g.mu.Lock()
	failed := g.failed
	g.mu.Unlock()
	if failed != nil {
		return failed // an abandoned call may still use what follows
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

// Leave finalizes MPI if all is well, which waits for the other ranks. After a failure MPI
// cannot be finalized: launchers end all processes when one exits with a code other than 0.
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

// Exit ends the process. After a run over MPI it calls C's exit: MPICH 5 says goodbye to its
// launcher there, which otherwise kills the other ranks. A process that failed has no one to say
// goodbye to.
func Exit(code int) {
	if state.Load() == finalized {
		leave(code)
	}
	os.Exit(code)
}
