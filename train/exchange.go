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
// Micro-batch m is computed by rank m modulo the ranks. In each round of one
// micro-batch a rank, each rank gets its shard of every gradient from all of them
// and adds them in their order; in the last, all shards go to everybody. That sends what a
// ring of reduce-scatter and all-gather sends when there is one round. Where ranks share the
// optimizer, the shard stays where it is, and what goes to everybody are the weights that
// its owner has made of it (zero.go).
//
// The fast way has one round an update: each rank has added its own micro-batches up in its
// gradients, and these are added in the order of the ranks. In pairs (tree.go), each rank adds up
// neighbors by itself round by round, and exchanges their sum in the last.
//
// A bucket of gradients is exchanged as soon as a run has finished with them, while the
// rest of the backward half and the next forward half compute (overlap.go).
//
// Sums are kept in float32, and rounded once more where gradients are kept in 16 bits. What is
// sent, to others or to oneself, has the format of wire: the shards of each micro-batch, and then
// the sums.
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
	// fold adds what was taken, of that micro-batch of this rank's block, to what waits to be added up in pairs.
	fold(k *bucket, micro int) error
	// add exchanges what the first ranks have taken, and adds it to the sum of this rank's shard, which
	// it may begin.
	add(k *bucket, computed int, first bool) error
	// spread writes the sums of a bucket to the gradients of every rank or, where ranks share
	// the optimizer, to those of their owners.
	spread(k *bucket) error
	// norm sets the norm of all sums, which their owners have: where ranks share the optimizer.
	norm() error
	// spreadWeights gives every rank the weights that their owners have updated, of which no run is in
	// hand.
	spreadWeights() error
	// free gives back what the route takes. The exchange ended with a cause, nil: all ranks
	// have.
	free(cause error) error
}

func newExchange(ctx context.Context, g dist.Group, x *engine.Executable, w wire, how Sums, library *nccl.Library) (*exchange, error) {
	p := x.Program()
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
