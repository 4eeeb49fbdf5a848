package dist

import (
	"encoding/binary"
	"fmt"
)

// Calls turns a group's calls into calls of one function: what groups that send bytes from
// process to process have in common.
type Calls struct {
	rank, world int
	number      uint32
	exchange    func(c *Call) error
}

// NewCalls returns the calls of a rank; exchange carries out one.
func NewCalls(rank, world int, exchange func(c *Call) error) Calls {
	return Calls{rank: rank, world: world, exchange: exchange}
}

// Call is one call as a rank sees it.
type Call struct {
	rank   int
	number uint32
	kind   byte
	// Send and Recv are what to send to each rank and where to receive from it, nil for a
	// rank with which nothing is exchanged.
	Send, Recv [][]byte
}

// The kinds of calls.
const (
	callAllToAll = iota + 1
	callAllGather
	callBroadcast
)

// Rank implements [Group].
func (c *Calls) Rank() int { return c.rank }

// World implements [Group].
func (c *Calls) World() int { return c.world }

func (c *Calls) make(kind byte, send, recv [][]byte) error {
	c.number++
	return c.exchange(&Call{c.rank, c.number, kind, send, recv})
}

// others returns the parts without this rank's own, and without nil, which means no
// message.
func (c *Calls) others(parts [][]byte) [][]byte {
	list := make([][]byte, c.world)
	for r, b := range parts {
		if list[r] = b; b == nil {
			list[r] = []byte{}
		}
	}
	list[c.rank] = nil
	return list
}

// AllToAll implements [Group].
func (c *Calls) AllToAll(send, recv [][]byte) error {
	if err := check(c.world, send, recv); err != nil {
		return err
	}
	if len(send[c.rank]) != len(recv[c.rank]) {
		return fmt.Errorf("dist: AllToAll: rank %d sends itself %d bytes and expects %d", c.rank, len(send[c.rank]), len(recv[c.rank]))
	}
	copy(recv[c.rank], send[c.rank])
	return c.make(callAllToAll, c.others(send), c.others(recv))
}

// AllGather implements [Group].
func (c *Calls) AllGather(parts [][]byte) error {
	if err := check(c.world, parts); err != nil {
		return err
	}
	return c.make(callAllGather, c.toAll(parts[c.rank]), c.others(parts))
}

// toAll sends the same data to every other rank.
func (c *Calls) toAll(data []byte) [][]byte {
	list := make([][]byte, c.world)
	for r := range list {
		list[r] = data
	}
	return c.others(list)
}

// Broadcast implements [Group].
func (c *Calls) Broadcast(root int, data []byte) error {
	if root < 0 || root >= c.world {
		return fmt.Errorf("dist: Broadcast: rank %d of %d ranks", root, c.world)
	}
	if root == c.rank {
		return c.make(callBroadcast, c.toAll(data), make([][]byte, c.world))
	}
	recv := make([][]byte, c.world)
	if recv[root] = data; data == nil {
		recv[root] = []byte{}
	}
	return c.make(callBroadcast, make([][]byte, c.world), recv)
}

// HeaderBytes is the size of the header that precedes the bytes a rank sends to another in a
// call: the call's number, its kind, and how many bytes follow.
const HeaderBytes = 16

// Header returns the header of what is sent to a rank.
func (c *Call) Header(to int) (h [HeaderBytes]byte) {
	binary.LittleEndian.PutUint32(h[0:], c.number)
	h[4] = c.kind
	binary.LittleEndian.PutUint64(h[8:], uint64(len(c.Send[to])))
	return h
}

// Follow returns how many bytes follow a header.
func Follow(h []byte) int64 { return int64(binary.LittleEndian.Uint64(h[8:])) }

// Check refuses a rank's header that is not the one expected.
func (c *Call) Check(from int, h []byte) error {
	if number := binary.LittleEndian.Uint32(h[0:]); number != c.number || h[4] != c.kind {
		return fmt.Errorf("dist: rank %d makes call %d of kind %d, rank %d call %d of kind %d: they do not run the same program", from, number, h[4], c.rank, c.number, c.kind)
	}
	if n := Follow(h); n != int64(len(c.Recv[from])) {
		return fmt.Errorf("dist: rank %d sends %d bytes in call %d, rank %d expects %d", from, n, c.number, c.rank, len(c.Recv[from]))
	}
	return nil
}

// check refuses the wrong number of parts.
func check(world int, lists ...[][]byte) error {
	for _, parts := range lists {
		if len(parts) != world {
			return fmt.Errorf("dist: %d parts for %d ranks", len(parts), world)
		}
	}
	return nil
}
