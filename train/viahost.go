package train

import (
	"fmt"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/offheap"
)

// viaHost is the route through main memory, over a group.
type viaHost struct {
	g          dist.Group
	x          *engine.Executable
	wire       wire
	buckets    []bucket
	memory     []byte   // own, others and the sums are parts of it
	own        []byte   // this rank's gradients of a bucket, by the rank whose shard they are
	others     []byte   // this rank's shard of a bucket, as sent by each rank
	stride     int64    // of the shards in own
	send, recv [][]byte // of a call, by rank
	zero       *zero    // nil: ranks do not share the optimizer
	waiting    *waiting // nil: gradients are not added up in pairs
}

func newViaHost(g dist.Group, x *engine.Executable, w wire, how Sums, buckets []bucket) (*viaHost, error) {
	me, world := g.Rank(), int64(g.World())
	e := &viaHost{g: g, x: x, wire: w, buckets: buckets, send: make([][]byte, world), recv: make([][]byte, world)}
	stride, sums := sizes(e.buckets, me, how)
	others, waits, block := world*w.bytes(stride), int64(0), microBatches(x.Program())/g.World()
	if how == Tree {
		waits = waitingBytes(buckets, block)
	}
	var err error
	if e.memory, err = offheap.Allocate(world*stride + others + sums + waits); err != nil {
		return nil, fmt.Errorf("memory to exchange gradients: %w", err)
	}
	e.stride, e.own, e.others = stride, e.memory[:world*stride], e.memory[world*stride:][:others]
	rest := e.memory[world*stride+others:]
	for i := range e.buckets {
		k := &e.buckets[i]
		n := k.floatBytes(me)
		if k.sum = rest[:n]; how == Ordered {
			rest = rest[line(n):]
		}
	}
	if how == Tree {
		e.waiting = newWaiting(buckets, block, e.memory[world*stride+others+sums:])
	}
	if s := x.Program().Shards; s != nil {
		e.zero = newZero(s)
	}
	return e, nil
}

func (e *viaHost) free(error) error { return offheap.Release(e.memory) }

// shard returns the room for a rank's shard of a bucket in own.
func (e *viaHost) shard(k *bucket, rank int) []byte {
	return e.own[int64(rank)*e.stride:][:k.floatBytes(rank)]
}

// take copies gradients to own, as they are sent.
func (e *viaHost) take(k *bucket) error {
	for r, parts := range k.shards {
		b := e.shard(k, r)
		if err := eachGradient(parts, b, e.read); err != nil {
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

// zeros clears gradients, a piece at a time.
var zeros [256 << 10]byte

func (e *viaHost) clear(p engine.Part) error {
	width := p.State.Type.DType.Size()
	for end := p.From + p.Elems; p.From < end; p.From += p.Elems {
		p.Elems = min(end-p.From, int64(len(zeros))/width)
		if err := e.x.WritePart(p, zeros[:width*p.Elems]); err != nil {
			return err
		}
	}
	return nil
}

func (e *viaHost) fold(k *bucket, micro int) error {
	e.waiting.fold(k.number, micro, func(r int) []byte { return e.shard(k, r) })
	return nil
}

func (e *viaHost) add(k *bucket, computed int, first bool) error {
	me := e.g.Rank()
	own := func(r int) []byte { return e.shard(k, r) }
	if e.waiting != nil && e.waiting.block > 1 && me < computed {
		e.waiting.merge(k.number, 1) // an update may have fewer micro-batches
		own = func(r int) []byte { return e.waiting.sums[k.number][0][r] }
	}
	for i := range e.send {
		e.send[i], e.recv[i] = nil, nil
		if me < computed {
			e.send[i] = own(i)[:e.wire.bytes(k.floatBytes(i))]
		}
		if i < computed {
			e.recv[i] = e.others[int64(i)*e.wire.bytes(e.stride):][:e.wire.bytes(k.floatBytes(me))]
		}
	}
	if err := e.g.AllToAll(e.send, e.recv); err != nil {
		return err
	}
	if e.waiting != nil {
		addPairs(e.recv[:computed])
		copy(k.sum, e.recv[0])
		return nil
	}
	for i := range computed {
		e.wire.add(k.sum, e.recv[i], first && i == 0)
	}
	return nil
}

func (e *viaHost) spread(k *bucket) error {
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
		if err := eachGradient(k.shards[r], e.shard(k, r), e.write); err != nil {
			return err
		}
	}
	return nil
}

// format returns the format in which a gradient is kept, as a wire format.
func format(p engine.Part) wire { return wireOf(p.State.Type.DType) }

// read copies a part of a gradient to b, in float32.
func (e *viaHost) read(p engine.Part, b []byte) error {
	w := format(p)
	err := e.x.ReadPart(p, b[:w.bytes(int64(len(b)))])
	w.unpack(b)
	return err
}

// write copies b, in float32, to a part of a gradient, rounded to the format in which it is
// kept; b is rounded too.
func (e *viaHost) write(p engine.Part, b []byte) error {
	w := format(p)
	err := e.x.WritePart(p, w.pack(b))
	w.unpack(b)
	return err
}

// eachGradient calls do with every part of gradients and its elements in float32, which lie one
// after the other in b.
func eachGradient(parts []engine.Part, b []byte, do func(p engine.Part, floats []byte) error) error {
	for _, p := range parts {
		n := 4 * p.Elems
		if err := do(p, b[:n:n]); err != nil {
			return err
		}
		b = b[n:]
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
