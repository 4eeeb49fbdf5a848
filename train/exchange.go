package train

import (
	"context"
	"fmt"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// exchange adds up the gradients of an update over the ranks, always in the order of
// its micro-batches, so that the sums have the same bits for any number of ranks.
//
// Micro-batch m is computed by rank m modulo the number of ranks. In each round of one
// micro-batch per rank, each rank gets its shard of every gradient from all ranks and adds them
// in order; in the last, all shards go to every rank. With a single round, that sends as much as
// a ring of reduce-scatter and all-gather. If ranks share the optimizer, the shard stays where it
// is, and its owner sends the updated weights to every rank instead (zero.go).
//
// The fast way has one round per update: each rank has added up its own micro-batches in its
// gradients, and these are added in the order of the ranks. In pairs (tree.go), each rank adds up
// neighbors by itself round by round, and exchanges their sum in the last.
//
// A bucket of gradients is exchanged as soon as a run has finished with them, while the
// rest of the backward half and the next forward half compute (overlap.go).
//
// Sums are kept in float32, and rounded once more if gradients are kept in 16 bits. Everything
// sent, to others or to the rank itself, has the format of wire: the shards of each micro-batch,
// and then the sums.
type exchange struct {
	g       dist.Group
	x       *engine.Executable
	buckets []bucket
	sums    Sums
	turns   turns
	shared  bool // ranks share the optimizer
	route
	overlap
}

// route is how gradients get from rank to rank: through main memory (viaHost), or from card to card
// (viaCards).
type route interface {
	// take makes a bucket's gradients ready to be sent, and clears them.
	take(k *bucket) error
	// fold adds what was taken, from that micro-batch of this rank's block, to the sums that wait
	// to be added up in pairs.
	fold(k *bucket, micro int) error
	// add exchanges what the first computed ranks took, and adds it to the sum of this rank's
	// shard, or with first begins that sum.
	add(k *bucket, computed int, first bool) error
	// spread writes the sums of a bucket to the gradients of every rank or, if ranks share
	// the optimizer, to those of their owners.
	spread(k *bucket) error
	// norm sets the norm of all sums from those that each owner has, if ranks share the
	// optimizer.
	norm() error
	// spreadWeights gives every rank the weights that their owners have updated. No run is in
	// progress.
	spreadWeights() error
	// free releases what the route holds. The exchange ended with a cause; nil: all ranks
	// ended it.
	free(cause error) error
}

func newExchange(ctx context.Context, g dist.Group, x *engine.Executable, w wire, how Sums, library *nccl.Library) (*exchange, error) {
	p := x.Program()
	how = how.in(p)
	if s := p.Shards; s != nil && len(s.Weights) != g.World() {
		return nil, fmt.Errorf("the program divides the optimizer among %d ranks, the group has %d", len(s.Weights), g.World())
	}
	for _, s := range p.States {
		if d := s.Type.DType; s.Role == graph.Gradient && d != graph.F32 && d != graph.BF16 {
			return nil, fmt.Errorf("gradient %s is %v: only F32 and BF16 can be exchanged", s.Name, s.Type)
		}
	}
	if how == Tree {
		if err := how.Shareable(microBatches(p), g.World()); err != nil {
			return nil, err
		}
	}
	e := &exchange{g: g, x: x, sums: how, turns: turnsOf(g, p, how), shared: p.Shards != nil, buckets: bucketsOf(p, g.World())}
	var err error
	if library != nil {
		e.route, err = newViaCards(ctx, g, x, w, how, e.buckets, library)
	} else {
		e.route, err = newViaHost(g, x, w, how, e.buckets)
	}
	if err != nil {
		return nil, err
	}
	e.start(p.Buckets())
	return e, nil
}
