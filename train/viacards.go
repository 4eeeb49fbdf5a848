package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
)

// viaCards is the route from card to card: NCCL moves bytes between rooms next to the arenas, and
// kernels do the rest. Sums have the same order, and so the same bits, as in main memory. The
// norm of a shared optimizer is added up like the card's own operation does, so that it has the
// same bits as for one that is not shared.
type viaCards struct {
	g          dist.Group
	x          *engine.Executable
	use        *roomUse
	room       *engine.Room
	link       *nccl.Communicator
	send, recv []nccl.Buffer // of a call, by rank
}

func newViaCards(ctx context.Context, g dist.Group, x *engine.Executable, w wire, how Sums, buckets []bucket, library *nccl.Library) (*viaCards, error) {
	if how == Tree {
		return nil, errors.New("cards add up gradients in the order of micro-batches, not in pairs")
	}
	met, ok := g.(dist.Watched)
	if !ok {
		return nil, errors.New("the ranks give each other no signs of life, which NCCL needs: it waits forever for one that is lost")
	}
	world := g.World()
	e := &viaCards{g: g, x: x, use: newRoomUse(x.Program(), g.Rank(), world, w, how, buckets), send: make([]nccl.Buffer, world), recv: make([]nccl.Buffer, world)}
	var err error
	if e.room, err = x.Room(e.use.RoomUse); err != nil {
		return nil, fmt.Errorf("memory of the card to exchange gradients: %w", err)
	}
	if e.link, err = library.Connect(ctx, met, e.room); err != nil {
		return nil, errors.Join(err, e.room.Close())
	}
	return e, nil
}

// free leaves NCCL cleanly once all ranks have come this far, and aborts it otherwise.
func (e *viaCards) free(cause error) error {
	if cause == nil {
		cause = dist.Barrier(e.g)
	}
	return errors.Join(e.link.Leave(cause), e.room.Close())
}

func (*viaCards) fold(*bucket, int) error { return nil }

func (e *viaCards) buffer(place, bytes int64) nccl.Buffer {
	return nccl.Buffer{Address: e.room.Address(place), Bytes: bytes}
}

func (e *viaCards) take(k *bucket) error {
	u := e.use
	for _, list := range u.of[k.number].gradients {
		if err := e.room.Take(list, u.own, u.format, true); err != nil {
			return err
		}
	}
	return e.room.Sync()
}

func (e *viaCards) add(k *bucket, computed int, first bool) error {
	u, b, me := e.use, &e.use.of[k.number], e.g.Rank()
	for r := range e.send {
		e.send[r], e.recv[r] = nccl.Buffer{}, nccl.Buffer{}
		if me < computed {
			e.send[r] = e.buffer(u.slot(r), b.elems[r]*u.format.Size())
		}
		if r < computed {
			e.recv[r] = e.buffer(u.others+int64(r)*u.otherStride, b.elems[me]*u.format.Size())
		}
	}
	if err := e.link.AllToAll(e.send, e.recv); err != nil {
		return err
	}
	return e.room.Add(b.sum, u.others, u.otherStride, computed, b.elems[me], u.format, first)
}

func (e *viaCards) spread(k *bucket) error {
	u, b, me := e.use, &e.use.of[k.number], e.g.Rank()
	if err := e.room.Send(b.sum, u.slot(me), b.elems[me], u.format); err != nil {
		return err
	}
	if e.x.Program().Shards != nil {
		return e.give(b.shard)
	}
	for r := range e.send {
		e.send[r] = e.buffer(u.slot(r), b.elems[r]*u.format.Size())
	}
	if err := e.link.AllGather(e.send); err != nil {
		return err
	}
	if err := e.give(b.gradients); err != nil {
		return err
	}
	return e.room.Sync()
}

// give copies sums from own to the gradients of some lists.
func (e *viaCards) give(lists []int) error {
	for _, list := range lists {
		if err := e.room.Give(list, e.use.own, e.use.format); err != nil {
			return err
		}
	}
	return nil
}

func (e *viaCards) norm() error {
	u, me := e.use, e.g.Rank()
	if err := e.room.Squares(u.sums + engine.NormSumBytes*u.sumsOf[me][0]); err != nil {
		return err
	}
	for r, s := range u.sumsOf {
		e.send[r] = e.buffer(u.sums+engine.NormSumBytes*s[0], engine.NormSumBytes*s[1])
	}
	if err := e.link.AllGather(e.send); err != nil {
		return err
	}
	if err := e.room.Norm(u.sums, u.ordered, e.x.Program().State(engine.StateNorm)); err != nil {
		return err
	}
	return e.room.Sync()
}

func (e *viaCards) spreadWeights() error {
	if err := e.x.Sync(); err != nil { // waits for the update
		return err
	}
	for i := range e.use.of {
		b := &e.use.of[i]
		for _, list := range b.ownWeights {
			if err := e.room.Take(list, e.use.own, e.use.formatOf(list), false); err != nil {
				return err
			}
		}
		for r := range e.send {
			e.send[r] = e.buffer(e.use.slot(r), b.weights[r])
		}
		if err := e.link.AllGather(e.send); err != nil {
			return err
		}
		for _, list := range b.otherWeights {
			if err := e.room.Give(list, e.use.own, e.use.formatOf(list)); err != nil {
				return err
			}
		}
	}
	return e.room.Sync()
}
