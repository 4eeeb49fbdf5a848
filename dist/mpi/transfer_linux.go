//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"errors"
	"time"

	"github.com/snug-ml/snug/dist"
	"golang.org/x/sys/unix"
)

// slot is room for one message.
type slot struct {
	memory []byte
	request
	size int // of its message
}

// outgoing is what one call sends to a rank.
type outgoing struct {
	peer     int
	slots    [slots]slot
	header   [dist.HeaderBytes]byte
	data     []byte // not in a slot yet
	begun    bool   // the header is in a slot
	started  int    // messages
	underway int    // messages under way
}

func (o *outgoing) begin(c *dist.Call) {
	o.header, o.data, o.begun = c.Header(o.peer), c.Send[o.peer], false
}

func (o *outgoing) over() bool { return o.begun && len(o.data) == 0 && o.underway == 0 }

// step moves the messages on as far as they go, and reports whether any did.
func (o *outgoing) step(g *group) (moved bool, err error) {
	if o.underway > 0 {
		done, err := g.lib.done(&o.slots[(o.started-o.underway)%slots].request)
		if err != nil {
			return false, err
		}
		if done {
			o.underway--
			moved = true
		}
	}
	if o.underway == slots || o.begun && len(o.data) == 0 {
		return moved, nil
	}
	s := &o.slots[o.started%slots]
	n := 0
	if !o.begun {
		n = copy(s.memory, o.header[:])
		o.begun = true
	}
	if err := g.touch(func() {
		k := copy(s.memory[n:], o.data)
		o.data, n = o.data[k:], n+k
	}); err != nil {
		return false, err
	}
	o.started++
	o.underway++
	return true, g.lib.send(&s.request, o.peer, s.memory[:n])
}

// incoming is what one call receives from a rank.
type incoming struct {
	peer     int
	slots    [slots]slot
	call     *dist.Call
	data     []byte // not received yet
	asked    int    // bytes that messages under way will bring
	begun    bool   // the header has been requested
	known    bool   // the header has arrived
	started  int
	underway int
}

func (i *incoming) begin(c *dist.Call) {
	i.call, i.data, i.begun, i.known = c, c.Recv[i.peer], false, false
}

func (i *incoming) over() bool { return i.known && len(i.data) == 0 }

func (i *incoming) step(g *group) (moved bool, err error) {
	if i.underway > 0 {
		s := &i.slots[(i.started-i.underway)%slots]
		done, err := g.lib.done(&s.request)
		if err != nil {
			return false, err
		}
		if done {
			i.underway--
			moved = true
			if err := i.take(g, s); err != nil {
				return false, err
			}
		}
	}
	switch s := &i.slots[i.started%slots]; {
	case !i.begun:
		i.begun = true
		s.size = len(s.memory) // whatever comes first fits
		return true, i.ask(g, s)
	case i.known && i.underway < slots && i.asked < len(i.data):
		s.size = min(len(s.memory), len(i.data)-i.asked)
		i.asked += s.size
		return true, i.ask(g, s)
	}
	return moved, nil
}

func (i *incoming) ask(g *group, s *slot) error {
	i.started++
	i.underway++
	return g.lib.receive(&s.request, i.peer, s.memory[:s.size])
}

// take copies out the contents of a message.
func (i *incoming) take(g *group, s *slot) error {
	b := s.memory[:s.size]
	if i.known {
		i.asked -= s.size
	} else {
		if err := i.call.Check(i.peer, b); err != nil {
			return err
		}
		i.known = true
		b = b[dist.HeaderBytes:]
	}
	return g.touch(func() { i.data = i.data[copy(i.data, b):] })
}

// errOver ends an abandoned call.
var errOver = errors.New("mpi: the call was given up")

// touch runs f, which reads or writes the caller's memory.
func (g *group) touch(f func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil {
		return errOver
	}
	f()
	return nil
}

// Nothing moves unless MPI is called. After spin without progress the thread sleeps between
// calls, which leaves the processor to whatever computes, or to the process that is waited for.
const (
	spin       = 50 * time.Microsecond
	firstSleep = 20 * time.Microsecond
	mostSleep  = 200 * time.Microsecond
)

// explain replaces an MPI error in a call with a rank by its cause.
func (g *group) explain(r int, err error) error {
	if errors.As(err, new(*callError)) {
		return g.met.Cause(r, err)
	}
	return err
}

// run moves messages until all are through or the group has ended.
func (g *group) run(out []*outgoing, in []*incoming) error {
	last, sleep := time.Now(), firstSleep
	for {
		moved, over := false, true
		for _, o := range out {
			if !o.over() {
				over = false
				m, err := o.step(g)
				if err != nil {
					return g.explain(o.peer, err)
				}
				moved = moved || m
			}
		}
		for _, i := range in {
			if !i.over() {
				over = false
				m, err := i.step(g)
				if err != nil {
					return g.explain(i.peer, err)
				}
				moved = moved || m
			}
		}
		switch {
		case over:
			return nil
		case moved:
			last, sleep = time.Now(), firstSleep
			continue
		}
		select {
		case <-g.ended:
			return g.met.Cause(g.Rank(), errOver)
		default:
		}
		if time.Since(last) > spin {
			// Go's timers are no finer than a millisecond where nothing else runs.
			t := unix.NsecToTimespec(int64(sleep))
			_ = unix.Nanosleep(&t, nil) // a signal may end it early
			sleep = min(2*sleep, mostSleep)
		}
	}
}
