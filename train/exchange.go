package train

import (
	"fmt"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/offheap"
)

// bucketBytes is about how much of the gradients is exchanged at a time: large enough
// for full bandwidth, small enough to need little memory.
const bucketBytes = 25 << 20

// exchange adds up the gradients of an update over the ranks, always in the order of
// its micro-batches, so that the sums have the same bits for any number of ranks.
//
// Micro-batch m is computed by rank m modulo the ranks. After each round of one
// micro-batch a rank, each rank gets its shard of every gradient from all of them
// and adds them in their order; after the last, all shards go to everybody. That sends what a
// ring of reduce-scatter and all-gather sends when there is one round. Where ranks share the
// optimizer, the shard stays where it is, and what goes to everybody are the weights that
// its owner has made of it (zero.go).
//
// Sums are kept in float32. What is sent, to others or to oneself, has the format of wire:
// the shards of each micro-batch, and then the sums.
type exchange struct {
	g       dist.Group
	x       *engine.Executable
	wire    wire
	buckets []bucket
	memory  []byte // that own, others and the sums are part of
	own     []byte // this rank's gradients of a bucket, by the rank whose shard they are
	others  []byte // this rank's shard of a bucket, as each rank sent it
	stride  int64  // of the shards in own
	zero    *zero  // nil: ranks do not share the optimizer
}

// bucket is some of the gradients: shards of about one size.
type bucket struct {
	shards [][]engine.Part // by rank
	elems  []int64         // of each
	bytes  int64           // of all, in float32
	sum    []byte          // of this rank's shard
}

// floatBytes is the size of a shard's gradients.
func (k *bucket) floatBytes(rank int) int64 { return 4 * k.elems[rank] }

// shardsOf are the parts of the program's gradients that ranks add up.
func shardsOf(p *engine.Program, world int) [][]engine.Part {
	if p.Shards == nil {
		var gradients []*graph.State
		for _, s := range p.States {
			if s.Role == graph.Gradient {
				gradients = append(gradients, s)
			}
		}
		const line = 16 // elements
		return engine.Divide(gradients, world, func(*graph.State) engine.Grain { return engine.Grain{Elems: line, Bytes: 4} })
	}
	shards := make([][]engine.Part, world)
	for r, parts := range p.Shards.Weights {
		for _, w := range parts {
			shards[r] = append(shards[r], engine.Part{State: p.State(engine.Gradient + w.State.Name), From: w.From, Elems: w.Elems})
		}
	}
	return shards
}

// bucketsOf are the program's gradients in buckets that have about the same of each rank's
// shard. States are cut where chunks of the sum of squares end.
func bucketsOf(p *engine.Program, world int) (list []bucket) {
	most := int64(bucketBytes / 4 / world)
	for r, parts := range shardsOf(p, world) {
		k := 0
		for _, p := range parts {
			for p.Elems > 0 {
				if k == len(list) {
					list = append(list, bucket{shards: make([][]engine.Part, world), elems: make([]int64, world)})
				}
				take := p.Elems
				if room := most - list[k].elems[r]; take > room {
					end := (p.From + room) / graph.NormChunk * graph.NormChunk
					if list[k].elems[r] == 0 {
						end = max(end, (p.From/graph.NormChunk+1)*graph.NormChunk)
					}
					take = min(take, end-p.From)
				}
				if take <= 0 {
					k++
					continue
				}
				list[k].shards[r] = append(list[k].shards[r], engine.Part{State: p.State, From: p.From, Elems: take})
				list[k].elems[r] += take
				list[k].bytes += 4 * take
				p.From, p.Elems = p.From+take, p.Elems-take
			}
		}
	}
	return list
}

// ExchangeBytes is the memory that rank 0, which has the largest shards, needs to exchange
// the program's gradients in a format ([Job.Exchange]): part of a plan.
func ExchangeBytes(p *engine.Program, world int, format graph.DType) int64 {
	if world == 0 {
		return 0
	}
	stride, sums := sizes(bucketsOf(p, world), 0)
	return int64(world)*(stride+wireOf(format).bytes(stride)) + sums
}

// sizes are those of the largest shard and of all sums of a rank, in bytes.
func sizes(list []bucket, rank int) (stride, sums int64) {
	for _, k := range list {
		for r := range k.elems {
			stride = max(stride, line(k.floatBytes(r)))
		}
		sums += line(k.floatBytes(rank))
	}
	return stride, sums
}

// line rounds a number of bytes up to a cache line.
func line(n int64) int64 { return (n + 63) &^ 63 }

func newExchange(g dist.Group, x *engine.Executable, w wire) (*exchange, error) {
	p, me, world := x.Program(), g.Rank(), int64(g.World())
	if s := p.Shards; s != nil && len(s.Weights) != g.World() {
		return nil, fmt.Errorf("the program divides the optimizer among %d ranks, the group has %d", len(s.Weights), world)
	}
	for _, s := range p.States {
		if s.Role == graph.Gradient && s.Type.DType != graph.F32 {
			return nil, fmt.Errorf("gradient %s is %v: only F32 can be exchanged", s.Name, s.Type)
		}
	}
	e := &exchange{g: g, x: x, wire: w, buckets: bucketsOf(p, g.World())}
	stride, sums := sizes(e.buckets, me)
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
		k.sum, rest = rest[:n], rest[line(n):]
	}
	if p.Shards != nil {
		e.zero = newZero(p.Shards)
	}
	return e, nil
}

func (e *exchange) close() error { return offheap.Release(e.memory) }

// shard is the room for a rank's shard of a bucket in own.
func (e *exchange) shard(k *bucket, rank int) []byte {
	return e.own[int64(rank)*e.stride:][:k.floatBytes(rank)]
}

// add adds the gradients of the micro-batches of a round: the first so many ranks have
// computed one each. first is the update's first round. The gradients are cleared.
func (e *exchange) add(first bool, computed int) error {
	me, world := e.g.Rank(), e.g.World()
	send, recv := make([][]byte, world), make([][]byte, world)
	for i := range e.buckets {
		k := &e.buckets[i]
		for r := range world {
			send[r], recv[r] = nil, nil
			if me < computed {
				if err := each(k.shards[r], e.shard(k, r), e.x.ReadPart); err != nil {
					return err
				}
				send[r] = e.wire.pack(e.shard(k, r))
			}
			if r < computed {
				recv[r] = e.others[int64(r)*e.wire.bytes(e.stride):][:e.wire.bytes(k.floatBytes(me))]
			}
		}
		if err := e.g.AllToAll(send, recv); err != nil {
			return err
		}
		for r := range computed {
			e.wire.add(k.sum, recv[r], first && r == 0)
		}
		for r := range world {
			if me < computed {
				clear(e.shard(k, r))
				if err := each(k.shards[r], e.shard(k, r), e.x.WritePart); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// spread writes the sums to the gradients of every rank or, where ranks share the
// optimizer, to those of their owners, with the norm of all.
func (e *exchange) spread() error {
	if e.zero != nil {
		return e.keep()
	}
	parts := make([][]byte, e.g.World())
	for i := range e.buckets {
		k := &e.buckets[i]
		for r := range parts {
			parts[r] = e.shard(k, r)[:e.wire.bytes(k.floatBytes(r))]
		}
		copy(parts[e.g.Rank()], e.wire.pack(k.sum))
		if err := e.g.AllGather(parts); err != nil {
			return err
		}
		for r := range parts {
			e.wire.unpack(e.shard(k, r))
			if err := each(k.shards[r], e.shard(k, r), e.x.WritePart); err != nil {
				return err
			}
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
