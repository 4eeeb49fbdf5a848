package dist

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options determine how the ranks of a group over TCP find each other.
type Options struct {
	Rank, World int
	// Address is rank 0's address, host:port. Listener is rank 0's listener, if one was
	// opened for it; nil: it listens on Address.
	Address  string
	Listener net.Listener
	// Token is a secret of the run: a process that does not know it is turned away. It is
	// no protection on a network that others can read.
	Token string
	// Asked is what this process was asked to do, by name. Ranks for which it differs are
	// refused.
	Asked map[string]string
	// Meet is how long the ranks may take to find each other, 0: five minutes. Silence is
	// how long a rank may give no sign of life, 0: seven seconds.
	Meet, Silence time.Duration
}

const (
	// Meet is the default time that ranks wait for each other.
	Meet = 5 * time.Minute
	// Silence is the default time that a rank may give no sign of life.
	Silence = 7 * time.Second
)

// mesh is a group with a connection between every two ranks, and a further one from each
// rank to rank 0 for signs of life.
type mesh struct {
	Calls
	peers []net.Conn // nil for this rank
	life  *life
	left  sync.Once
	err   error // of leaving
}

// greeting is the first message on a connection, one line of JSON.
type greeting struct {
	Snug  int    `json:"snug"` // version of the protocol
	Token string `json:"token"`
	For   string `json:"for"` // life, data
	Rank  int    `json:"rank"`
	World int    `json:"world"`
	// For connections for signs of life:
	Address string            `json:"address,omitempty"` // of the rank's own listener
	Process process           `json:"process,omitzero"`
	Asked   map[string]string `json:"asked,omitempty"`
}

// answer is rank 0's answer to a greeting on a connection for signs of life.
type answer struct {
	Refused   string    `json:"refused,omitempty"`
	Addresses []string  `json:"addresses,omitempty"` // by rank
	Processes []process `json:"processes,omitempty"` // by rank
}

const (
	protocol    = 2
	maxGreeting = 1 << 20
)

// Open joins the group and returns once all ranks have joined.
func Open(ctx context.Context, o Options) (Group, error) {
	if o.World < 1 || o.Rank < 0 || o.Rank >= o.World {
		return nil, fmt.Errorf("rank %d of %d ranks: want a rank from 0 to one below their number", o.Rank, o.World)
	}
	if o.Meet == 0 {
		o.Meet = Meet
	}
	if o.Silence == 0 {
		o.Silence = Silence
	}
	ctx, cancel := context.WithTimeout(ctx, o.Meet)
	defer cancel()
	m := &mesh{peers: make([]net.Conn, o.World)}
	m.Calls = NewCalls(o.Rank, o.World, m.exchange)
	var conns []net.Conn
	var processes []process
	var err error
	if o.Rank == 0 {
		conns, processes, err = m.host(ctx, o)
	} else {
		conns, processes, err = m.join(ctx, o)
	}
	if err != nil {
		for _, c := range append(conns, m.peers...) {
			if c != nil {
				_ = c.Close() // the group never came about
			}
		}
		return nil, err
	}
	m.life = watch(o, conns, processes, m.cut)
	return m, nil
}

// host waits for the other ranks at rank 0 and sends them each other's addresses.
func (m *mesh) host(ctx context.Context, o Options) (lives []net.Conn, processes []process, err error) {
	l := o.Listener
	if l == nil {
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", o.Address); err != nil {
			return nil, nil, fmt.Errorf("rank 0 cannot listen on %s: %w", o.Address, err)
		}
	}
	door := open(ctx, l, o)
	defer door.close()
	lives = make([]net.Conn, o.World)
	addresses := make([]string, o.World)
	processes = make([]process, o.World)
	processes[0] = self()
	for missing := o.World - 1; missing > 0; missing-- {
		c, err := door.next("life", lives)
		if err != nil {
			return lives, nil, err
		}
		r := c.hello.Rank
		lives[r], addresses[r], processes[r] = c.Conn, c.hello.Address, c.hello.Process
		if err := otherwise(r, c.hello.Asked, o.Asked); err != nil {
			for _, c := range lives { // all of them end with the error that is theirs to fix
				if c != nil {
					_ = writeLine(c, answer{Refused: err.Error()}) // it may be gone
				}
			}
			return lives, nil, err
		}
	}
	for r, c := range lives {
		if c != nil {
			if err := writeLine(c, answer{Addresses: addresses, Processes: processes}); err != nil {
				return lives, nil, fmt.Errorf("rank %d: %w", r, err)
			}
		}
	}
	return lives, processes, m.accept(door, o.World-1)
}

// AskedError reports ranks that were asked to do different things.
type AskedError struct{ Text string }

func (e *AskedError) Error() string { return e.Text }

// otherwise refuses a rank that was asked to do something other than rank 0.
func otherwise(rank int, asked, of0 map[string]string) error {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(merged(asked, of0))) {
		switch here, has := asked[name]; {
		case has && of0[name] == "":
			texts = append(texts, fmt.Sprintf("rank %d was started with %s %s, rank 0 without", rank, name, here))
		case !has:
			texts = append(texts, fmt.Sprintf("rank 0 was started with %s %s, rank %d without", name, of0[name], rank))
		case here != of0[name]:
			texts = append(texts, fmt.Sprintf("rank %d was started with %s %s, rank 0 with %s", rank, name, here, of0[name]))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return &AskedError{strings.Join(texts, "; ") + ": start all processes with the same arguments"}
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

// join connects to rank 0, learns the others' addresses, and connects to those of lower
// rank; ranks above connect to this one.
func (m *mesh) join(ctx context.Context, o Options) (lives []net.Conn, processes []process, err error) {
	hello := greeting{Snug: protocol, Token: o.Token, For: "life", Rank: o.Rank, World: o.World, Process: self(), Asked: o.Asked}
	life, err := reach(ctx, o.Address)
	if err != nil {
		return nil, nil, fmt.Errorf("rank %d does not reach rank 0 at %s: %w", o.Rank, o.Address, err)
	}
	lives = make([]net.Conn, o.World)
	lives[0] = life
	// The address from which this rank reaches rank 0 is one that other ranks can reach.
	host, _, err := net.SplitHostPort(life.LocalAddr().String())
	if err != nil {
		return lives, nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return lives, nil, err
	}
	door := open(ctx, l, o)
	defer door.close()
	hello.Address = l.Addr().String()
	var a answer
	if err := errors.Join(writeLine(life, hello), readLine(ctx, life, &a)); err != nil {
		return lives, nil, fmt.Errorf("rank %d waits for the other ranks: %w", o.Rank, err)
	}
	if a.Refused != "" || len(a.Addresses) != o.World || len(a.Processes) != o.World {
		return lives, nil, fmt.Errorf("rank 0 at %s refuses rank %d: %s", o.Address, o.Rank, a.Refused)
	}
	a.Addresses[0] = o.Address
	for r := range o.Rank {
		c, err := reach(ctx, a.Addresses[r])
		if err != nil {
			return lives, nil, fmt.Errorf("rank %d does not reach rank %d at %s: %w", o.Rank, r, a.Addresses[r], err)
		}
		m.peers[r] = c
		if err := writeLine(c, greeting{Snug: protocol, Token: o.Token, For: "data", Rank: o.Rank, World: o.World}); err != nil {
			return lives, nil, err
		}
	}
	return lives, a.Processes, m.accept(door, o.World-1-o.Rank)
}

// accept takes the data connections of the given number of ranks.
func (m *mesh) accept(d *door, ranks int) error {
	for range ranks {
		c, err := d.next("data", m.peers)
		if err != nil {
			return err
		}
		m.peers[c.hello.Rank] = c.Conn
	}
	return nil
}

// door accepts connections while ranks meet.
type door struct {
	ctx   context.Context
	l     net.Listener
	o     Options
	came  chan visitor
	later []visitor // with another purpose than the one awaited
}

type visitor struct {
	net.Conn
	hello greeting
}

func open(ctx context.Context, l net.Listener, o Options) *door {
	d := &door{ctx: ctx, l: l, o: o, came: make(chan visitor)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			go d.greet(c)
		}
	}()
	return d
}

// greet reads the greeting of a connection, and closes the connection if it is not from a
// rank.
func (d *door) greet(c net.Conn) {
	v := visitor{Conn: c}
	if err := readLine(d.ctx, c, &v.hello); err != nil || subtle.ConstantTimeCompare([]byte(v.hello.Token), []byte(d.o.Token)) == 0 {
		_ = c.Close() // a stranger learns nothing
		return
	}
	refuse := ""
	switch h := &v.hello; {
	case h.Snug != protocol:
		refuse = fmt.Sprintf("it speaks version %d of the protocol, this snug %d: run the same version of snug everywhere", h.Snug, protocol)
	case h.World != d.o.World:
		refuse = fmt.Sprintf("it says there are %d ranks, rank %d says %d", h.World, d.o.Rank, d.o.World)
	case h.Rank <= d.o.Rank || h.Rank >= h.World:
		refuse = fmt.Sprintf("there is no rank %d to wait for", h.Rank)
	}
	if refuse != "" {
		_ = writeLine(c, answer{Refused: refuse}) // it may be gone
		_ = c.Close()
		return
	}
	select {
	case d.came <- v:
	case <-d.ctx.Done():
		_ = c.Close()
	}
}

// next returns the next visitor with a purpose from a rank that have does not hold yet.
func (d *door) next(purpose string, have []net.Conn) (visitor, error) {
	for i := 0; ; i++ {
		var v visitor
		if i < len(d.later) {
			if v = d.later[i]; v.hello.For != purpose {
				continue
			}
			d.later = append(d.later[:i:i], d.later[i+1:]...)
		} else {
			select {
			case v = <-d.came:
			case <-d.ctx.Done():
				return v, fmt.Errorf("%w: %s", d.ctx.Err(), d.missing(have))
			}
			if v.hello.For != purpose {
				d.later = append(d.later, v)
				continue
			}
		}
		if have[v.hello.Rank] != nil {
			err := fmt.Errorf("two processes say that they are rank %d of %d", v.hello.Rank, d.o.World)
			_ = writeLine(v, answer{Refused: err.Error()}) // it may be gone
			return v, errors.Join(err, v.Close())
		}
		return v, nil
	}
}

func (d *door) missing(have []net.Conn) string {
	var ranks []int
	for r := d.o.Rank + 1; r < d.o.World; r++ {
		if have[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return fmt.Sprintf("rank %d waited %v for ranks %v of %d, which did not come", d.o.Rank, d.o.Meet, ranks, d.o.World)
}

func (d *door) close() {
	_ = d.l.Close() // no one is expected any more
	for _, v := range d.later {
		_ = v.Close()
	}
}

// reach connects to an address on which the other rank may not listen yet.
func reach(ctx context.Context, address string) (net.Conn, error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// readLine reads a line byte by byte, so that it takes nothing after it.
func readLine(ctx context.Context, c net.Conn, v any) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // wakes the reader
	defer stop()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if b[0] == '\n' {
			break
		}
		if line = append(line, b[0]); len(line) > maxGreeting {
			return fmt.Errorf("a line of more than %d bytes", maxGreeting)
		}
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// Ended implements [Watched].
func (m *mesh) Ended() <-chan struct{} { return m.life.broken }

// Cause implements [Watched].
func (m *mesh) Cause(r int, err error) error { return m.life.cause(r, err) }

// send writes this rank's part of a call for another rank.
func (m *mesh) send(c *Call, to int) error {
	h := c.Header(to)
	b := net.Buffers{h[:], c.Send[to]}
	if _, err := b.WriteTo(m.peers[to]); err != nil {
		return m.life.cause(to, err)
	}
	return nil
}

// receive reads another rank's part of a call.
func (m *mesh) receive(c *Call, from int) error {
	var h [HeaderBytes]byte
	if _, err := io.ReadFull(m.peers[from], h[:]); err != nil {
		return m.life.cause(from, err)
	}
	if err := c.Check(from, h[:]); err != nil {
		// Both ranks may be writing what the other does not want, and neither ends before it is through.
		_, _ = io.CopyN(io.Discard, m.peers[from], Follow(h[:]))
		return err
	}
	if _, err := io.ReadFull(m.peers[from], c.Recv[from]); err != nil {
		return m.life.cause(from, err)
	}
	return nil
}

// exchange sends to and receives from all other ranks at once.
func (m *mesh) exchange(c *Call) error {
	errs := make([]error, 2*len(m.peers))
	var all sync.WaitGroup
	for r := range m.peers {
		if c.Send[r] != nil {
			all.Go(func() { errs[2*r] = m.send(c, r) })
		}
		if c.Recv[r] != nil {
			all.Go(func() { errs[2*r+1] = m.receive(c, r) })
		}
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others follow from it or are the same
		}
	}
	return nil
}

// cut ends all calls in progress.
func (m *mesh) cut() {
	for _, c := range m.peers {
		if c != nil {
			_ = c.Close() // wakes readers and writers
		}
	}
}

func (m *mesh) Leave(cause error) error {
	m.left.Do(func() {
		m.life.leave(cause)
		for _, c := range m.peers {
			if c != nil {
				if err := c.Close(); !errors.Is(err, net.ErrClosed) {
					m.err = errors.Join(m.err, err)
				}
			}
		}
	})
	return m.err
}
