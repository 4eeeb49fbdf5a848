package train

import (
	"fmt"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/offheap"
)

// exchange adds up the gradients of an update over the ranks, always in the order of
// its micro-batches, so that the sums have the same bits for any number of ranks.
//
// Micro-batch m is computed by rank m modulo the ranks. In each round of one
// micro-batch a rank, each rank gets its shard of every gradient from all of them
// and adds them in their order; in the last, all shards go to everybody. That sends what a
// ring of reduce-scatter and all-gather sends when there is one round. Where ranks share the
// optimizer, the shard stays where it is, and what goes to everybody are the weights that
// its owner has made of it (zero.go).
//
// The fast way has one round an update: each rank has added its own micro-batches up in its
// gradients, and these are added in the order of the ranks.
//
// A bucket of gradients is exchanged as soon as a run has finished with them, while the
// rest of the backward half and the next forward half compute (overlap.go).
//
// Sums are kept in float32. What is sent, to others or to oneself, has the format of wire:
// the shards of each micro-batch, and then the sums.
type exchange struct {
	g          dist.Group
	x          *engine.Executable
	wire       wire
	fast       bool
	buckets    []bucket
	memory     []byte   // that own, others and the sums are part of
	own        []byte   // this rank's gradients of a bucket, by the rank whose shard they are
	others     []byte   // this rank's shard of a bucket, as each rank sent it
	stride     int64    // of the shards in own
	send, recv [][]byte // of a call, by rank
	zero       *zero    // nil: ranks do not share the optimizer
	overlap
}

func newExchange(g dist.Group, x *engine.Executable, w wire, fast bool) (*exchange, error) {
	p, me, world := x.Program(), g.Rank(), int64(g.World())
	if s := p.Shards; s != nil && len(s.Weights) != g.World() {
		return nil, fmt.Errorf("the program divides the optimizer among %d ranks, the group has %d", len(s.Weights), world)
	}
	for _, s := range p.States {
		if s.Role == graph.Gradient && s.Type.DType != graph.F32 {
			return nil, fmt.Errorf("gradient %s is %v: only F32 can be exchanged", s.Name, s.Type)
		}
	}
	e := &exchange{g: g, x: x, wire: w, fast: fast, buckets: bucketsOf(p, g.World()), send: make([][]byte, world), recv: make([][]byte, world)}
	stride, sums := sizes(e.buckets, me, fast)
	others := world * w.bytes(stride)
	var err error
	if e.memory, err = offheap.Allocate(world*stride + others + sums); err != nil {
		return nil, fmt.Errorf("memory to exchange gradients: %w", err)
	}
	e.stride, e.own, e.others = stride, e.memory[:world*stride], e.memory[world*stride:][:others]
	rest := e.memory[world*stride+others:]
	for i := range e.buckets {
		k := &e.buckets[i]
		n := k.floatBytes(me)
		if k.sum = rest[:n]; !fast { // a sum is spread before the next begins
			rest = rest[line(n):]
		}
	}
	if p.Shards != nil {
		e.zero = newZero(p.Shards)
	}
	e.start(p.Buckets())
	return e, nil
}

// shard is the room for a rank's shard of a bucket in own.
func (e *exchange) shard(k *bucket, rank int) []byte {
	return e.own[int64(rank)*e.stride:][:k.floatBytes(rank)]
}

// take copies the gradients of a bucket to own, as they are sent, and clears them.
func (e *exchange) take(k *bucket) error {
	for r, parts := range k.shards {
		b := e.shard(k, r)
		if err := each(parts, b, e.x.ReadPart); err != nil {
			return err
		}
		e.wire.pack(b)
		for _, p := range parts {
			if err := e.clear(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// zeros is what gradients are cleared with, a piece at a time.
var zeros [256 << 10]byte

func (e *exchange) clear(p engine.Part) error {
	for end := p.From + p.Elems; p.From < end; p.From += p.Elems {
		p.Elems = min(end-p.From, int64(len(zeros)/4))
		if err := e.x.WritePart(p, zeros[:4*p.Elems]); err != nil {
			return err
		}
	}
	return nil
}

// add adds what the ranks have taken in a round to the sum of this rank's shard.
func (e *exchange) add(k *bucket, r *round) error {
	me := e.g.Rank()
	for i := range e.send {
		e.send[i], e.recv[i] = nil, nil
		if me < r.computed {
			e.send[i] = e.shard(k, i)[:e.wire.bytes(k.floatBytes(i))]
		}
		if i < r.computed {
			e.recv[i] = e.others[int64(i)*e.wire.bytes(e.stride):][:e.wire.bytes(k.floatBytes(me))]
		}
	}
	if err := e.g.AllToAll(e.send, e.recv); err != nil {
		return err
	}
	for i := range r.computed {
		e.wire.add(k.sum, e.recv[i], r.first && i == 0)
	}
	return nil
}

// spread writes the sums of a bucket to the gradients of every rank or, where ranks share
// the optimizer, to those of their owners.
func (e *exchange) spread(k *bucket) error {
	if e.zero != nil {
		return e.keep(k)
	}
	for r := range e.send {
		e.send[r] = e.shard(k, r)[:e.wire.bytes(k.floatBytes(r))]
	}
	copy(e.send[e.g.Rank()], e.wire.pack(k.sum))
	if err := e.g.AllGather(e.send); err != nil {
		return err
	}
	for r := range e.send {
		e.wire.unpack(e.shard(k, r))
		if err := each(k.shards[r], e.shard(k, r), e.x.WritePart); err != nil {
			return err
		}
	}
	return nil
}

// each calls do with every part and its bytes, which lie one after the other in b.
func each(parts []engine.Part, b []byte, do func(p engine.Part, bytes []byte) error) error {
	for _, p := range parts {
		n := p.Elems * p.State.Type.DType.Size()
		if err := do(p, b[:n:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
