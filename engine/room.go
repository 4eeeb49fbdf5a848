package engine

import (
	"errors"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// Room is memory of a device, apart from the arena of an [Executable], in which ranks exchange
// parts of its states from device to device. Its work is queued on a stream of its own, while the
// program runs on others: the caller knows when the states can be used. Places are bytes from the
// beginning of the room, multiples of 16. Calls come from one goroutine at a time.
type Room struct {
	RoomImage
	x     *Executable
	lists [][]string // states of each list of pieces
}

// Piece is a part of a state and its place in a row of pieces, in elements: a multiple of
// 4.
type Piece struct {
	Part
	At int64
}

// Run is a run of the partial sums that a norm is made of: where it begins in the order of the
// ranks that made them, and in the order of a single device.
type Run struct{ From, To, Count int64 }

// RoomUse describes the use of a room.
type RoomUse struct {
	Bytes int64
	// Pieces are the lists of pieces to move; the states of one list have one format.
	Pieces [][]Piece
	// Squares are the parts of gradients whose squares this rank adds up for the global norm, by
	// the formats of [NormFormats]; Runs are the partial sums of all ranks, in the order of the
	// ranks.
	Squares [2][]Part
	Runs    []Run
}

// RoomImage is a device's part of a [Room].
type RoomImage interface {
	// Bind makes the device current on the calling thread; Handle is the stream as the vendor's
	// other libraries know it.
	Bind() error
	Handle() uintptr
	// Done reports whether everything queued is done; Sync waits for it.
	Done() (bool, error)
	Sync() error
	// Address returns the address of a place.
	Address(place int64) uintptr
	// Take copies a list of pieces to the row that begins at a place, and may clear them. The row
	// has the given format: the pieces' own or, between F32 and BF16, the other.
	Take(list int, to int64, format graph.DType, clears bool) error
	// Give copies the row back to the pieces.
	Give(list int, from int64, format graph.DType) error
	// Add adds what some ranks have sent to a sum in F32: elems elements (a multiple of 4) from
	// each rank in the format, one stride apart. If first, the first rank's become the sum.
	Add(sum, sent, stride int64, ranks int, elems int64, format graph.DType, first bool) error
	// Send copies a sum, in the format, to the place that it is sent from.
	Send(sum, to, elems int64, format graph.DType) error
	// Squares adds up the squares of this rank's parts, in order. Norm sets a state to the norm
	// that the sums of all ranks make, which begin at a place, with the same bits as the graph's
	// operation.
	Squares(to int64) error
	Norm(from, to int64, state *graph.State) error
	// Close frees the memory.
	Close() error
}

// ErrNoRoom means that a device cannot exchange its memory.
var ErrNoRoom = errors.New("this device cannot exchange its memory with another's")

// Room makes a room for a loaded program. It must be closed before the executable.
func (x *Executable) Room(u RoomUse) (*Room, error) {
	m, ok := x.image.(interface {
		Room(u RoomUse) (RoomImage, error)
	})
	if !ok {
		return nil, ErrNoRoom
	}
	image, err := m.Room(u)
	if err != nil {
		return nil, err
	}
	r := &Room{RoomImage: image, x: x}
	for _, list := range u.Pieces {
		var names []string
		for _, p := range list {
			if !slices.Contains(names, p.State.Name) {
				names = append(names, p.State.Name)
			}
		}
		r.lists = append(r.lists, names)
	}
	return r, nil
}

// Give calls the device's Give after the guard.
func (r *Room) Give(list int, from int64, format graph.DType) error {
	if r.x.guard != nil && len(r.lists[list]) > 0 {
		if err := r.x.guard(r.lists[list]); err != nil {
			return err
		}
	}
	return r.RoomImage.Give(list, from, format)
}

// NormFormats are the formats of gradients, in the order in which a norm is added up from them.
var NormFormats = [2]graph.DType{graph.F32, graph.BF16}

// A norm is added up from sums of NormPart squares each, in float64.
const (
	NormPart     = 16384
	NormSumBytes = 8
)

// RoomTables is the device memory that describes the use, in addition to its Bytes.
func (u *RoomUse) RoomTables() (bytes int64) {
	for _, list := range u.Pieces {
		bytes += pieceBytes * int64(len(list))
	}
	for _, list := range u.Squares {
		bytes += summandBytes * int64(len(list))
	}
	return bytes + runBytes*int64(len(u.Runs))
}

// Bytes of an entry in each table.
const (
	pieceBytes   = 32
	summandBytes = 24
	runBytes     = 24
)
