package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
)

// This file runs the kernels with which cards exchange gradients. They run beside a program, in its room, so no
// conformance case launches them. NCCL has no part in it: what other ranks would have sent is written into the
// room.

// wrote is what a kernel wrote.
type wrote struct {
	what  string
	bytes []byte
}

// Ranks' sums, for Add and Send; elements are a multiple of four, and no whole number of blocks.
const (
	ranks  = 3
	summed = 2300
	stride = 2304
)

// The states have more elements than a block processes. The parts that are exchanged do not touch, are no whole
// number of fours, and have a place in the row that is not theirs in the state.
const (
	elements = 2600
	row      = 2564 // elements
)

var parts = []struct{ from, elems, at int64 }{{0, 1031, 1520}, {1036, 1517, 0}}

// moves are the formats of a state and of the row that it is moved to: each pair that has kernels of its own, and
// both formats of 16 bits.
var moves = []struct{ state, row graph.DType }{
	{graph.F32, graph.F32}, {graph.F32, graph.BF16}, {graph.BF16, graph.BF16}, {graph.F16, graph.F16}, {graph.BF16, graph.F32},
}

// The gradients whose norm is computed, by their formats: two blocks of squares for F32 and for BF16.
const squares = 20000

// runs are the order of a single card for the four sums of squares.
var runs = []engine.Run{{From: 0, To: 2, Count: 2}, {From: 2, To: 0, Count: 2}}

// Places in the room, in bytes.
const (
	rowAt  = 0
	sentAt = rowAt + 4*row
	sumAt  = sentAt + 4*ranks*stride
	toAt   = sumAt + 4*summed
	doneAt = toAt + 4*summed
	orders = doneAt + engine.NormSumBytes*4
	room   = orders + engine.NormSumBytes*4
)

// special are numbers that conversions treat differently from others.
var special = []float32{
	float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, 0, float32(math.Copysign(0, -1)), 0x1p-149, 0x1p-130,
	1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-23, // between two neighbors in BF16
}

// drawn are n elements in a format, with the special ones first if that is asked for.
func drawn(seed uint64, d graph.DType, n int, specials bool) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	if specials {
		copy(x, special)
	}
	t := engine.Tensor{Type: graph.T(d, n), Data: make([]byte, int64(n)*d.Size())}
	t.SetFloats(x)
	return t.Data
}

// Names of states: those that are moved, by their format, and the gradients.
func moved(d graph.DType) string    { return "moved_" + d.String() }
func gradient(d graph.DType) string { return "gradient_" + d.String() }

// exchange uses every kernel of a room on a device, and returns what they wrote.
func (d *device) exchange() (done []wrote, err error) {
	defer kernels.Use(d.set)()
	b := graph.NewBuilder("exchange")
	state := func(name string, t graph.Type) *graph.State {
		s := &graph.State{Name: name, Type: t}
		b.Output(name, b.State(s))
		return s
	}
	use := engine.RoomUse{Bytes: room, Runs: runs}
	lists := map[graph.DType]int{}
	for _, format := range []graph.DType{graph.F32, graph.BF16, graph.F16} {
		s := state(moved(format), graph.T(format, elements))
		var list []engine.Piece
		for _, p := range parts {
			list = append(list, engine.Piece{Part: engine.Part{State: s, From: p.from, Elems: p.elems}, At: p.at})
		}
		lists[format] = len(use.Pieces)
		use.Pieces = append(use.Pieces, list)
	}
	for i, format := range engine.NormFormats {
		s := state(gradient(format), graph.T(format, squares))
		use.Squares[i] = []engine.Part{{State: s, Elems: squares}}
	}
	norm := state(engine.StateNorm, graph.T(graph.F32))
	traits := d.on.Traits()
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &traits}, b.F)
	if err != nil {
		return nil, err
	}
	x, err := p.Load(d.on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	r, err := x.Room(use)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	e := &exchanging{x: x, r: r}
	if e.stream, err = d.ctx.NewStream(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stream.Close()) }()
	if e.host, err = d.ctx.AllocHost(room); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.ctx.FreeHost(e.host)) }()
	for _, m := range moves {
		e.move(m.state, m.row, lists[m.state])
	}
	for _, format := range []graph.DType{graph.F32, graph.BF16} {
		e.add(format)
	}
	e.norm(norm)
	return e.done, e.err
}

// exchanging is a room in use. After an error it does nothing more.
type exchanging struct {
	x      *engine.Executable
	r      *engine.Room
	stream driver.Stream
	host   []byte
	done   []wrote
	err    error
}

func (e *exchanging) try(f func() error) {
	if e.err == nil {
		e.err = f()
	}
}

// write puts bytes at a place, as a message that has arrived.
func (e *exchanging) write(place int64, data []byte) {
	e.try(func() error {
		copy(e.host, data)
		return errors.Join(e.stream.CopyIn(driver.Ptr(e.r.Address(place)), e.host[:len(data)]), e.stream.Sync())
	})
}

// keep waits for the room, and keeps what is at a place.
func (e *exchanging) keep(what string, place, size int64) {
	e.try(func() error {
		err := errors.Join(e.r.Sync(), e.stream.CopyOut(e.host[:size], driver.Ptr(e.r.Address(place))), e.stream.Sync())
		e.done = append(e.done, wrote{what, bytes.Clone(e.host[:size])})
		return err
	})
}

// keepState waits for the room, and keeps a state.
func (e *exchanging) keepState(what, name string) {
	e.try(func() error {
		if err := e.r.Sync(); err != nil {
			return err
		}
		t, err := e.x.State(name)
		e.done = append(e.done, wrote{what, t.Data})
		return err
	})
}

// move takes pieces to the row and gives them back.
func (e *exchanging) move(state, format graph.DType, list int) {
	what := fmt.Sprintf("%v as %v", state, format)
	e.write(rowAt, make([]byte, 4*row))
	e.try(func() error { return e.x.WriteState(moved(state), drawn(1, state, elements, true)) })
	e.try(func() error { return e.r.Take(list, rowAt, format, false) })
	e.keep("take "+what, rowAt, row*format.Size())
	e.keepState("leave "+what, moved(state))
	e.try(func() error { return e.r.Take(list, rowAt, format, true) })
	e.keepState("clear "+what, moved(state))
	e.try(func() error { return e.r.Give(list, rowAt, format) })
	e.keepState("give "+what, moved(state))
}

// add adds up what ranks have sent, twice, and prepares the sum for sending.
func (e *exchanging) add(format graph.DType) {
	size := format.Size()
	for i := range 2 {
		e.write(sentAt, drawn(uint64(2+i), format, ranks*stride, i == 1))
		e.try(func() error { return e.r.Add(sumAt, sentAt, stride*size, ranks, summed, format, i == 0) })
		e.keep(fmt.Sprintf("add %v, %d", format, i), sumAt, 4*summed)
	}
	e.try(func() error { return e.r.Send(sumAt, toAt, summed, format) })
	e.keep(fmt.Sprintf("send %v", format), toAt, summed*size)
}

// norm adds up squares, and computes the norm.
func (e *exchanging) norm(norm *graph.State) {
	for i, format := range engine.NormFormats {
		e.try(func() error {
			return e.x.WriteState(gradient(format), drawn(uint64(4+i), format, squares, false))
		})
	}
	e.try(func() error { return e.r.Squares(doneAt) })
	e.keep("squares", doneAt, engine.NormSumBytes*4)
	e.try(func() error { return e.r.Norm(doneAt, orders, norm) })
	e.keep("order", orders, engine.NormSumBytes*4)
	e.keepState("norm", norm.Name)
}

// compareExchange runs the kernels of the exchange of both compilers, which must write the same bits: they copy,
// convert and add. ran are those of the other set that ran.
func compareExchange(card driver.Card, other *kernels.Set) (ran map[string]bool, err error) {
	var done [2][]wrote
	for i, set := range []*kernels.Set{kernels.Embedded, other} {
		d, err := newDevice(card, set)
		if err != nil {
			return nil, err
		}
		done[i], err = d.exchange()
		if err = errors.Join(err, d.ctx.Close()); err != nil {
			return nil, fmt.Errorf("the exchange on %s: %w", card.Name, err)
		}
		ran = d.ran
	}
	var wrong []error
	for i, ours := range done[0] {
		if theirs := done[1][i]; !bytes.Equal(ours.bytes, theirs.bytes) {
			at := 0
			for ours.bytes[at] == theirs.bytes[at] {
				at++
			}
			wrong = append(wrong, fmt.Errorf("the exchange on %s: %s: not the bits of clang's kernels, from byte %d of %d on", card.Name, ours.what, at, len(ours.bytes)))
		}
	}
	return ran, errors.Join(wrong...)
}
