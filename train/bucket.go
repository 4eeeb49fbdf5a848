package train

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// bucket is a set of gradients that are exchanged together, with shards of about one
// size.
type bucket struct {
	number int             // among all
	group  int             // index in the program's buckets; this may be a part of that one
	shards [][]engine.Part // by rank
	elems  []int64         // of each shard
	bytes  int64           // of all shards, in float32
	sum    []byte          // of this rank's shard
}

// floatBytes is the size of a shard's gradients.
func (k *bucket) floatBytes(rank int) int64 { return 4 * k.elems[rank] }

// shardsOf returns the parts of the program's gradients that each rank adds up.
func shardsOf(p *engine.Program, groups [][]*graph.State, world int) [][]engine.Part {
	if p.Shards == nil {
		const line = 16 // elements
		return engine.Divide(groups, world, func(*graph.State) engine.Grain { return engine.Grain{Elems: line, Bytes: 4} })
	}
	shards := make([][]engine.Part, world)
	for r, parts := range p.Shards.Weights {
		for _, w := range parts {
			shards[r] = append(shards[r], engine.Part{State: p.State(engine.Gradient + w.State.Name), From: w.From, Elems: w.Elems})
		}
	}
	return shards
}

// bucketsOf returns the program's gradients in the order in which its runs finish with
// them, in buckets that contain about the same amount of each rank's shard. Gradients that
// are too large for one bucket are cut at the ends of chunks of the sum of squares.
func bucketsOf(p *engine.Program, world int) (list []bucket) {
	groups := p.Buckets()
	shards := shardsOf(p, groups, world)
	for i, states := range groups {
		in := map[string]bool{}
		for _, s := range states {
			in[s.Name] = true
		}
		list = append(list, cut(i, in, shards)...)
	}
	for i := range list {
		list[i].number = i
	}
	return list
}

// cut divides the parts of some gradients into buckets.
func cut(group int, in map[string]bool, shards [][]engine.Part) (list []bucket) {
	world := len(shards)
	most := int64(engine.BucketBytes/4/world) + graph.NormChunk // ranks differ by a chunk
	for r, parts := range shards {
		k := 0
		for _, p := range parts {
			for in[p.State.Name] && p.Elems > 0 {
				if k == len(list) {
					list = append(list, bucket{group: group, shards: make([][]engine.Part, world), elems: make([]int64, world)})
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

// Buckets returns the bytes of the program's gradients that the given number of ranks
// exchange at a time.
func Buckets(p *engine.Program, world int) (bytes []int64) {
	for _, b := range bucketsOf(p, world) {
		bytes = append(bytes, b.bytes)
	}
	return bytes
}

// Sent returns the number of bytes that ranks send for each byte of gradients in a format ([Job.Exchange]).
func Sent(format graph.DType) float64 {
	const block = 4 * codeBlock
	return float64(wireOf(format).bytes(block)) / block
}

// ExchangeBytes returns the memory that rank 0, which has the largest shards, needs to
// exchange the program's gradients in a format and way ([Job.Exchange], [Job.Sums]), as
// part of a plan.
func ExchangeBytes(p *engine.Program, world int, format graph.DType, how Sums) int64 {
	if world == 0 {
		return 0
	}
	how = how.in(p)
	buckets := bucketsOf(p, world)
	stride, sums := sizes(buckets, 0, how)
	n := int64(world)*(stride+wireOf(format).bytes(stride)) + sums
	if how == Tree {
		n += waitingBytes(buckets, microBatches(p)/world)
	}
	return n
}

// microBatches returns how many micro-batches an update of the program can have.
func microBatches(p *engine.Program) int {
	if s := p.State(engine.StateLosses); s != nil {
		return int(s.Type.Shape.Elems())
	}
	return 1
}

// sizes returns the size of the largest shard and of all sums of a rank that are kept at a
// time, in bytes.
func sizes(list []bucket, rank int, how Sums) (stride, sums int64) {
	for _, k := range list {
		for r := range k.elems {
			stride = max(stride, line(k.floatBytes(r)))
		}
		sums += line(k.floatBytes(rank))
	}
	if how != Ordered { // a sum is distributed before the next begins
		sums = min(sums, stride)
	}
	return stride, sums
}

// line rounds a number of bytes up to a cache line.
func line(n int64) int64 { return (n + 63) &^ 63 }
