package train

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/offheap"
	"github.com/snug-ml/snug/internal/simd"
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
// ring of reduce-scatter and all-gather sends when there is one round.
type exchange struct {
	g       dist.Group
	x       *engine.Executable
	buckets []bucket
	memory  []byte // that everything below is part of
	own     []byte // this rank's gradients of a bucket
	others  []byte // shards of a bucket, of each rank
}

// bucket is some of the gradients.
type bucket struct {
	states []*graph.State
	bytes  int64
	shard  int64  // the size of every shard but those at the end, which may be shorter
	sum    []byte // of this rank's shard
}

// of is the part of b that belongs to a rank's shard; b has the size of the bucket.
func (k *bucket) of(rank int, b []byte) []byte {
	from := min(int64(rank)*k.shard, k.bytes)
	return b[from:min(from+k.shard, k.bytes)]
}

// bucketsOf are the program's gradients in buckets, for so many ranks.
func bucketsOf(p *engine.Program, world int) (list []bucket) {
	for _, s := range p.States {
		if s.Role != graph.Gradient {
			continue
		}
		n := s.Type.Bytes()
		if last := len(list) - 1; last >= 0 && list[last].bytes+n <= bucketBytes {
			list[last].states, list[last].bytes = append(list[last].states, s), list[last].bytes+n
			continue
		}
		list = append(list, bucket{states: []*graph.State{s}, bytes: n})
	}
	const align = 64
	for i := range list {
		k := &list[i]
		k.shard = ((k.bytes+int64(world)-1)/int64(world) + align - 1) / align * align
	}
	return list
}

// ExchangeBytes is the memory that each rank needs to exchange the program's gradients:
// part of a plan.
func ExchangeBytes(p *engine.Program, world int) int64 {
	if world == 0 {
		return 0
	}
	list := bucketsOf(p, world)
	own, others, sums := sizes(list, world)
	return own + others + sums
}

func sizes(list []bucket, world int) (own, others, sums int64) {
	for _, k := range list {
		own, others, sums = max(own, k.bytes), max(others, int64(world)*k.shard), sums+k.shard
	}
	return own, others, sums
}

func newExchange(g dist.Group, x *engine.Executable) (*exchange, error) {
	e := &exchange{g: g, x: x, buckets: bucketsOf(x.Program(), g.World())}
	for _, k := range e.buckets {
		for _, s := range k.states {
			if s.Type.DType != graph.F32 {
				return nil, fmt.Errorf("gradient %s is %v: only F32 can be exchanged", s.Name, s.Type)
			}
		}
	}
	own, others, sums := sizes(e.buckets, g.World())
	var err error
	if e.memory, err = offheap.Allocate(own + others + sums); err != nil {
		return nil, fmt.Errorf("memory to exchange gradients: %w", err)
	}
	e.own, e.others = e.memory[:own], e.memory[own:own+others]
	rest := e.memory[own+others:]
	for i := range e.buckets {
		k := &e.buckets[i]
		k.sum, rest = rest[:len(k.of(g.Rank(), e.own))], rest[k.shard:]
	}
	return e, nil
}

func (e *exchange) close() error { return offheap.Release(e.memory) }

// add adds the gradients of the micro-batches of a round: the first so many ranks have
// computed one each. first is the update's first round. The gradients are cleared.
func (e *exchange) add(first bool, computed int) error {
	me, world := e.g.Rank(), e.g.World()
	send, recv := make([][]byte, world), make([][]byte, world)
	for i := range e.buckets {
		k := &e.buckets[i]
		own := e.own[:k.bytes]
		if me < computed {
			if err := e.each(k, own, e.x.ReadState); err != nil {
				return err
			}
		}
		mine := int64(len(k.of(me, own)))
		for r := range world {
			send[r], recv[r] = nil, nil
			if me < computed {
				send[r] = k.of(r, own)
			}
			if r < computed {
				recv[r] = e.others[int64(r)*k.shard:][:mine]
			}
		}
		if err := e.g.AllToAll(send, recv); err != nil {
			return err
		}
		for r := range computed {
			if first && r == 0 {
				copy(k.sum, recv[r])
				continue
			}
			sum := floats(k.sum)
			simd.Add(sum, sum, floats(recv[r]))
		}
		if me < computed {
			clear(own)
			if err := e.each(k, own, e.x.WriteState); err != nil {
				return err
			}
		}
	}
	return nil
}

// spread writes the sums to the gradients of every rank.
func (e *exchange) spread() error {
	parts := make([][]byte, e.g.World())
	for i := range e.buckets {
		k := &e.buckets[i]
		own := e.own[:k.bytes]
		for r := range parts {
			parts[r] = k.of(r, own)
		}
		copy(parts[e.g.Rank()], k.sum)
		if err := e.g.AllGather(parts); err != nil {
			return err
		}
		if err := e.each(k, own, e.x.WriteState); err != nil {
			return err
		}
	}
	return nil
}

// each calls do with every state of a bucket and its part of b.
func (e *exchange) each(k *bucket, b []byte, do func(name string, part []byte) error) error {
	var errs []error
	for _, s := range k.states {
		n := s.Type.Bytes()
		errs = append(errs, do(s.Name, b[:n:n]))
		b = b[n:]
	}
	return errors.Join(errs...)
}

func floats(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}
