package train

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// roomUse says how ranks that exchange gradients from card to card use the room next to an arena,
// like viaHost uses main memory. Places in it are in bytes.
type roomUse struct {
	engine.RoomUse
	format      graph.DType
	own, stride int64 // a slot for each rank's shard of a bucket: this rank's gradients, or all sums or weights
	// others holds this rank's shard, as sent by each rank.
	others, otherStride int64
	of                  []bucketUse
	// sums are the sums of squares, as added up by their owners, ordered the same ones in the
	// order of a single device; sumsOf says which are a rank's: from where and how many.
	sums, ordered int64
	sumsOf        [][2]int64
}

// bucketUse is the use of the room for a bucket. Lists of pieces are given by their
// numbers.
type bucketUse struct {
	elems     []int64 // of each rank's shard, each piece at a multiple of pieceAlign
	sum       int64   // of this rank's shard
	gradients []int   // pieces of all shards, in own: a list for each format
	// If ranks share the optimizer: the same for this rank's shard, for the weights of this rank
	// and of the others; the bytes of each rank's.
	shard, ownWeights, otherWeights []int
	weights                         []int64
}

// pieceAlign is the alignment of pieces, in elements: kernels move four at a time.
const pieceAlign = 4

// slot returns the place of a rank's shard in own.
func (u *roomUse) slot(rank int) int64 { return u.own + int64(rank)*u.stride }

// up rounds up to a multiple.
func up(n, to int64) int64 { return (n + to - 1) / to * to }

func newRoomUse(p *engine.Program, me, world int, w wire, how Sums, buckets []bucket) *roomUse {
	u := &roomUse{format: graph.DType(w), of: make([]bucketUse, len(buckets))}
	weights := map[string]*graph.State{}
	if p.Shards != nil {
		for _, t := range p.Shards.Trained {
			weights[engine.Gradient+t.Name] = t
		}
	}
	for i := range buckets {
		b := &u.of[i]
		b.elems, b.weights = make([]int64, world), make([]int64, world)
		for r, shard := range buckets[i].shards {
			for _, q := range shard {
				b.elems[r] += up(q.Elems, pieceAlign)
				if t := weights[q.State.Name]; t != nil {
					b.weights[r] += line(q.Elems * t.Type.DType.Size())
				}
			}
			u.stride = max(u.stride, line(b.elems[r]*u.format.Size()), b.weights[r])
		}
		u.otherStride = max(u.otherStride, line(b.elems[me]*u.format.Size()))
	}
	u.others = int64(world) * u.stride
	at := u.others + int64(world)*u.otherStride
	most := int64(0)
	for i := range u.of {
		b := &u.of[i]
		b.sum = at
		if n := line(4 * b.elems[me]); how != Ordered { // a sum is distributed before the next begins
			most = max(most, n)
		} else {
			at += n
		}
		u.pieces(b, &buckets[i], me, weights)
	}
	u.Bytes = at + most
	if p.Shards != nil {
		u.norm(p, me)
	}
	return u
}

// add adds a piece to the list that has its format.
func (u *roomUse) add(lists *[]int, p engine.Piece) {
	for _, i := range *lists {
		if u.formatOf(i) == p.State.Type.DType {
			u.Pieces[i] = append(u.Pieces[i], p)
			return
		}
	}
	*lists = append(*lists, len(u.Pieces))
	u.Pieces = append(u.Pieces, []engine.Piece{p})
}

// formatOf returns the format of a list.
func (u *roomUse) formatOf(list int) graph.DType { return u.Pieces[list][0].State.Type.DType }

// pieces makes the lists of a bucket, with places from own on.
func (u *roomUse) pieces(b *bucketUse, k *bucket, me int, weights map[string]*graph.State) {
	for r, parts := range k.shards {
		at, bytes := int64(r)*u.stride/u.format.Size(), int64(r)*u.stride
		for _, q := range parts {
			piece := engine.Piece{Part: q, At: at}
			at += up(q.Elems, pieceAlign)
			u.add(&b.gradients, piece)
			t := weights[q.State.Name]
			if t == nil {
				continue
			}
			width := t.Type.DType.Size()
			weight := engine.Piece{Part: engine.Part{State: t, From: q.From, Elems: q.Elems}, At: bytes / width}
			bytes += line(q.Elems * width)
			if r == me {
				u.add(&b.shard, piece)
				u.add(&b.ownWeights, weight)
			} else {
				u.add(&b.otherWeights, weight)
			}
		}
	}
}

// norm makes room for the sums of squares, which are the same as on a single device: first of
// gradients in F32, then of those in BF16.
func (u *roomUse) norm(p *engine.Program, me int) {
	s := p.Shards
	gradient := func(t *graph.State) *graph.State { return p.State(engine.Gradient + t.Name) }
	first := map[string]int64{} // first sum of a weight's gradient
	total := int64(0)
	for _, d := range engine.NormFormats {
		for _, t := range s.Trained {
			if gradient(t).Type.DType == d {
				first[t.Name] = total
				total += up(t.Type.Shape.Elems(), engine.NormPart) / engine.NormPart
			}
		}
	}
	from := int64(0)
	for r, parts := range s.Weights {
		begin := from
		for i, d := range engine.NormFormats {
			for _, q := range parts {
				g := gradient(q.State)
				if g.Type.DType != d {
					continue
				}
				n := up(q.Elems, engine.NormPart) / engine.NormPart
				u.Runs = append(u.Runs, engine.Run{From: from, To: first[q.State.Name] + q.From/engine.NormPart, Count: n})
				from += n
				if r == me {
					u.Squares[i] = append(u.Squares[i], engine.Part{State: g, From: q.From, Elems: q.Elems})
				}
			}
		}
		u.sumsOf = append(u.sumsOf, [2]int64{begin, from - begin})
	}
	u.sums = line(u.Bytes)
	u.ordered = line(u.sums + engine.NormSumBytes*total)
	u.Bytes = u.ordered + engine.NormSumBytes*total
}

// RoomBytes returns the memory on its card that rank 0, which has the largest shards, needs to
// exchange the program's gradients from card to card: as part of a plan, like [ExchangeBytes].
func RoomBytes(p *engine.Program, world int, format graph.DType, how Sums) int64 {
	if world == 0 {
		return 0
	}
	u := newRoomUse(p, 0, world, wireOf(format), how.in(p), bucketsOf(p, world))
	return up(u.Bytes, 256) + u.RoomTables()
}
