package dist

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
)

// InProcess is a group of goroutines of one process, for a run of one rank and for tests.
func InProcess(world int) []Group {
	m := &meeting{calls: make([]call, world), over: make(chan struct{})}
	m.turn.L = &m.mu
	groups := make([]Group, world)
	for r := range groups {
		groups[r] = &member{m, r}
	}
	return groups
}

// meeting is where the goroutines exchange the arguments of their calls.
type meeting struct {
	mu      sync.Mutex
	turn    sync.Cond
	calls   []call
	arrived int
	round   int
	ended   error // why no call can succeed any more
	over    chan struct{}
	left    []bool
}

// call is the arguments of one rank's call.
type call struct {
	name       string
	send, recv [][]byte
}

type member struct {
	*meeting
	rank int
}

func (g *member) Rank() int  { return g.rank }
func (g *member) World() int { return len(g.calls) }

var errLeft = errors.New("dist: a rank has left the group")

// meet waits for the calls of all ranks. The last to arrive checks and copies for all of
// them.
func (g *member) meet(c call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended != nil {
		return g.ended
	}
	g.calls[g.rank] = c
	if g.arrived++; g.arrived < len(g.calls) {
		for round := g.round; g.round == round && g.ended == nil; {
			g.turn.Wait()
		}
		return g.ended
	}
	g.end(g.exchange())
	g.arrived = 0
	g.round++
	g.turn.Broadcast()
	return g.ended
}

// end ends the group if there is an error, keeping the first.
func (m *meeting) end(err error) {
	if m.ended = err; err != nil {
		close(m.over)
	}
}

// Ended implements [Watched].
func (g *member) Ended() <-chan struct{} { return g.over }

// Cause implements [Watched].
func (g *member) Cause(_ int, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.ended, err)
}

func (m *meeting) exchange() error {
	for to := range m.calls {
		for from := range m.calls {
			a, b := &m.calls[from], &m.calls[to]
			if a.name != b.name {
				return fmt.Errorf("dist: rank %d calls %s, rank %d %s", from, a.name, to, b.name)
			}
			if len(a.send[to]) != len(b.recv[from]) {
				return fmt.Errorf("dist: %s: rank %d sends %d bytes to rank %d, which expects %d", a.name, from, len(a.send[to]), to, len(b.recv[from]))
			}
			copy(b.recv[from], a.send[to])
		}
	}
	return nil
}

func (g *member) AllToAll(send, recv [][]byte) error {
	if err := check(len(g.calls), send, recv); err != nil {
		return err
	}
	return g.meet(call{"AllToAll", send, recv})
}

func (g *member) AllGather(parts [][]byte) error {
	if err := check(len(g.calls), parts); err != nil {
		return err
	}
	send := make([][]byte, len(parts))
	for r := range send {
		send[r] = parts[g.rank]
	}
	return g.meet(call{"AllGather", send, parts})
}

func (g *member) Broadcast(root int, data []byte) error {
	c := call{fmt.Sprint("Broadcast from ", root), make([][]byte, len(g.calls)), make([][]byte, len(g.calls))}
	if g.rank == root {
		for r := range c.send {
			c.send[r] = data
		}
	}
	c.recv[root] = data
	return g.meet(c)
}

func (g *member) Leave(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left == nil {
		g.left = make([]bool, len(g.calls))
	}
	if !g.left[g.rank] && g.ended == nil {
		switch {
		case cause != nil:
			g.end(&EndedError{g.rank, cause.Error()})
		case g.arrived > 0:
			g.end(errLeft)
		}
		g.turn.Broadcast()
	}
	g.left[g.rank] = true
	return nil
}
