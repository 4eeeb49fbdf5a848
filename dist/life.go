package dist

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Signs of life go over connections of their own between rank 0 and each other
// rank, so that a rank that computes or waits for long is not taken for lost.
// Silence is counted in ticks of the own clock that this process was awake for:
// one that was stopped for a while does not take everybody else for lost.
const tick = 500 * time.Millisecond

// The messages of these connections: one byte, which may be followed by a rank and
// a text.
const (
	alive = 'a'
	bye   = 'b' // this rank leaves, and all is well
	ended = 'e' // rank, text: it ended by an error
	lost  = 'l' // rank, text: it is gone
)

const maxText = 1 << 16

// life watches over the other ranks: rank 0 over all, the others over rank 0, which
// tells them about each other.
type life struct {
	rank  int
	conns []net.Conn // by rank; nil: none
	of    []process  // by rank
	limit int        // ticks of silence
	cut   func()     // ends the calls in hand

	mu     sync.Mutex
	missed []int
	gone   []bool // has left, well or not
	left   bool   // this rank has
	err    error  // what ended the group
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

// beat gives signs of life and counts those that did not come.
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

// write sends a message. One that does not get through is noticed by silence or by
// the end of the connection.
func (l *life) write(c net.Conn, b []byte) {
	_ = c.SetWriteDeadline(time.Now().Add(tick))
	_, _ = c.Write(b)
}

// listen takes the messages of a rank.
func (l *life) listen(r int, c net.Conn) {
	for {
		kind, about, text, err := readMessage(c)
		l.mu.Lock()
		l.missed[r] = 0
		l.gone[r] = l.gone[r] || err == nil && kind == bye
		over := l.gone[r] || l.left
		l.mu.Unlock()
		switch {
		case err != nil && over:
			return
		case err != nil:
			l.end(&LostError{r, "its connection ended (" + err.Error() + ")"})
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

// end ends the group, the first time for whatever reason, and passes that on.
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

// bury ends the process of a rank that was lost, if it is on this machine and no lower rank there is
// left to do that. One that hangs would keep its memory and its card, and its launcher from seeing
// an end and starting the run again.
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
	dead.kill()
}

// cause is why a call with a rank failed: what ended the group, for which the news may
// still be on the way.
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

// leave says goodbye and ends the watch.
func (l *life) leave(cause error) {
	l.mu.Lock()
	l.left = true
	was := l.err
	if cause != nil && was == nil { // a call may be in hand
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
