package cuda

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// room is where ranks exchange parts of states from card to card: memory, and a stream on which NVIDIA's NCCL
// sends data and the kernels of exchange.cu do the rest, while captured segments run on another stream.
// Nothing on it is captured: between two calls the host checks that the other ranks are still there.
type room struct {
	x       *image
	memory  driver.Ptr // the memory for exchanges, then tables
	stream  driver.Stream
	module  driver.Module
	kernels map[string]driver.Function

	pieces  []pieces
	squares [2]table // of gradients in F32 and of those in BF16
	runs    table
	sums    int64 // of the runs
}

// table is a table on the card: its number of entries, and the blocks of a launch over it.
type table struct {
	at              driver.Ptr
	entries, blocks int
}

// pieces is a table of pieces.
type pieces struct {
	table
	dtype graph.DType // of the states
}

// roomKernels are the kernels that a room uses.
var roomKernels = []string{
	"exchange_take_f32", "exchange_take_bf16", "exchange_take_half", "exchange_take_widened",
	"exchange_give_f32", "exchange_give_bf16", "exchange_give_half", "exchange_give_widened",
	"exchange_add_f32", "exchange_add_bf16", "exchange_send_f32", "exchange_send_bf16", "exchange_order",
	"sum_squares", "sum_squares_bf16", "root_of_sum",
}

const (
	roomThreads = 256
	roomBlock   = 4 * roomThreads // elements per block
)

// Room makes a room for the executable; see [engine.Executable.Room].
func (x *image) Room(u engine.RoomUse) (engine.RoomImage, error) {
	r := &room{x: x}
	if err := r.open(u); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *room) open(u engine.RoomUse) (err error) {
	ctx := r.x.ctx
	if r.stream, err = ctx.NewStream(); err != nil {
		return err
	}
	var all params
	place := func(add func(p *params) int) table {
		all.align(8)
		at := len(all.bytes)
		t := table{at: driver.Ptr(at)}
		t.blocks = add(&all)
		return t
	}
	for _, list := range u.Pieces {
		k := pieces{}
		if len(list) > 0 {
			k.dtype = list[0].State.Type.DType
		}
		k.table = place(func(p *params) (blocks int) {
			for _, q := range list {
				blocks, err = r.piece(p, q, k.dtype, blocks, err)
			}
			return blocks
		})
		k.entries = len(list)
		r.pieces = append(r.pieces, k)
	}
	for i, list := range u.Squares {
		r.squares[i] = place(func(p *params) (blocks int) {
			for _, q := range list {
				if d := q.State.Type.DType; err == nil && d != engine.NormFormats[i] {
					err = fmt.Errorf("gradient %s is %v: its squares cannot be added up with those of %v", q.State.Name, q.State.Type, engine.NormFormats[i])
				}
				p.u64(uint64(r.address(q))).u64(uint64(q.Elems)).u32(blocks).align(8)
				blocks += int(ceil(q.Elems, engine.NormPart))
			}
			return blocks
		})
		r.squares[i].entries = len(list)
	}
	r.runs = place(func(p *params) int {
		for _, q := range u.Runs {
			p.u64(uint64(q.From)).u64(uint64(q.To)).u64(uint64(q.Count))
			r.sums += q.Count
		}
		return len(u.Runs)
	})
	if err != nil {
		return err
	}
	if want := u.RoomTables(); int64(len(all.bytes)) != want {
		return fmt.Errorf("the tables of an exchange have %d bytes, planned were %d", len(all.bytes), want)
	}
	size := ceil(u.Bytes, 256) * 256
	if r.memory, err = r.x.reserve(size + int64(len(all.bytes))); err != nil {
		return err
	}
	tables := r.memory + driver.Ptr(size)
	for i := range r.pieces {
		r.pieces[i].at += tables
	}
	for i := range r.squares {
		r.squares[i].at += tables
	}
	r.runs.at += tables
	if err := r.x.compute.Clear(r.memory, size); err != nil { // gaps between pieces too, as they are added up
		return err
	}
	if err := errors.Join(r.x.upload(tables, all.bytes), r.x.wait()); err != nil {
		return err
	}
	return r.assemble()
}

// piece appends an entry of a table.
func (r *room) piece(p *params, q engine.Piece, dtype graph.DType, blocks int, err error) (int, error) {
	if d := q.State.Type.DType; err == nil && (d != dtype || d.Size() != 2 && d.Size() != 4) {
		err = fmt.Errorf("state %s is %v: it cannot be exchanged with the others of its list", q.State.Name, q.State.Type)
	}
	p.u64(uint64(r.address(q.Part))).u64(uint64(q.At)).u64(uint64(q.Elems)).u32(blocks).align(8)
	return blocks + int(ceil(q.Elems, roomBlock)), err
}

// address is the address of a part of a state.
func (r *room) address(q engine.Part) driver.Ptr {
	return r.x.memory + driver.Ptr(r.x.p.StateAt(q.State)+q.From*q.State.Type.DType.Size())
}

// assemble loads the kernels.
func (r *room) assemble() (err error) {
	if r.module, err = r.x.code.load(r.x.ctx, roomKernels); err != nil {
		return fmt.Errorf("kernels of the exchange: %w", err)
	}
	r.kernels = map[string]driver.Function{}
	for _, name := range roomKernels {
		if r.kernels[name], err = r.module.Function(name); err != nil {
			return err
		}
	}
	return nil
}

// launch queues a kernel, unless it has no blocks.
func (r *room) launch(kernel string, blocks int, p *params) error {
	if blocks == 0 {
		return nil
	}
	if err := r.stream.Launch(r.kernels[kernel], driver.Launch{Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{roomThreads, 1, 1}, Params: p.bytes}); err != nil {
		return fmt.Errorf("exchanging gradients: %w", err)
	}
	return nil
}

func (p *params) place(a driver.Ptr) *params { return p.u64(uint64(a)) }

// at is the address of a place in the room.
func (r *room) at(place int64) driver.Ptr { return r.memory + driver.Ptr(place) }

// suffix is the suffix of kernels' names for a format.
func suffix(format graph.DType) string {
	if format == graph.BF16 {
		return "_bf16"
	}
	return "_f32"
}

// suffix is the suffix of the kernels that copy pieces to a row in a format, and back.
func (k *pieces) suffix(format graph.DType) string {
	switch {
	case k.dtype == graph.BF16 && format == graph.F32:
		return "_widened"
	case k.dtype.Size() == 2: // copied without conversion
		return "_half"
	}
	return suffix(format)
}

// Bind implements [engine.RoomImage].
func (r *room) Bind() error { return r.x.ctx.Bind() }

// Handle implements [engine.RoomImage].
func (r *room) Handle() uintptr { return r.stream.Handle() }

// Done implements [engine.RoomImage].
func (r *room) Done() (bool, error) { return r.stream.Done() }

// Sync implements [engine.RoomImage].
func (r *room) Sync() error {
	if err := r.stream.Sync(); err != nil {
		return fmt.Errorf("exchanging gradients: %w", err)
	}
	return nil
}

// Address implements [engine.RoomImage].
func (r *room) Address(place int64) uintptr { return uintptr(r.at(place)) }

// Take implements [engine.RoomImage].
func (r *room) Take(list int, to int64, format graph.DType, clears bool) error {
	k := &r.pieces[list]
	return r.launch("exchange_take"+k.suffix(format), k.blocks, new(params).place(k.at).u32(k.entries).place(r.at(to)).u32(flag(clears)))
}

// Give implements [engine.RoomImage].
func (r *room) Give(list int, from int64, format graph.DType) error {
	k := &r.pieces[list]
	return r.launch("exchange_give"+k.suffix(format), k.blocks, new(params).place(k.at).u32(k.entries).place(r.at(from)))
}

// Add implements [engine.RoomImage].
func (r *room) Add(sum, sent, stride int64, ranks int, elems int64, format graph.DType, first bool) error {
	p := new(params).place(r.at(sum)).place(r.at(sent)).u64(uint64(stride / format.Size())).u32(ranks).u64(uint64(elems)).u32(flag(first))
	return r.launch("exchange_add"+suffix(format), int(ceil(elems, roomBlock)), p)
}

// Send implements [engine.RoomImage].
func (r *room) Send(sum, to, elems int64, format graph.DType) error {
	return r.launch("exchange_send"+suffix(format), int(ceil(elems, roomBlock)), new(params).place(r.at(sum)).place(r.at(to)).u64(uint64(elems)))
}

// Squares implements [engine.RoomImage].
func (r *room) Squares(to int64) error {
	for i, kernel := range [...]string{"sum_squares", "sum_squares_bf16"} {
		k := &r.squares[i]
		if err := r.launch(kernel, k.blocks, new(params).place(k.at).u32(k.entries).place(r.at(to))); err != nil {
			return err
		}
		to += engine.NormSumBytes * int64(k.blocks)
	}
	return nil
}

// Norm implements [engine.RoomImage].
func (r *room) Norm(from, to int64, state *graph.State) error {
	if err := r.launch("exchange_order", r.runs.blocks, new(params).place(r.runs.at).place(r.at(from)).place(r.at(to))); err != nil {
		return err
	}
	norm := r.address(engine.Part{State: state})
	return r.launch("root_of_sum", 1, new(params).place(r.at(to)).place(norm).u32(int(r.sums)))
}

// Close implements [engine.RoomImage].
func (r *room) Close() error {
	var errs []error
	if r.stream != nil {
		errs = append(errs, r.stream.Sync(), r.stream.Close())
	}
	if r.module != nil {
		errs = append(errs, r.module.Unload())
	}
	if r.memory != 0 {
		errs = append(errs, r.x.ctx.Free(r.memory))
	}
	return errors.Join(errs...)
}
