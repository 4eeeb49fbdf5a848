package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
)

// transfer is a copy of offloaded data between the card and the host's memory.
type transfer struct {
	out   bool
	host  int64 // offset in the host's memory
	card  address
	bytes int64
}

// fetch copies a part of an offloaded state to the card.
func (l *lowering) fetch(n *graph.Node, op graph.Fetch) {
	from := l.at(n.In[0]).offset + op.From*n.In[0].DType().Size()
	l.launches = append(l.launches, launch{node: n, copy: &transfer{host: from, card: l.at(n.Out[0]), bytes: n.Out[0].Type.Bytes()}})
}

// writeBack copies a part of an offloaded state back to the host.
func (l *lowering) writeBack(n *graph.Node, op graph.WriteBack) {
	to := l.at(n.In[0]).offset + op.From*n.In[0].DType().Size()
	l.launches = append(l.launches, launch{node: n, copy: &transfer{out: true, host: to, card: l.at(n.In[1]), bytes: n.In[1].Type.Bytes()}})
}

// stepPart launches a step for a part of its weight. The kernel counts elements from the start of the weight,
// as random bits depend on them: its blocks are those of the part, and the states' addresses are where the
// states would begin if they were whole. Nothing outside the part is read.
func (l *lowering) stepPart(n *graph.Node, op graph.StepPart) {
	l.flush()
	s := stepOf(op.Step)
	if op.From%int64(s.elems) != 0 {
		l.fail("a part begins at element %d, which is within a block of %d", op.From, s.elems)
	}
	l.step(n, op.Step)
	b, part := l.steps, n.In[2].Shape().Elems()
	b.table = params{}
	for _, v := range n.In[:2] {
		b.table.ptr(l.at(v))
	}
	for _, v := range n.In[2 : 2+op.States()] {
		at, first := l.at(v), op.From
		if v.Shape().Elems() != part {
			first /= graph.MomentBlock
		}
		b.table.ptr(at.plus(-first * v.DType().Size()))
	}
	if can, to := rounds(op.Step); can && to == graph.Invalid {
		b.table.u64(nowhere)
	}
	before := int(op.From / int64(s.elems)) // blocks
	b.table.u64(uint64(op.From+part)).u32(-before).f32(s.decay, s.rate)
	s.drawn(&b.table)
	b.blocks = int(ceil(part, int64(s.elems)))
	l.flush()
}

// transfers holds the streams on which states are copied while steps compute, and the host's memory.
type transfers struct {
	in, out driver.Stream
	host    []byte         // page-locked
	free    []driver.Event // events that nothing waits for
	all     []driver.Event
}

// newTransfers reserves the host's memory; it returns nil if nothing is offloaded.
func newTransfers(ctx driver.Context, bytes int64) (t *transfers, err error) {
	if bytes == 0 {
		return nil, nil
	}
	t = &transfers{}
	if t.in, err = ctx.NewStream(); err != nil {
		return t, err
	}
	if t.out, err = ctx.NewStream(); err != nil {
		return t, err
	}
	if t.host, err = ctx.AllocHost(bytes); err != nil {
		return t, fmt.Errorf("training.offload: the host cannot reserve %s of page-locked memory: %w", size.Bytes(bytes), err)
	}
	return t, nil
}

// event returns an event that nothing waits for.
func (t *transfers) event(ctx driver.Context) (e driver.Event, err error) {
	if n := len(t.free); n > 0 {
		e, t.free = t.free[n-1], t.free[:n-1]
		return e, nil
	}
	if e, err = ctx.NewEvent(false); err == nil {
		t.all = append(t.all, e)
	}
	return e, err
}

// close frees the events, the streams and the memory.
func (t *transfers) close(ctx driver.Context, add func(error)) {
	if t == nil {
		return
	}
	for _, e := range t.all {
		add(e.Close())
	}
	for _, s := range []driver.Stream{t.in, t.out} {
		if s != nil {
			add(s.Close())
		}
	}
	if t.host != nil {
		add(ctx.FreeHost(t.host))
	}
}

// crossing holds the copies under way while launches are captured: the events that their readers wait for, by
// the nodes that began the copies.
type crossing struct {
	x       *image
	fetched map[*graph.Node]driver.Event
	written map[*graph.Node]driver.Event
	// waiting holds, by the last launch of a node, the copies to the host of its results.
	waiting map[*bound][]*bound
}

func newCrossing(x *image, launches []bound) *crossing {
	c := &crossing{x, map[*graph.Node]driver.Event{}, map[*graph.Node]driver.Event{}, map[*bound][]*bound{}}
	last := map[*graph.Node]*bound{}
	for i := range launches {
		b := &launches[i]
		if b.copy != nil && b.copy.out {
			if from := last[b.node.In[1].Node]; from != nil {
				c.waiting[from] = append(c.waiting[from], b)
			}
		}
		last[b.node] = b
		for _, n := range b.also {
			last[n] = b
		}
	}
	return c
}

// begin starts a copy on another stream, after the launches so far, and returns an event for its end.
func (c *crossing) begin(on driver.Stream, b *bound) (driver.Event, error) {
	t := c.x.transfers
	now, err := t.event(c.x.ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.x.compute.Record(now), on.Wait(now), c.x.transfer(on, b.copy)); err != nil {
		return nil, b.failed(err)
	}
	return now, on.Record(now)
}

// wait makes later launches wait for the end of a copy, if it is under way.
func (c *crossing) wait(on map[*graph.Node]driver.Event, n *graph.Node) error {
	e := on[n]
	if e == nil {
		return nil
	}
	delete(on, n)
	c.x.transfers.free = append(c.x.transfers.free, e)
	return c.x.compute.Wait(e)
}

// launch queues a launch or a copy. A copy to the card begins where it stands in the order, and its readers
// wait for it; a copy to the host begins once its data is computed, and is waited for where it stands.
func (c *crossing) launch(b *bound) (err error) {
	switch {
	case b.copy != nil && b.copy.out:
		if c.written[b.node] == nil { // its data was computed by a part captured before
			if c.written[b.node], err = c.begin(c.x.transfers.out, b); err != nil {
				return err
			}
		}
		return c.wait(c.written, b.node)
	case b.copy != nil:
		c.fetched[b.node], err = c.begin(c.x.transfers.in, b)
		return err
	}
	for _, n := range slices.Concat([]*graph.Node{b.node}, b.also) {
		for _, v := range n.In {
			if err := c.wait(c.fetched, graph.Storage(v).Node); err != nil {
				return err
			}
		}
	}
	if err := c.x.launch(b); err != nil {
		return err
	}
	for _, out := range c.waiting[b] {
		if c.written[out.node], err = c.begin(c.x.transfers.out, out); err != nil {
			return err
		}
	}
	return nil
}

// end waits for the copies still under way.
func (c *crossing) end() error {
	for _, on := range []map[*graph.Node]driver.Event{c.fetched, c.written} {
		for n := range on {
			if err := c.wait(on, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// transfer queues a copy.
func (x *image) transfer(on driver.Stream, t *transfer) error {
	host := x.transfers.host[t.host : t.host+t.bytes]
	card := x.memory + driver.Ptr(x.p.Layout.Region(t.card.region).Offset+t.card.offset)
	if t.out {
		return on.CopyOut(host, card)
	}
	return on.CopyIn(card, host)
}

// onHost is a range of the offloaded data; nil if the offset is in the arena.
func (x *image) onHost(offset, bytes int64) []byte {
	if from := offset - x.p.Layout.Host.Offset; from >= 0 && bytes > 0 {
		return x.transfers.host[from : from+bytes]
	}
	return nil
}
