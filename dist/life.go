package dist

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Signs of life go over separate connections between rank 0 and each other rank, so that
// a rank that computes or waits for long is not taken for lost. Silence is counted in
// ticks of the local clock during which this process was awake: a process that was
// stopped for a while does not take everyone else for lost.
const tick = 500 * time.Millisecond

// Messages on these connections: one byte, which may be followed by a rank and a text.
const (
	alive = 'a'
	bye   = 'b' // this rank leaves, and all is well
	ended = 'e' // rank, text: it ended with an error of its own
	lost  = 'l' // rank, text: it is gone
)

const maxText = 1 << 16

// life watches over the other ranks: rank 0 over all of them, the others over rank 0,
// which passes on what it learns about each.
type life struct {
	rank  int
	conns []net.Conn // by rank; nil: none
	of    []process  // by rank
	limit int        // ticks of silence
	cut   func()     // ends the calls in progress

	mu     sync.Mutex
	missed []int
	gone   []bool // has left, well or not
	left   bool   // this rank has
	err    error  // why the group ended
	broken chan struct{}
	stop   chan struct{}
	all    sync.WaitGroup
}

func watch(o Options, conns []net.Conn, of []process, cut func()) *life {
	l := &life{
		rank: o.Rank, conns: conns, of: of, limit: int((o.Silence + tick - 1) / tick), cut: cut,
		missed: make([]int, o.World), gone: make([]bool, o.World), broken: make(chan struct{}), stop: make(chan struct{}),
	}
	for r, c := range conns {
		if c != nil {
			l.all.Go(func() { l.listen(r, c) })
		}
	}
	l.all.Go(l.beat)
	return l
}

// beat sends signs of life and counts those that did not arrive.
func (l *life) beat() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-l.stop:
			return
		}
		for r, c := range l.conns {
			if c == nil {
				continue
			}
			l.write(c, []byte{alive})
			l.mu.Lock()
			l.missed[r]++
			silent := l.missed[r] > l.limit && !l.gone[r]
			l.mu.Unlock()
			if silent {
				l.end(&LostError{r, "no sign of life for " + (time.Duration(l.limit) * tick).String()})
			}
		}
	}
}

// write sends a message. One that does not get through shows as silence or as the end of
// the connection.
func (l *life) write(c net.Conn, b []byte) {
	_ = c.SetWriteDeadline(time.Now().Add(tick))
	_, _ = c.Write(b)
}

// listen receives the messages of a rank.
func (l *life) listen(r int, c net.Conn) {
	for {
		kind, about, text, err := readMessage(c)
		l.mu.Lock()
		silent := l.missed[r]
		l.missed[r] = 0
		l.gone[r] = l.gone[r] || err == nil && kind == bye
		over := l.gone[r] || l.left
		l.mu.Unlock()
		switch {
		case err != nil && over:
			return
		case err != nil:
			why := "its connection ended (" + err.Error() + ")"
			if silent > 1 { // it may have hung, and been killed by a rank that noticed earlier
				why = "no sign of life for " + (time.Duration(silent) * tick).String() + ", then " + why
			}
			l.end(&LostError{r, why})
			return
		case kind == ended:
			l.end(&EndedError{about, text})
		case kind == lost:
			l.end(&LostError{about, text})
		}
	}
}

func readMessage(r io.Reader) (kind byte, about int, text string, err error) {
	var h [9]byte
	if _, err := io.ReadFull(r, h[:1]); err != nil || h[0] != ended && h[0] != lost {
		return h[0], 0, "", err
	}
	if _, err := io.ReadFull(r, h[1:]); err != nil {
		return 0, 0, "", err
	}
	b := make([]byte, min(binary.LittleEndian.Uint32(h[5:]), maxText))
	_, err = io.ReadFull(r, b)
	return h[0], int(binary.LittleEndian.Uint32(h[1:])), string(b), err
}

func message(kind byte, about int, text string) []byte {
	text = text[:min(len(text), maxText)]
	b := append([]byte{kind}, binary.LittleEndian.AppendUint32(nil, uint32(about))...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...)
}

// end ends the group and passes the reason on; only the first call counts.
func (l *life) end(err error) {
	l.mu.Lock()
	first := l.err == nil && !l.left
	if first {
		l.err = err
		close(l.broken)
	}
	l.mu.Unlock()
	if !first {
		return
	}
	if l.rank == 0 {
		var about int
		var m []byte
		var silent *LostError
		var failed *EndedError
		switch {
		case errors.As(err, &silent):
			about, m = silent.Rank, message(lost, silent.Rank, silent.Why)
		case errors.As(err, &failed):
			about, m = failed.Rank, message(ended, failed.Rank, failed.Text)
		}
		for r, c := range l.conns {
			if c != nil && r != about {
				l.write(c, m)
			}
		}
	}
	var silent *LostError
	if errors.As(err, &silent) {
		l.bury(silent.Rank)
	}
	l.cut()
}

// bury has the process of a lost rank killed, if it is on this machine and no lower rank there is left
// to do so. A process that hangs would hold its memory and its card, and keep its launcher from
// seeing an exit and restarting the run.
func (l *life) bury(lost int) {
	dead := l.of[lost]
	if dead == l.of[l.rank] || dead.Machine != l.of[l.rank].Machine { // ranks of tests share a process
		return
	}
	for r := range l.rank {
		if r != lost && l.of[r].Machine == dead.Machine {
			return
		}
	}
	lostProcesses.Lock()
	lostProcesses.list = append(lostProcesses.list, dead)
	lostProcesses.Unlock()
	time.AfterFunc(lastWords, KillLost)
}

// lastWords is how long a process that has lost another has to say so before it kills that one.
const lastWords = time.Second

// lostProcesses are those that are still to be killed.
var lostProcesses struct {
	sync.Mutex
	list []process
}

// KillLost kills the processes of ranks that were lost on this machine, which otherwise happens a
// second after the loss. A program calls it before it exits, when it has said what happened: some
// launchers end all processes as soon as one is killed, and drop what the others are saying.
func KillLost() {
	lostProcesses.Lock()
	defer lostProcesses.Unlock()
	for _, p := range lostProcesses.list {
		p.kill()
	}
	lostProcesses.list = nil
}

// cause returns why a call with a rank failed: what ended the group, even if the news of
// that is still on the way.
func (l *life) cause(r int, err error) error {
	select {
	case <-l.broken:
	case <-time.After(2 * time.Duration(l.limit) * tick):
		l.end(&LostError{r, "the exchange with it ended (" + err.Error() + ")"})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// leave says goodbye and stops watching.
func (l *life) leave(cause error) {
	l.mu.Lock()
	l.left = true
	was := l.err
	if cause != nil && was == nil { // a call may be in progress
		l.err = &EndedError{l.rank, cause.Error()}
		close(l.broken)
	}
	l.mu.Unlock()
	m := []byte{bye}
	if cause != nil && was == nil {
		m = message(ended, l.rank, cause.Error())
	}
	for _, c := range l.conns {
		if c != nil {
			l.write(c, m)
			_ = c.Close()
		}
	}
	close(l.stop)
	l.all.Wait()
}
