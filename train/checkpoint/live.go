package checkpoint

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Live are tensors that go on changing while a save writes them: those of a program that
// trains. An engine.Executable is one.
type Live interface {
	// Guard sets who is asked before tensors change, by their names; they change once it
	// has returned nil.
	Guard(before func(names []string) error)
	// Peek copies a part of a tensor from any goroutine, while others change.
	Peek(name string, from int64, dst []byte) error
}

// capture is the state of live tensors at one moment, without a second copy of them: what
// the writer has not read when it is about to change is staged, and where the staging
// buffer is full the change waits for the writer. It is the guard of the tensors.
//
// The writer never waits for an update, so that there is always progress.
type capture struct {
	live    Live
	mu      sync.Mutex
	moved   *sync.Cond // a piece was read, room was given back, or the phase has changed
	staging *staging
	tensors map[string]*held
	phase   phase
	changed bool // a tensor has: what was read cannot be read again
	held    time.Duration
	total   *atomic.Int64 // nanoseconds of all captures
}

type phase int

const (
	writing phase = iota // an attempt is under way, or about to begin
	paused               // between two attempts: nothing holds training up
	over
)

// held is a tensor of a capture.
type held struct {
	name   string
	bytes  int64
	pieces []piece
}

// piece is a part of a tensor, of pieceBytes but for the last.
type piece struct {
	state pieceState
	at    int64 // in the staging buffer
}

type pieceState uint8

const (
	unread pieceState = iota
	read
	staged
	zeros // it was staged, and needs no room: gradients between two updates
)

func newCapture(live Live, s *staging, total *atomic.Int64) *capture {
	c := &capture{live: live, staging: s, tensors: map[string]*held{}, total: total}
	c.moved = sync.NewCond(&c.mu)
	return c
}

// add makes a tensor part of the capture.
func (c *capture) add(name string, bytes int64) *held {
	t := &held{name: name, bytes: bytes, pieces: make([]piece, (bytes+pieceBytes-1)/pieceBytes)}
	c.tensors[name] = t
	return t
}

// reserve makes the staging buffer ready for the tensors.
func (c *capture) reserve() error {
	sizes := make([]int64, 0, len(c.tensors))
	largest := int64(0)
	for _, t := range c.tensors {
		sizes = append(sizes, t.bytes)
		largest = max(largest, t.bytes)
	}
	if err := c.staging.resize(StagingBytes(sizes...)); err != nil {
		return err
	}
	c.staging.reset(min(rounded(largest), pieceBytes))
	return nil
}

// size is that of piece i.
func (t *held) size(i int) int { return int(min(pieceBytes, t.bytes-int64(i)*pieceBytes)) }

// change is the guard: it returns when the tensors may change.
func (c *capture) change(names []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == over {
		return nil
	}
	began := time.Now()
	defer func() {
		took := time.Since(began)
		c.held += took
		c.total.Add(int64(took))
	}()
	for _, name := range names {
		t := c.tensors[name]
		if t == nil {
			continue
		}
		c.changed = true
		for i := range t.pieces {
			if err := c.keep(t, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep stages a piece that was not read yet, once there is room, unless the writer comes
// first.
func (c *capture) keep(t *held, i int) error {
	p, n := &t.pieces[i], t.size(i)
	for c.phase == writing && p.state == unread {
		at, ok := c.staging.take(n)
		if !ok {
			c.moved.Wait()
			continue
		}
		dst := c.staging.bytes(at, n)
		if err := c.live.Peek(t.name, int64(i)*pieceBytes, dst); err != nil {
			c.staging.give(at, n)
			return fmt.Errorf("checkpoint: %s: %w", t.name, err)
		}
		if allZero(dst) {
			c.staging.give(at, n)
			p.state = zeros
			continue
		}
		p.state, p.at = staged, at
	}
	return nil
}

// read is piece i of a tensor as it was at the moment of the capture, valid until it is
// called again. Only the writer calls it.
func (c *capture) read(t *held, i int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, n := &t.pieces[i], t.size(i)
	data := c.staging.piece[:n]
	switch p.state {
	case unread:
		if err := c.live.Peek(t.name, int64(i)*pieceBytes, data); err != nil {
			return nil, err
		}
	case staged:
		copy(data, c.staging.bytes(p.at, n))
		c.staging.give(p.at, n)
	case zeros:
		clear(data)
	case read:
		panic("checkpoint: a piece of " + t.name + " is read twice") // an attempt reads each once
	}
	p.state = read
	c.moved.Broadcast()
	return data, nil
}

// begin lets an attempt begin; false if the tensors have changed since the last one, so
// that there is nothing left to write.
func (c *capture) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == writing {
		return true
	}
	if c.changed {
		return false
	}
	for _, t := range c.tensors {
		clear(t.pieces)
	}
	c.phase = writing
	return true
}

// end lets go of the tensors: until the next attempt, or for good.
func (c *capture) end(p phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = p
	c.moved.Broadcast()
}

// waited is how long changes were held up so far.
func (c *capture) waited() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// allZero reports whether every byte is 0.
func allZero(data []byte) bool {
	for ; len(data) >= 64; data = data[64:] {
		any := uint64(0)
		for i := 0; i < 64; i += 8 {
			any |= binary.LittleEndian.Uint64(data[i:])
		}
		if any != 0 {
			return false
		}
	}
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}
